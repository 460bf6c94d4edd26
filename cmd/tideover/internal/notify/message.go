package notify

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// Event is the subject of a message.
type Event string

// The events. All but Test are words of a notifier's `on`.
const (
	GaveUp       Event = "gave-up"       // a call, a command or a step
	Waiting      Event = "waiting"       // until Message.Until
	Resumed      Event = "resumed"       // by hand
	BreakerOpen  Event = "breaker-open"  // nothing is tried for a while
	Recovered    Event = "recovered"     // it works again
	DeadLetter   Event = "dead-letter"   // a durable run gave up and waits for a person
	Storm        Event = "storm"         // retries multiply the load
	StartRefused Event = "start-refused" // a scheduled start was refused
	Test         Event = "test"          // a person tries the notifier
)

// Message is a message to a person. Webhooks and commands get its JSON: fields are only
// added.
type Message struct {
	ID       string        `json:"id"` // the same for the same event
	Event    Event         `json:"event"`
	Subject  string        `json:"subject"` // the session, workflow or command
	Title    string        `json:"title"`
	Text     string        `json:"text"` // one to three lines
	Run      string        `json:"run,omitempty"`
	Step     string        `json:"step,omitempty"`
	Attempt  int           `json:"attempt,omitempty"`  // the last one's number
	Attempts int           `json:"attempts,omitempty"` // how many there may be; -1 for no limit
	Reason   string        `json:"reason,omitempty"`   // why there is no further attempt
	Line     string        `json:"line,omitempty"`     // what was said last: an error, a line of output
	Wait     time.Duration `json:"wait_ns,omitempty"`
	Until    time.Time     `json:"until,omitzero"` // when the wait ends
	URL      string        `json:"url,omitempty"`  // of the page
	Time     time.Time     `json:"time"`
	Host     string        `json:"host,omitempty"`

	// Delivered has the addresses of a mail that need no further copy. Send leaves
	// them out, and [SendError.Progress] adds to them.
	Delivered []string `json:"delivered,omitempty"`

	// Note says what is wrong with the message itself: a template of the notifier
	// could not be written out, so that it came without it.
	Note string `json:"note,omitempty"`
}

// Fields returns the message as the templates of a notifier see it. Times are in
// RFC 3339, and what is not known is empty. Each field always has the same type, or
// a template that was tried with one message would fail with another.
func (m Message) Fields() map[string]any {
	return map[string]any{
		"id": m.ID, "event": string(m.Event), "subject": m.Subject, "title": m.Title, "text": m.Text, "run": m.Run, "step": m.Step,
		"attempt": m.Attempt, "attempts": m.Attempts, "reason": m.Reason, "line": m.Line,
		"until": stamp(m.Until), "url": m.URL, "time": stamp(m.Time), "host": m.Host,
	}
}

// without returns the message without secrets, should what was said last have one.
func (m Message) without(r *secret.Redactor) Message {
	for _, s := range []*string{&m.Subject, &m.Title, &m.Text, &m.Reason, &m.Line} {
		*s = r.String(*s)
	}
	return m
}

// stamp writes a time, or nothing for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// environment returns the message as variables of a command. Attempts without limit
// are "unlimited" there, as for the commands of exec.
func (m Message) environment() (pairs []string) {
	f := m.Fields()
	if f["note"] = m.Note; m.Attempts == retry.Unlimited {
		f["attempts"] = "unlimited"
	}
	for _, v := range []struct{ name, field string }{
		{"MESSAGE_ID", "id"}, {"EVENT", "event"}, {"SUBJECT", "subject"}, {"TITLE", "title"}, {"TEXT", "text"},
		{"RUN_ID", "run"}, {"STEP", "step"}, {"ATTEMPT", "attempt"}, {"ATTEMPTS", "attempts"}, {"REASON", "reason"},
		{"LINE", "line"}, {"UNTIL", "until"}, {"URL", "url"}, {"TIME", "time"}, {"HOST", "host"}, {"NOTE", "note"},
	} {
		pairs = append(pairs, "TIDEOVER_"+v.name+"="+fmt.Sprint(f[v.field]))
	}
	return pairs
}

// more returns the message with what was held back since the last one.
func (m Message) more(n int, since time.Time) Message {
	if n > 0 {
		m.Text += "\nand " + strconv.Itoa(n) + " more since " + since.Format("15:04")
	}
	return m
}
