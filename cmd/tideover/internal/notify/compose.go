package notify

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// maxLine is how much of what was said last a message repeats, in characters.
const maxLine = 300

// Place is where the events come from.
type Place struct {
	Host string         // of this machine
	Page string         // address of the page, such as http://127.0.0.1:7878; empty means none
	Zone *time.Location // of times in texts; nil means the machine's
}

// Compose makes a message of an event. It is false for events that no message is about.
func Compose(e retry.Event, p Place) (Message, bool) {
	m := composed(e, p)
	if !m.describe(e, p.Zone) {
		return Message{}, false
	}
	if e.Step != "" && e.Step != e.Name {
		m.Text = "step " + e.Step + ": " + m.Text
	}
	return m, true
}

// composed returns the message of an event without words.
func composed(e retry.Event, p Place) Message {
	m := Message{
		Subject: clippedLine(cmp.Or(e.Name, e.Run, "tideover"), maxLine), Run: e.Run, Step: e.Step, Attempt: e.Attempt, Attempts: e.Attempts,
		Time: e.Time, Host: p.Host, ID: identity(e),
	}
	if last := e.Err; last != nil {
		if whole, ok := errors.AsType[*retry.Error](last); ok && whole.Last != nil {
			last = whole.Last // the rest of it is in the message anyway
		}
		m.Line = clippedLine(last.Error(), maxLine)
	}
	if p.Page != "" && e.Run != "" {
		m.URL = strings.TrimSuffix(p.Page, "/") + "/runs/" + url.PathEscape(e.Run)
	}
	return m
}

// describe says what happened, in words.
func (m *Message) describe(e retry.Event, zone *time.Location) bool {
	switch e.Kind {
	case retry.GaveUp:
		m.gaveUp(e)
	case retry.Waiting:
		m.Event, m.Wait, m.Until = Waiting, e.Delay, e.Until
		m.Title = m.Subject + " waits " + textfmt.RoundedDuration(e.Delay)
		m.Text = lines("until "+clock(e.Until, e.Time, zone)+by(e.By), count(e), prefixed("last: ", m.Line))
	case retry.Resumed:
		m.Event = Resumed
		m.Title = m.Subject + " goes on"
		m.Text = cmp.Or(prefixed("put back to work by ", e.Note), "put back to work")
	case retry.BreakerOpened:
		m.Event, m.Wait = BreakerOpen, e.Delay
		m.Title = m.Subject + " is failing"
		m.Text = "the breaker is open: nothing is tried" + prefixed(" for ", textfmt.RoundedDuration(e.Delay))
	case retry.BreakerClosed:
		m.Event = Recovered
		m.Title, m.Text = m.Subject+" works again", "the breaker is closed"
	case retry.StormBegan:
		m.Event = Storm
		m.Title, m.Text = m.Subject+": retry storm", e.Note
	case retry.StormEnded: // no storm, or it would be held back as told a moment ago
		m.Event = Recovered
		m.Title, m.Text = m.Subject+": the retry storm is over", e.Note
	case retry.StartRefused:
		m.Event = StartRefused
		m.Title = m.Subject + ": a scheduled start was refused"
		m.Text = lines(e.Note, m.Line)
	case retry.Succeeded:
		if e.Attempt < 2 {
			return false
		}
		m.Event = Recovered
		m.Title = m.Subject + " works again"
		m.Text = "attempt " + strconv.Itoa(e.Attempt) + " succeeded" + prefixed(" after ", textfmt.RoundedDuration(e.Elapsed))
	default:
		return false
	}
	return true
}

// gaveUp tells of the end of a call or a step, or of a whole durable run, which
// then waits among the dead letters.
func (m *Message) gaveUp(e retry.Event) {
	m.Event, m.Reason = GaveUp, e.Reason.String()
	m.Title = m.Subject + " gave up"
	if e.Run != "" && e.Step == "" {
		m.Event = DeadLetter
	}
	head := ""
	if e.Attempt > 0 {
		head = textfmt.Plural(e.Attempt, "attempt") + prefixed(" in ", textfmt.RoundedDuration(e.Elapsed))
	}
	if e.Reason != retry.StopAttempts && e.Reason != 0 || head == "" {
		head = strings.TrimPrefix(head+"; "+e.Reason.Error(), "; ")
	}
	m.Text = strings.Trim(head+prefixed("; last: ", m.Line), "; ")
}

