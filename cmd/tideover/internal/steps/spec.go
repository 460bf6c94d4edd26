package steps

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/retry"
)

// Workflow is a set of steps that run by their needs.
type Workflow struct {
	Name        string
	Description string
	Schedule    *Schedule     // nil means it only runs when it is started
	Timeout     time.Duration // of a whole run; 0 means none
	Concurrency int           // runs at once; 0 means no limit but the server's
	Steps       []*Step       // in the order of the file
	OnGiveUp    *Step         // runs once when a run gives up; nil means nothing does
	Notify      []string      // names of notifiers that send a message when a run gives up, instead

	DefaultInput any // texts in it are *template.Text; nil means none
}

// Step returns the step with the id, nil if there is none.
func (w *Workflow) Step(id string) *Step {
	for _, s := range w.Steps {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// MaxOutput is the largest output limit, in bytes. Results are kept in memory and in the
// log, with those of all steps of a run.
const MaxOutput = 192 << 10

// Step is one step of a workflow: a command or an HTTP request. It is stored
// with the run that it is part of, as JSON, and renders the same when it is read
// back; see [Step.MarshalJSON].
type Step struct {
	ID            string
	Needs         []string // ids of steps that must have succeeded before
	Policy        retry.Policy
	Dir           string        // working folder of a command, absolute
	Inherit       guard.Inherit // variables of the server that a command gets, in addition to server.env-inherit
	RetryExit     exitcode.Set  // exit codes that are retried; nil means all but 0
	PermanentExit exitcode.Set  // exit codes that are never retried
	OutputLimit   int64         // bytes that are kept of stdout, and of stderr
	Concurrency   int           // attempts of this step at once, all runs together; 0 means no limit
	MaxLost       int           // lost attempts in a row that are made again; not stored with a run's step, the engine has it
	Account       string        // whose limit a command shares with others; empty for none
	Method        string        // of a request; empty for a command
	Provider      string        // that a request goes to; empty means that its URL has the host
	Expect        exitcode.Set  // statuses of a request that are a success; nil means 200-299

	Texts  Texts
	After  []string // steps that have ended before, sorted: Needs, and what they need
	GiveUp bool     // for runs that gave up
	Base   string   // where relative paths of references start
}

// Texts are the templates of a step, which are written out for each attempt.
type Texts struct {
	Run     []*template.Text     // the command and its arguments
	Env     []template.NamedText // sorted by name
	Stdin   *template.Text
	URL     *template.Text
	Headers []template.NamedText // sorted by name
	Body    *template.Text
}

// all returns all templates.
func (t *Texts) all() (list []*template.Text) {
	list = append(list, t.Run...)
	for _, e := range slices.Concat(t.Env, t.Headers) {
		list = append(list, e.Text)
	}
	list = append(list, t.Stdin, t.URL, t.Body)
	return slices.DeleteFunc(list, func(t *template.Text) bool { return t == nil })
}

// IsHTTP reports whether the step is a request and not a command.
func (s *Step) IsHTTP() bool { return s.Method != "" }

// Retryable reports whether a command that ended with the code may be tried
// again.
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

// TargetProblem returns what is wrong with the target of a request, or "": a URL, or a
// path below the provider. It does not quote the target, which may hold a secret.
func (s *Step) TargetProblem(target string) string {
	if s.Provider != "" {
		return pathProblem(target)
	}
	return URLProblem(target)
}

// pathProblem returns what is wrong with a path below a provider.
func pathProblem(s string) string {
	if msg := PathStartProblem(s); msg != "" {
		return msg
	}
	u, err := url.Parse(s)
	if err != nil {
		return "is not a path"
	}
	for part := range strings.FieldsFuncSeq(u.Path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == "." || part == ".." {
			return "is a path with dots, which could lead out of the provider"
		}
	}
	return ""
}

// PathStartProblem is the same for a path with templates. Its first slash must not come
// from a template, so that a reader of the file sees a path.
func PathStartProblem(s string) string {
	switch {
	case fullURL.MatchString(s):
		return "is a whole URL; with provider it is a path below it, such as /v1/models"
	case !strings.HasPrefix(s, "/"):
		return "does not start with /; with provider it is a path below it, such as /v1/models"
	case strings.HasPrefix(s, "//"):
		return "starts with //, as the name of another host does; with provider it is a path below it, such as /v1/models"
	}
	return ""
}

var fullURL = lazyregexp.New(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// URLProblem returns what is wrong with a URL, or "". It does not quote the URL, which may
// hold a secret.
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
