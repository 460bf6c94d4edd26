package steps

import (
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/retry"
)

// Workflow is a set of steps. A step starts when all steps that it needs have succeeded.
type Workflow struct {
	Name        string
	Description string
	Schedule    *Schedule     // nil means that runs do not start automatically
	Timeout     time.Duration // of a whole run; 0 means none
	Concurrency int           // most runs at the same time; 0 means no limit except the server's
	Steps       []*Step       // in the order of the file
	OnGiveUp    *Step         // runs once when a run gives up; nil for none
	Notify      []string      // names of notifiers that get a message when a run gives up; not together with OnGiveUp

	DefaultInput any // JSON value whose texts are *template.Text; nil means none
}

// MaxOutput is the largest Step.OutputLimit, in bytes. The results of all steps of a run
// are kept in memory and in the log.
const MaxOutput = 192 << 10

// Step is one step of a workflow: a command, an HTTP request, or one of the other kinds of [Form].
// It is stored as JSON with its run; see [Step.MarshalJSON]. A step that is decoded again renders
// the same.
type Step struct {
	ID            string
	Needs         []string // ids of steps that must succeed before this one starts
	Policy        retry.Policy
	Dir           string        // working folder of a command, absolute
	Inherit       guard.Inherit // variables of the server that a command gets, in addition to server.env-inherit
	RetryExit     exitcode.Set  // exit codes that are retried; nil means all but 0
	PermanentExit exitcode.Set  // exit codes that are never retried
	OutputLimit   int64         // most bytes that are kept of stdout, and of stderr
	Concurrency   int           // most attempts of this step at the same time, in all runs together; 0 means no limit
	MaxLost       int           // lost attempts in a row that are repeated; not part of the JSON, because the engine stores it
	Account       string        // account whose limit a command shares with others; "" for none
	Method        string        // of a request; "" for a command
	Provider      string        // that a request is sent to; "" means that the URL has the host
	Expect        exitcode.Set  // statuses of a response that are a success; nil means 200-299

	Form // what makes a workflow a flow; zero in a workflow of plain steps

	Texts  Texts
	After  []string // sorted ids of all steps that have ended before: Needs and, recursively, their Needs
	GiveUp bool     // the step is the on-give-up of a workflow
	Shapes Shapes   // of the on-give-up of a flow: which results the steps of the flow have; nil for others
	Base   string   // folder that relative paths in references start at
}

// Texts are the templates of a step, which are rendered for each attempt.
type Texts struct {
	Run     []*template.Text     // the command and its arguments
	Env     []template.NamedText // sorted by name
	Stdin   *template.Text
	URL     *template.Text
	Headers []template.NamedText // sorted by name
	Body    *template.Text
}

// Kind returns the kind of a step: the name of the key that says what it does. It is "" if the step
// does nothing.
func (s *Step) Kind() string {
	switch {
	case len(s.Texts.Run) > 0:
		return "run"
	case s.Method != "" && s.Texts.URL != nil:
		return "http"
	case s.Sleep != nil:
		return "sleep"
	case s.WaitFor != nil:
		return "wait-for"
	case s.Approve != nil:
		return "approve"
	case s.Workflow != "":
		return "workflow"
	}
	return ""
}

// isAction reports whether the step is a command or a request.
func (s *Step) isAction() bool { return len(s.Texts.Run) > 0 || s.Method != "" }

// checkKind returns an error if a stored step has no kind, or more than one.
func (s *Step) checkKind() error {
	n := 0
	for _, is := range []bool{
		len(s.Texts.Run) > 0, s.Texts.URL != nil && s.Method != "", s.Sleep != nil, s.WaitFor != nil, s.Approve != nil, s.Workflow != "",
	} {
		if is {
			n++
		}
	}
	if n != 1 {
		return errors.New("it is neither a command nor a request nor another known kind of step")
	}
	return nil
}

// ResultFields returns the fields of the step's result, for templates. It is nil for a step whose
// result is a list.
func (s *Step) ResultFields() []string { return s.shape().fields() }

// shape returns how the result of the step looks.
func (s *Step) shape() *shape {
	r := &shape{id: s.ID, kind: s.Kind(), isList: s.ForEach != nil, isConditional: s.When != nil}
	if s.WaitFor != nil {
		r.event = s.WaitFor.Event
	}
	if s.Approve != nil {
		r.choice = s.Approve.Default
	}
	return r
}

// IsHTTP reports whether the step is a request and not a command.
func (s *Step) IsHTTP() bool { return s.Method != "" }

// Retryable reports whether a command that ended with the exit code may be retried.
func (s *Step) Retryable(exit int) bool {
	return !s.PermanentExit.Has(exit) && (s.RetryExit == nil || s.RetryExit.Has(exit))
}

// Expected reports whether a response with the status is a success.
func (s *Step) Expected(status int) bool {
	if s.Expect == nil {
		return status >= 200 && status <= 299
	}
	return s.Expect.Has(status)
}

// TargetProblem returns what is wrong with the target of a request, or "". The target is
// a URL, or a path if the step has a provider. The result does not quote the target,
// which may contain a secret.
func (s *Step) TargetProblem(target string) string {
	if s.Provider != "" {
		return pathProblem(target)
	}
	return URLProblem(target)
}

// pathProblem returns what is wrong with a path below the base URL of a provider, or "".
func pathProblem(s string) string {
	if msg := PathStartProblem(s); msg != "" {
		return msg
	}
	u, err := url.Parse(s)
	if err != nil {
		return "is not a path"
	}
	if template.HasDots(u.Path) {
		return `has "." or ".." as a part of the path, which could lead out of the provider's base-url`
	}
	return ""
}

// PathStartProblem returns what is wrong with the start of a path that may have templates,
// or "". The first slash must not come from a template, so that a reader of the file sees
// that it is a path.
func PathStartProblem(s string) string {
	switch {
	case fullURL.MatchString(s):
		return "is a whole URL; with provider, want a path below the provider's base-url, such as /v1/models"
	case !strings.HasPrefix(s, "/"):
		return "does not start with /; with provider, want a path below the provider's base-url, such as /v1/models"
	case strings.HasPrefix(s, "//"):
		return "starts with //, which would name another host; with provider, want a path below the provider's base-url, such as /v1/models"
	}
	return ""
}

var fullURL = lazyregexp.New(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// URLProblem returns what is wrong with a URL, or "". The result does not quote the URL,
// which may contain a secret.
func URLProblem(s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "is not a URL that starts with http:// or https://"
	case u.Hostname() == "":
		return "is a URL without a host"
	}
	return ""
}