// ScreenLimit is a limit on the screen of an interactive session, which is still open.
type ScreenLimit struct {
	Line  string    // that says so
	Until time.Time // zero if no end is stated
	At    time.Time // when it appeared
	Typed time.Time // when the prompt to continue was typed; zero if it was not
	Final bool      // no wait helps
}

// ComposeLimit makes the message about a limit on the screen of a session: that the limit
// appeared, or that the prompt to continue was typed. The same limit always makes the same
// message. The event is of the session.
func ComposeLimit(e retry.Event, l ScreenLimit, p Place) Message {
	what := "limit on the screen"
	e.Err, e.Attempt, e.Attempts = errors.New(l.Line), 0, 0
	m := composed(e, p)
	if !l.Typed.IsZero() {
		what = "continued on the screen"
		m.Event, m.Title = Resumed, m.Subject+" goes on"
		m.Text = lines("the prompt to continue was typed at its terminal", prefixed("it said: ", m.Line))
	} else {
		m.Event, m.Title = Waiting, m.Subject+" has reached a limit"
		end := "no end is stated"
		switch {
		case l.Final:
			end = "no wait helps"
		case !l.Until.IsZero():
			end, m.Until, m.Wait = "until "+clock(l.Until, e.Time, p.Zone), l.Until, max(l.Until.Sub(e.Time), 0)
		}
		m.Text = lines(end+"; the session is interactive and still open", prefixed("it says: ", m.Line))
	}
	m.ID = identity(retry.Event{Kind: e.Kind, Time: l.At, Name: e.Name, Run: e.Run, Step: e.Step, Note: what})
	return m
}

// TestMessage is the message with which a notifier is tried.
func TestMessage(name string, now time.Time, p Place) Message {
	e := retry.Event{Time: now, Name: name, Note: "test"}
	return Message{
		ID: identity(e), Event: Test, Subject: name, Title: "tideover: a test of " + name,
		Text: "If you can read this, the notifier works.", Time: now, Host: p.Host, URL: p.Page,
	}
}

// Wants reports whether a notifier with these triggers sends the message. A test is
// always sent. A wait whose end is not known is longer than any other.
func Wants(on []Trigger, m Message) bool {
	return m.Event == Test || slices.ContainsFunc(on, func(t Trigger) bool {
		endless := m.Event == Waiting && m.Wait == 0 && m.Until.IsZero()
		return t.Event == string(m.Event) && (t.Over == 0 || m.Wait > t.Over || endless)
	})
}

// identity returns the message's id. It is made of the event alone, so that the
// same event, read twice from a log, is the same message.
func identity(e retry.Event) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d\x00%d\x00%s\x00%d\x00%d\x00%s\x00%s\x00%s", e.Kind, e.Time.UnixNano(), e.Name, e.Call, e.Attempt, e.Run, e.Step, e.Note)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// clippedLine returns the text on one line, of so many characters at most.
func clippedLine(s string, n int) string {
	return textfmt.Clip(plainly(strings.ToValidUTF8(s, "\uFFFD")), n)
}

func lines(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "\n")
}

// prefixed puts the prefix before a text that is there.
func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// count says how far the attempts are.
func count(e retry.Event) string {
	switch {
	case e.Attempt == 0:
		return ""
	case e.Attempts > 0:
		return fmt.Sprintf("attempt %d of %d failed", e.Attempt, e.Attempts)
	}
	return fmt.Sprintf("attempt %d failed", e.Attempt)
}

// by says who set a wait, if it was not the policy.
func by(s retry.Source) string {
	switch s {
	case retry.ByServer:
		return ", as the server asked"
	case retry.ByHuman:
		return ", set by hand"
	default:
		return ""
	}
}

// clock writes a time of day, and the day if it is another one.
func clock(t, now time.Time, zone *time.Location) string {
	t, now = t.In(cmp.Or(zone, time.Local)), now.In(cmp.Or(zone, time.Local))
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04 MST")
	}
	return t.Format("Mon 2 Jan 15:04 MST")
}
