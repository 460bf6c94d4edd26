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

	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// maxLine is the most characters of Message.Line and Message.Subject.
const maxLine = 300

// maxQuestion is the most characters of a question in Message.Text.
const maxQuestion = 1000

// Place describes the process that sends messages.
type Place struct {
	Host string         // host name of this machine
	Page string         // URL of the web page, such as http://127.0.0.1:7878; "" means none
	Zone *time.Location // time zone of times in texts; nil means the machine's
}

// Compose returns the message about an event. It returns false for events that have no
// message.
func Compose(e retry.Event, p Place) (Message, bool) {
	return compose(e, p, "as the server asked")
}

// ComposeSession is Compose for events of a session, whose waits are stated by an assistant.
func ComposeSession(e retry.Event, p Place) (Message, bool) {
	return compose(e, p, "as the assistant stated")
}

// compose is Compose; byServer describes a wait that the policy did not set.
func compose(e retry.Event, p Place, byServer string) (Message, bool) {
	m := composed(e, p)
	if !m.describe(e, p.Zone, byServer) {
		return Message{}, false
	}
	if e.Step != "" && e.Step != e.Name && e.Kind != retry.Asked {
		m.Text = "step " + e.Step + ": " + m.Text
	}
	return m, true
}

// composed returns the message about an event, without title and text.
func composed(e retry.Event, p Place) Message {
	m := Message{
		Subject: clippedLine(cmp.Or(e.Name, e.Run, "tideover"), maxLine), Run: e.Run, Step: e.Step, Attempt: e.Attempt, Attempts: e.Attempts,
		Time: e.Time, Host: p.Host, ID: identity(e),
	}
	if last := e.Err; last != nil {
		if whole, ok := errors.AsType[*retry.Error](last); ok && whole.Last != nil {
			last = whole.Last // the message has the attempts and the reason in other fields
		}
		m.Line = clippedLine(last.Error(), maxLine)
	}
	if p.Page != "" && e.Run != "" {
		m.URL = strings.TrimSuffix(p.Page, "/") + "/runs/" + url.PathEscape(e.Run)
	}
	return m
}

// describe sets the event, the title and the text of the message. It returns false for
// events that have no message.
func (m *Message) describe(e retry.Event, zone *time.Location, byServer string) bool {
	switch e.Kind {
	case retry.GaveUp:
		m.gaveUp(e)
	case retry.Waiting:
		m.Event, m.Wait, m.Until = Waiting, e.Delay, e.Until
		m.Title = m.Subject + " waits " + textfmt.RoundedDuration(e.Delay)
		m.Text = lines("until "+clock(e.Until, e.Time, zone)+by(e.By, byServer), count(e), prefixed("last: ", m.Line))
	case retry.Resumed:
		m.Event = Resumed
		m.Title = m.Subject + " continues"
		m.Text = cmp.Or(prefixed("resumed by ", e.Note), "resumed")
		if control.IsAboutNoRun(&e) {
			m.Text = "resumed: " + e.Note
		}
	case retry.BreakerOpened:
		m.Event, m.Wait = BreakerOpen, e.Delay
		m.Title = m.Subject + " is failing"
		m.Text = "the breaker is open: no requests are sent" + prefixed(" for ", textfmt.RoundedDuration(e.Delay))
	case retry.BreakerClosed:
		m.Event = Recovered
		m.Title, m.Text = m.Subject+" works again", "the breaker is closed"
	case retry.StormBegan:
		m.Event = Storm
		m.Title, m.Text = m.Subject+": retry storm", e.Note
	case retry.StormEnded: // not the event Storm: the gate would hold the message back as a duplicate
		m.Event = Recovered
		m.Title, m.Text = m.Subject+": the retry storm is over", e.Note
	case retry.StartRefused:
		m.Event = StartRefused
		m.Title = m.Subject + ": a scheduled start was refused"
		m.Text = lines(e.Note, m.Line)
	case retry.Asked:
		m.Event, m.Until = Asked, e.Until
		m.Title, m.Text = m.Subject+" asks a question", clippedLine(e.Note, maxQuestion)
		if !e.Until.IsZero() {
			m.Text = lines(m.Text, "to be answered until "+clock(e.Until, e.Time, zone))
		}
	case retry.Succeeded:
		whole := e.Step == "" // not a step of a run
		if e.Attempt < 2 && whole {
			m.Event = Succeeded
			m.Title = m.Subject + " succeeded"
			m.Text = cmp.Or(prefixed("it took ", textfmt.RoundedDuration(e.Elapsed)), "it has ended")
			return true
		}
		if e.Attempt < 2 {
			return false
		}
		m.Event, m.succeeded = Recovered, whole
		m.Title = m.Subject + " works again"
		m.Text = "attempt " + strconv.Itoa(e.Attempt) + " succeeded" + prefixed(" after ", textfmt.RoundedDuration(e.Elapsed))
	default:
		return false
	}
	return true
}

