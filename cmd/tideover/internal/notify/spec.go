package notify

import (
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// The kinds of notifiers.
const (
	KindNtfy    = "ntfy"
	KindSlack   = "slack"
	KindWebhook = "webhook"
	KindEmail   = "email"
	KindRun     = "run"
)

// Spec is the configuration of a notifier: which events it sends, to whom and how.
type Spec struct {
	Name    string
	Kind    string        // KindNtfy or another Kind constant; it determines which of the fields below are set
	On      []Trigger     // events that it sends messages about
	AtMost  Rate          // zero means no limit
	Dedupe  time.Duration // the same event of the same subject is sent once within this time; 0 sends all
	Timeout time.Duration // of one attempt
	Policy  retry.Policy  // when attempts to send are repeated

	URL      *template.SecretText // slack; webhook; ntfy, with the topic
	Token    *template.SecretText // ntfy: nil means none
	Priority string               // ntfy: empty means the server's default
	Tags     []string             // ntfy

	Method  string                 // webhook
	Headers []template.NamedSecret // webhook, sorted by name

	Email *Email

	Dir string                 // run: working folder, absolute
	Env []template.NamedSecret // run, sorted by name

	Inherit guard.Inherit // run: variables of the server that the command gets, in addition to server.env-inherit

	BodyText *template.Text   // webhook: nil means the message's JSON
	RunTexts []*template.Text // run: the command and its arguments
	Base     string           // folder that relative paths in references start at
}

// Email has the mail server, the sender and the recipients of a notifier.
type Email struct {
	To       []*mail.Address
	From     *mail.Address
	Server   string               // host:port
	Username *template.SecretText // nil means that there is no login
	Password *template.SecretText
	TLS      string // "starttls", "implicit" or "none"
}

// The fields of three sample messages: with all values, with the shortest values, and
// without values. [TryTemplate] renders templates with each.
var (
	fullMessage = map[string]any{
		"id": "5f0c3a", "event": "gave-up", "subject": "nightly", "title": "nightly gave up", "text": "5 attempts in 42m",
		"run": "01K9", "step": "fetch", "attempt": 5, "attempts": 5, "reason": "attempts", "line": "exit code 1",
		"until": "2026-01-02T15:04:05Z", "url": "http://127.0.0.1:7878/runs/01K9", "time": "2026-01-02T15:04:05Z", "host": "box",
	}
	emptyMessage = Message{}.Fields()
	shortMessage = map[string]any{
		"id": "5f0c3a", "event": "waiting", "subject": "s", "title": "t", "text": "t", "run": "1", "step": "s", "attempt": 1, "attempts": retry.Unlimited,
		"reason": "r", "line": "l", "until": "2026-01-02T15:04:05Z", "url": "u", "time": "2026-01-02T15:04:05Z", "host": "h",
	}
)

// TemplateFields are the fields that the templates of a notifier may use.
var TemplateFields = template.Fields{First: MessageFields(), Quotes: []string{"line", "text"}}

// TryTemplate renders a template of a notifier with sample messages and returns the first
// error. Relative paths in references start at dir.
func TryTemplate(t *template.Text, secrets secret.Resolver, dir string) error {
	for _, sample := range []map[string]any{fullMessage, shortMessage, emptyMessage} {
		if _, err := t.Render(&template.Scope{Root: sample, Secrets: secrets, Dir: dir}); err != nil {
			return err
		}
	}
	return nil
}

// messageVariables are the fields that the templates of a notifier may use, sorted.
var messageVariables = []template.Variable{
	{Name: "attempt", Doc: "Number of the last attempt; 0 if unknown."},
	{Name: "attempts", Doc: "Most attempts that are allowed; -1 for no limit."},
	{Name: "event", Doc: "The event, such as `gave-up`."},
	{Name: "host", Doc: "Name of the machine."},
	{Name: "id", Doc: "Id of the message; the same event has the same id."},
	{Name: "line", Doc: "The last error or line of output."},
	{Name: "reason", Doc: "Why there is no further attempt."},
	{Name: "run", Doc: "Id of the run."},
	{Name: "step", Doc: "Name of the step."},
	{Name: "subject", Doc: "The session, the workflow, the provider or the command."},
	{Name: "text", Doc: "The message in one to three lines."},
	{Name: "time", Doc: "Time of the event, in RFC 3339."},
	{Name: "title", Doc: "The message in one line."},
	{Name: "until", Doc: "Time at which the wait ends, in RFC 3339."},
	{Name: "url", Doc: "Page of the run."},
}

// MessageVariables returns the fields that the templates of a notifier may use, sorted.
func MessageVariables() []template.Variable { return messageVariables }

// MessageFields returns the names of [MessageVariables].
func MessageFields() []string { return template.Names(messageVariables) }

// Body renders the body of a webhook. ok is false if the notifier has no template for it.
func (n *Spec) Body(fields map[string]any, r secret.Resolver) (body secret.String, ok bool, err error) {
	if n.BodyText == nil {
		return body, false, nil
	}
	out, err := n.BodyText.Render(&template.Scope{Root: fields, Secrets: r, Dir: n.Base})
	if err != nil {
		err = fmt.Errorf("notify %q: body: %w", n.Name, err)
	}
	return secret.New(out), true, err
}

// Argv renders the command and its arguments. An argument that can't be rendered is empty;
// the error joins the errors of all these arguments. Argv returns the list in any case.
func (n *Spec) Argv(fields map[string]any) ([]string, error) {
	argv := make([]string, len(n.RunTexts))
	var errs []error
	for i, t := range n.RunTexts {
		out, err := t.Render(&template.Scope{Root: fields})
		if err != nil {
			errs = append(errs, fmt.Errorf("notify %q: run[%d]: %w", n.Name, i, err))
		}
		argv[i] = strings.ReplaceAll(out, "\x00", "")
	}
	return argv, errors.Join(errs...)
}

// TriggerEvents are the words of a notifier's `on`.
var TriggerEvents = []string{"gave-up", "waiting", "resumed", "breaker-open", "recovered", "dead-letter", "storm", "start-refused", "asked", "succeeded"}

// Trigger is one kind of event that a notifier sends messages about.
type Trigger struct {
	Event string        // such as gave-up
	Over  time.Duration // for the event waiting: only waits longer than this; 0 means all
}

// ParseTrigger parses an entry of `on`, such as gave-up or waiting>30m.
func ParseTrigger(s string) (Trigger, error) {
	word, length, long := strings.Cut(s, ">")
	t := Trigger{Event: strings.TrimSpace(word)}
	if !slices.Contains(TriggerEvents, t.Event) {
		if near := textfmt.Nearest(t.Event, TriggerEvents); near != "" {
			return Trigger{}, fmt.Errorf("%q is not an event; did you mean %q?", t.Event, near)
		}
		return Trigger{}, fmt.Errorf("%q is not an event; want %s", t.Event, strings.Join(TriggerEvents, ", "))
	}
	if !long {
		return t, nil
	}
	if t.Event != "waiting" {
		return Trigger{}, fmt.Errorf("%q: only waiting can have a duration, as in waiting>30m", s)
	}
	var err error
	if t.Over, err = retry.ParseDuration(strings.TrimSpace(length)); err != nil {
		return Trigger{}, err
	}
	if t.Over == 0 {
		return Trigger{}, fmt.Errorf("%q: the duration must be above zero; write only waiting to be notified of every wait", s)
	}
	return t, nil
}

// String returns the trigger in the form that [ParseTrigger] parses.
func (t Trigger) String() string {
	if t.Over == 0 {
		return t.Event
	}
	return t.Event + ">" + textfmt.CompactDuration(t.Over)
}

// MaxRate is the largest N of a [Rate].
const MaxRate = 1000

// Rate is a limit of N messages in any period of the length Per. The zero Rate means no
// limit.
type Rate struct {
	N   int
	Per time.Duration
}

var rateUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// ParseRate parses a rate such as 5/h.
func ParseRate(s string) (Rate, error) {
	count, unit, _ := strings.Cut(s, "/")
	per, ok := rateUnits[unit]
	n, err := strconv.ParseUint(count, 10, 31)
	switch {
	case !ok || err != nil:
		return Rate{}, fmt.Errorf("%q is not a rate such as 5/h; the units are s, m, h and d", s)
	case n == 0:
		return Rate{}, fmt.Errorf("%q would allow no messages; want at least 1", s)
	case n > MaxRate:
		return Rate{}, fmt.Errorf("%q is too much; want at most %d", s, MaxRate)
	}
	return Rate{N: int(n), Per: per}, nil
}

// String returns the rate in the form that [ParseRate] parses; "" for no limit.
func (r Rate) String() string {
	for unit, per := range rateUnits {
		if r.Per == per {
			return strconv.Itoa(r.N) + "/" + unit
		}
	}
	return ""
}
