package session

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// DefaultPolicy is the policy of a session that has none. A stated reset is
// believed up to eight days ahead, which weekly limits need.
const DefaultPolicy = "daemon server-wait=8d server-slack=90s reset-after=10m"

// DefaultWindows is how many stated resets a session may wait for.
const DefaultWindows = 10

// Refused are the keys of a policy that a session can't honour.
var Refused = []string{"hedge", "budget"}

// Prefix is what the name of a session's workflow begins with.
const Prefix = "session."

// stepName is the one step of a session's workflow.
const stepName = "session"

// Spec is a session as it was written. It is stored with its run.
type Spec struct {
	Name      string            `json:"name"`
	Dir       string            `json:"dir,omitempty"`        // where the commands run; "" means the folder of the process
	Start     []string          `json:"start"`                // templates
	Resume    []string          `json:"resume,omitempty"`     // templates; without them the start command is run again, unless NoResume is set
	ResumeAny bool              `json:"resume_any,omitempty"` // the resume command finds the session itself
	Restart   bool              `json:"restart,omitempty"`    // the start command is run again instead of a resume command
	Env       map[string]string `json:"env,omitempty"`        // beside the environment of the process
	Pack      string            `json:"pack"`                 // a built-in one, or that of Rules
	Rules     *detect.Spec      `json:"rules,omitempty"`      // a pack of the user's own
	On        map[string]Action `json:"on,omitempty"`         // what follows a stop, by its reason
	Quiet     *Hours            `json:"quiet,omitempty"`      // when nothing is begun
	PauseAt   float64           `json:"pause_at,omitempty"`   // percent of the quota at which nothing is begun until its reset; 0 means never

	// These are filled in by [Spec.PlanResume].
	NoResume     string   `json:"no_resume,omitempty"`     // why the session can't be resumed; "" if it can, or if the start command may be run again
	ResumeLatest []string `json:"resume_latest,omitempty"` // templates; resume the latest session of the folder, when the id is not known
	SessionID    string   `json:"session_id,omitempty"`    // the id that the start command names itself

	Stdin string `json:"stdin,omitempty"` // what the start command reads; resume commands read nothing

	// Fallback are the assistants that work in the folder while a stated limit lasts longer than FallbackAfter, one after
	// the other; none unless it is set. FallbackAfter 0 means DefaultFallbackAfter. FallbackPrompt is the template of
	// their prompt; "" means the usual one.
	Fallback       []Fallback    `json:"fallback,omitempty"`
	FallbackAfter  time.Duration `json:"fallback_after_ns,omitempty"`
	FallbackPrompt string        `json:"fallback_prompt,omitempty"`

	stdinPrompt bool     // the prompt is read from standard input
	typed       []string // the start command as it was given

	// These are set for an assistant that another session was handed over to.
	handedOver bool
	prompt     string // of its start command
	idSeed     string // its session's id follows from it, instead of the run

	// Account is the account whose limit the session shares with others: "" means that of the tool, account.None that
	// it has none. Those that were held go on within AccountSpread; 0 means account.DefaultSpread.
	Account       string        `json:"account,omitempty"`
	AccountSpread time.Duration `json:"account_spread_ns,omitempty"`

	PolicyText string `json:"policy,omitempty"` // the policy as it is stored for the runner; Workflow sets it

	Policy   retry.Policy  `json:"-"`
	Windows  int           `json:"-"` // 0 means DefaultWindows
	Deadline time.Duration `json:"-"` // of the whole session; 0 means none
}

// Action is what follows a stop.
type Action struct {
	Do       string `json:"do"`                 // one of Actions
	Attempts int    `json:"attempts,omitempty"` // of this reason in a row; 0 means as many as the policy grants
}

// What follows a stop.
const (
	DoResume = "resume"  // when the stated time has come, or else by the policy
	DoStart  = "start"   // the same, with a session that is new
	DoStop   = "stop"    // the session is over, and that is no failure
	DoGiveUp = "give-up" // the session is over, and has failed
)

// Actions are the words for what follows a stop. To wait is to resume after the
// wait.
var Actions = []string{DoResume, "wait", DoStart, DoStop, DoGiveUp}

// defaults are the actions of the reasons that may have others.
var defaults = map[string]Action{
	detect.RateLimit.String():   {Do: DoResume},
	detect.Overloaded.String():  {Do: DoResume},
	detect.ContextFull.String(): {Do: DoStart},
	detect.UserExit.String():    {Do: DoStop},
	detect.Crashed.String():     {Do: DoResume},
	detect.Unknown.String():     {Do: DoResume},
}

// Reasons returns the reasons for which an action can be set.
func Reasons() []string { return slices.Sorted(maps.Keys(defaults)) }

// ParseAction reads the word for an action.
func ParseAction(word string) (Action, error) {
	if !slices.Contains(Actions, word) {
		return Action{}, fmt.Errorf("%q is no action; want %s", word, strings.Join(Actions, ", "))
	}
	if word == "wait" {
		word = DoResume
	}
	return Action{Do: word}, nil
}

// FieldError is what is wrong with a field of a Spec.
type FieldError struct {
	Field string // as in the file
	Err   error
}

// Error names the field.
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *FieldError) Unwrap() error { return e.Err }

// Fill gives the policy what a session needs and other runners don't: a stated
// reset may be days ahead, and is waited for a little longer than stated.
func (s *Spec) Fill() {
	usual, err := retry.Parse(DefaultPolicy)
	if err != nil {
		panic(err) // a test reads it
	}
	s.Policy.ServerWait = cmp.Or(s.Policy.ServerWait, usual.ServerWait)
	s.Policy.ServerSlack = cmp.Or(s.Policy.ServerSlack, usual.ServerSlack)
	s.Policy.ResetAfter = cmp.Or(s.Policy.ResetAfter, usual.ResetAfter)
}

