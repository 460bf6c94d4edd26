package notify

import (
	"fmt"
	"strconv"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// Event is the kind of event that a message is about.
type Event string

// The events. All but Test are words of a notifier's `on`.
const (
	GaveUp       Event = "gave-up"       // a command, a step or a session gave up
	DeadLetter   Event = "dead-letter"   // a run gave up, and waits for an operator to repair it
	Waiting      Event = "waiting"       // a wait began; `waiting>30m` selects waits that are longer than 30 minutes
	Resumed      Event = "resumed"       // an operator resumed a run, a schedule or a workflow, or ended a wait, or a session resumed after a wait
	BreakerOpen  Event = "breaker-open"  // a breaker opened: no calls are made for a while
	Recovered    Event = "recovered"     // work succeeded after failures, a breaker closed, or a retry storm is over
	Succeeded    Event = "succeeded"     // a command of `exec`, a run or a session succeeded, with or without failures before; not its single steps
	StartRefused Event = "start-refused" // a scheduled start was rejected: its input could not be created, or its workflow is not known
	Asked        Event = "asked"         // a run asks a question and waits for an answer
	Storm        Event = "storm"         // retries multiply the load of a workflow or a provider
	Test         Event = "test"          // `tideover notify test` sends this message; it can't be a word of `on`
)

// Message is a message to a person. Webhooks and commands get it as JSON, so fields may be
// added but not changed.
type Message struct {
	ID       string        `json:"id"` // the same for the same event
	Event    Event         `json:"event"`
	Subject  string        `json:"subject"` // the session, workflow or command
	Title    string        `json:"title"`
	Text     string        `json:"text"` // one to three lines
	Run      string        `json:"run,omitempty"`
	Step     string        `json:"step,omitempty"`
	Attempt  int           `json:"attempt,omitempty"`  // number of the last attempt
	Attempts int           `json:"attempts,omitempty"` // most attempts that are allowed; -1 for no limit
	Reason   string        `json:"reason,omitempty"`   // why there is no further attempt
	Line     string        `json:"line,omitempty"`     // the last error or line of output
	Wait     time.Duration `json:"wait_ns,omitempty"`
	Until    time.Time     `json:"until,omitzero"` // when the wait ends
	URL      string        `json:"url,omitempty"`  // page of the run
	Time     time.Time     `json:"time"`
	Host     string        `json:"host,omitempty"`

	// succeeded is true if the subject as a whole succeeded after failures: the event is then
	// Recovered, and a notifier on Succeeded sends the message, too.
	succeeded bool

	// Delivered has the email addresses that already got the message. Send skips them, and
	// [SendError.Progress] adds to them.
	Delivered []string `json:"delivered,omitempty"`

	// Note is the error of a template of the notifier that could not be rendered; the
	// message is then sent without the template.
	Note string `json:"note,omitempty"`
}

// Fields returns the data for the templates of a notifier. Times are texts in RFC 3339;
// unknown values are empty. Each field always has the same type, so that a template that
// renders with one message renders with all.
func (m Message) Fields() map[string]any {
	return map[string]any{
		"id": m.ID, "event": string(m.Event), "subject": m.Subject, "title": m.Title, "text": m.Text, "run": m.Run, "step": m.Step,
		"attempt": m.Attempt, "attempts": m.Attempts, "reason": m.Reason, "line": m.Line,
		"until": stamp(m.Until), "url": m.URL, "time": stamp(m.Time), "host": m.Host,
	}
}

// without returns the message with secrets masked, the known ones and those of known forms; the last
// error may contain one.
func (m Message) without(r *secret.Redactor) Message {
	for _, s := range []*string{&m.Subject, &m.Title, &m.Text, &m.Reason, &m.Line} {
		*s = strictyaml.MaskKnown(r.String(*s))
	}
	return m
}

// stamp returns a time in RFC 3339, "" for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339)
}

// environment returns the message as environment variables of a command. TIDEOVER_ATTEMPTS
// is "unlimited" if there is no limit, as for the commands of `tideover exec`.
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

// more returns the message with a line that says how many messages (n) were held back since
// the given time. If n is 0, the message is unchanged.
func (m Message) more(n int, since time.Time) Message {
	if n > 0 {
		m.Text += "\nand " + strconv.Itoa(n) + " more since " + since.Format("15:04")
	}
	return m
}