// gaveUp describes a call or a step that gave up, or a whole durable run, which is then a
// dead letter.
func (m *Message) gaveUp(e retry.Event) {
	m.Event, m.Reason = GaveUp, e.Reason.String()
	m.Title = m.Subject + " gave up"
	if e.Run != "" && e.Step == "" {
		m.Event = DeadLetter
	}
	head := ""
	if e.Attempt > 0 {
		head = textfmt.Plural(e.Attempt, "attempt") + prefixed(" in ", textfmt.ElapsedDuration(e.Elapsed))
	}
	if e.Reason != retry.StopAttempts && e.Reason != 0 || head == "" {
		head = strings.TrimPrefix(head+"; "+e.Reason.Error(), "; ")
	}
	m.Text = strings.Trim(head+prefixed("; last: ", m.Line), "; ")
}

// ScreenLimit is a limit that an interactive session shows on its screen. The session is
// still open.
type ScreenLimit struct {
	Line  string    // line on the screen that states the limit
	Until time.Time // end of the limit; zero if none is stated
	At    time.Time // when the line appeared
	Typed time.Time // when the prompt to continue was typed; zero if it was not
	Final bool      // waiting does not help
	Asks  bool      // the session asks the user to choose what to do
}

// ComposeLimit returns the message that a limit has appeared on the screen of a session or,
// if l.Typed is set, that the prompt to continue was typed. For the same limit, each of
// these two messages always has the same ID. e is the event that reported the limit; it has
// the time and the name of the session.
func ComposeLimit(e retry.Event, l ScreenLimit, p Place) Message {
	what := "limit on the screen"
	e.Err, e.Attempt, e.Attempts = errors.New(l.Line), 0, 0
	m := composed(e, p)
	if !l.Typed.IsZero() {
		what = "continued on the screen"
		m.Event, m.Title = Resumed, m.Subject+" continues"
		m.Text = lines("the prompt to continue was typed at its terminal", prefixed("it said: ", m.Line))
	} else {
		m.Event, m.Title = Waiting, m.Subject+" has reached a limit"
		end := "no end is stated"
		switch {
		case l.Final:
			end = "waiting does not help"
		case !l.Until.IsZero():
			end, m.Until, m.Wait = "until "+clock(l.Until, e.Time, p.Zone), l.Until, max(l.Until.Sub(e.Time), 0)
		}
		state := "the session is interactive and still open"
		if l.Asks {
			what, state = what+", asks", "the session asks what to do: choose at its terminal"
		}
		m.Text = lines(end+"; "+state, prefixed("it says: ", m.Line))
	}
	m.ID = identity(retry.Event{Kind: e.Kind, Time: l.At, Name: e.Name, Run: e.Run, Step: e.Step, Note: what})
	return m
}

// TestMessage returns a message to test the notifier name with.
func TestMessage(name string, now time.Time, p Place) Message {
	e := retry.Event{Time: now, Name: name, Note: "test"}
	return Message{
		ID: identity(e), Event: Test, Subject: name, Title: "tideover: a test of " + name,
		Text: "If you can read this, the notifier works.", Time: now, Host: p.Host, URL: p.Page,
	}
}

// Wants reports whether a notifier with these triggers sends the message. A test message
// is always sent. A wait without a known end counts as longer than any limit.
func Wants(on []Trigger, m Message) bool {
	return m.Event == Test || slices.ContainsFunc(on, func(t Trigger) bool {
		endless := m.Event == Waiting && m.Wait == 0 && m.Until.IsZero()
		if t.Event == string(Succeeded) && m.succeeded {
			return true
		}
		return t.Event == string(m.Event) && (t.Over == 0 || m.Wait > t.Over || endless)
	})
}

// identity returns the id of the message about an event. It depends on the event alone, so
// that an event that is read twice from a log has the same message.
func identity(e retry.Event) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d\x00%d\x00%s\x00%d\x00%d\x00%s\x00%s\x00%s", e.Kind, e.Time.UnixNano(), e.Name, e.Call, e.Attempt, e.Run, e.Step, e.Note)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// clippedLine returns the text on one line, clipped to n characters.
func clippedLine(s string, n int) string {
	return textfmt.Clip(plainly(strings.ToValidUTF8(s, "\uFFFD")), n)
}

func lines(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "\n")
}

// prefixed returns the prefix and s, or "" if s is empty.
func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// count returns a text such as "attempt 2 of 5 failed"; "" if the event has no attempt. The number may
// exceed the limit, because attempts keep their numbers when a run is retried, and lost attempts have
// numbers too: then the text has no limit.
func count(e retry.Event) string {
	switch {
	case e.Attempt == 0:
		return ""
	case e.Attempts >= e.Attempt:
		return fmt.Sprintf("attempt %d of %d failed", e.Attempt, e.Attempts)
	}
	return fmt.Sprintf("attempt %d failed", e.Attempt)
}

// by returns a text about who set a wait: byServer or a person; "" for the policy.
func by(s retry.Source, byServer string) string {
	switch s {
	case retry.ByServer:
		return ", " + byServer
	case retry.ByHuman:
		return ", set by hand"
	default:
		return ""
	}
}

// clock returns the time of day, with the date if it is not the day of now.
func clock(t, now time.Time, zone *time.Location) string {
	t, now = t.In(cmp.Or(zone, time.Local)), now.In(cmp.Or(zone, time.Local))
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04 MST")
	}
	return t.Format("Mon 2 Jan 15:04 MST")
}