// Validate says everything that is wrong but the name, as joined [*FieldError]
// values.
func (s *Spec) Validate() error {
	var errs []error
	fail := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{field, fmt.Errorf(format, args...)})
	}
	if len(s.Start) == 0 || s.Start[0] == "" {
		fail("start", "no command")
	}
	if s.Dir != "" && !filepath.IsAbs(s.Dir) {
		fail("dir", "%q is not an absolute path", s.Dir)
	}
	if _, err := s.pack(); err != nil {
		fail("detect", "%w", err)
	}
	if s.Restart && len(s.Resume) > 0 {
		fail("restart", "it runs the start command again, but a resume command is given; want one of the two")
	}
	for field, argv := range map[string][]string{"start": s.Start, "resume": slices.Concat(s.Resume, s.ResumeLatest)} {
		if _, err := render(argv, sample); err != nil {
			fail(field, "%w", err)
		}
	}
	s.checkResume(fail)
	s.checkPauseAt(fail)
	s.checkFallback(fail)
	for reason, a := range s.On {
		if _, ok := defaults[reason]; !ok {
			fail("on", "%q is no reason that an action can be set for; want %s", reason, strings.Join(Reasons(), ", "))
		}
		if a.Attempts < 0 {
			fail("on", "%s: %d attempts", reason, a.Attempts)
		}
	}
	if err := errors.Join(s.Policy.Validate(), s.Policy.Refuse("session", Refused...)); err != nil {
		fail("policy", "%w", err)
	}
	if s.Windows < 0 {
		fail("windows", "%d is negative", s.Windows)
	}
	if s.Deadline < 0 {
		fail("deadline", "%v is negative", s.Deadline)
	}
	if s.Account != "" {
		if err := account.CheckName(s.Account); err != nil {
			fail("account", "%w", err)
		}
	}
	if s.AccountSpread < 0 {
		fail("account-spread", "%v is negative", s.AccountSpread)
	}
	return errors.Join(errs...)
}

// checkResume says whether the resume command can mean the same session.
func (s *Spec) checkResume(fail func(field, format string, args ...any)) {
	if len(s.Resume) == 0 {
		return
	}
	if s.Resume[0] == "" {
		fail("resume", "no command")
	}
	switch uses := mentions(s.Resume, "Session"); {
	case uses && !s.knowsID() && !s.readsID():
		fail("start", "it has no {{.Session}}, so the session would not have the id that resume asks for; "+
			"pass it on, as in --session-id {{.Session}}")
	case !uses && !s.ResumeAny:
		fail("resume", "it has no {{.Session}}, so it might resume another session; "+
			"add it, or say resume-any if the command finds the right one by itself")
	}
}

// knowsID reports whether the id is known before the session begins.
func (s *Spec) knowsID() bool { return s.SessionID != "" || mentions(s.Start, "Session") }

// readsID reports whether the pack knows where the command states the id.
func (s *Spec) readsID() bool {
	p, err := s.pack()
	return err == nil && p.StatesSessionID()
}

// pack returns the rules by which a stop is told.
func (s *Spec) pack() (*detect.Pack, error) {
	if s.Rules != nil {
		return detect.Compile(*s.Rules)
	}
	return detect.Builtin(cmp.Or(s.Pack, "generic"))
}

// Work is what a session is about. It is the input of its runs.
type Work struct {
	Start   []string `json:"start"`
	Dir     string   `json:"dir,omitempty"`
	Command []string `json:"command,omitempty"` // the start command as it was given, if it is another
	Prompt  string   `json:"prompt,omitempty"`  // a hash of what the start command reads
}

func (s *Spec) work() Work {
	w := Work{Start: s.Start, Dir: s.Dir}
	if s.typed != nil && !slices.Equal(s.typed, s.Start) {
		w.Command = s.typed
	}
	if s.Stdin != "" {
		sum := sha256.Sum256([]byte(s.Stdin))
		w.Prompt = hex.EncodeToString(sum[:8])
	}
	return w
}

// given returns the start command as it was given.
func (w *Work) given() []string {
	if w.Command != nil {
		return w.Command
	}
	return w.Start
}

// Same reports whether a run with the input is about the same work. An earlier
// version may have made another start command of the same one.
func (s *Spec) Same(input json.RawMessage) (was Work, same bool) {
	if json.Unmarshal(input, &was) != nil {
		return was, false
	}
	now := s.work()
	command := slices.Equal(was.given(), now.given()) || slices.Equal(was.Start, now.Start) || slices.Equal(was.Start, now.given())
	prompt := was.Prompt == now.Prompt || was.Prompt == "" || now.Prompt == ""
	return was, command && prompt && was.Dir == s.Dir
}

// action returns what follows a stop for the reason.
func (s *Spec) action(reason detect.Reason) Action {
	name := reason.String()
	a, ok := s.On[name]
	if !ok {
		a = defaults[name]
	}
	a.Do = cmp.Or(a.Do, DoResume)
	return a
}

// Workflow returns the workflow of the session. When a run of it gives up, one of
// alarm is started, unless that is nil.
func (s *Spec) Workflow(alarm *engine.Workflow) (*engine.Workflow, error) {
	stored := *s
	stored.PolicyText = s.Policy.String()
	parts := []engine.Part{
		engine.Timeout(s.Deadline),
		engine.Call(stepName, Handler, &stored, engine.WithPolicy(s.Policy), engine.MaxWindows(cmp.Or(s.Windows, DefaultWindows))),
	}
	if alarm != nil {
		parts = append(parts, engine.OnGiveUp(alarm))
	}
	return engine.NewWorkflow(Prefix+s.Name, parts...)
}
