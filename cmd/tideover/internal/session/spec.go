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
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/retry"
)

// DefaultPolicy is the policy of a session that has none. It accepts a stated reset up to eight
// days ahead, for weekly limits.
const DefaultPolicy = "daemon server-wait=8d server-slack=90s reset-after=10m"

// DefaultWindows is the default number of stated resets that a session may wait for.
const DefaultWindows = 10

// Refused are the policy keys that a session does not support.
var Refused = []string{"hedge", "budget"}

// Prefix is the beginning of the names of sessions' workflows.
const Prefix = control.SessionPrefix

// quotaPacks are the detection packs of the tools whose quota can be read.
var quotaPacks = []string{"claude-code", "codex"}

// stepName is the name of the only step of a session's workflow.
const stepName = "session"

// Spec describes a session. It is stored with its run.
type Spec struct {
	Name      string            `json:"name"`
	Dir       string            `json:"dir,omitempty"`        // working folder of the commands; "" means that of the process
	Start     []string          `json:"start"`                // templates
	Resume    []string          `json:"resume,omitempty"`     // templates; if empty, the start command is run again, unless NoResume is set
	ResumeAny bool              `json:"resume_any,omitempty"` // the resume command finds the session without its id
	Restart   bool              `json:"restart,omitempty"`    // run the start command again instead of resuming
	Env       map[string]string `json:"env,omitempty"`        // added to the environment of the process
	Pack      string            `json:"pack"`                 // name of a built-in pack, or of Rules
	Rules     *detect.Spec      `json:"rules,omitempty"`      // the user's own pack
	On        map[string]Action `json:"on,omitempty"`         // action after a stop, by its reason
	Quiet     *Hours            `json:"quiet,omitempty"`      // no command is started in these hours
	PauseAt   float64           `json:"pause_at,omitempty"`   // percent of the quota from which no command is started until the reset; 0 means never

	// Set by [Spec.PlanResume].
	NoResume     string   `json:"no_resume,omitempty"`     // why the session can't be resumed; "" if it can be, or if the start command may be run again
	ResumeLatest []string `json:"resume_latest,omitempty"` // templates; resume the latest session of the folder, if the id is unknown
	SessionID    string   `json:"session_id,omitempty"`    // id in the start command itself

	Stdin string `json:"stdin,omitempty"` // input of the start command; resume commands read nothing

	// Fallback are the assistants that work in the folder, one after the other, while a stated limit lasts longer than
	// FallbackAfter; empty means none. FallbackAfter 0 means DefaultFallbackAfter. FallbackPrompt is the template of their
	// prompt; "" means the default.
	Fallback       []Fallback    `json:"fallback,omitempty"`
	FallbackAfter  time.Duration `json:"fallback_after_ns,omitempty"`
	FallbackPrompt string        `json:"fallback_prompt,omitempty"`

	stdinPrompt bool     // the prompt is read from standard input
	typed       []string // the start command as given by the user

	// Set for a fallback.
	handedOver bool
	prompt     string // for its start command
	idSeed     string // the session id is derived from this instead of from the run

	// Account is the account whose limit the session shares with others: "" means Login, account.None means no account.
	// Login is the account of the tool with the login that the session uses, set by [Spec.PlanAccount]; "" means that of
	// the tool's default folder. Sessions that were held back continue within AccountSpread; 0 means account.DefaultSpread.
	Account       string        `json:"account,omitempty"`
	Login         string        `json:"login_account,omitempty"`
	AccountSpread time.Duration `json:"account_spread_ns,omitempty"`

	PolicyText string `json:"policy,omitempty"` // policy for the runner; set by Workflow

	Policy   retry.Policy  `json:"-"`
	Windows  int           `json:"-"` // 0 means DefaultWindows
	Deadline time.Duration `json:"-"` // of the whole session; 0 means none
}

// Action says what to do after a command has stopped.
type Action struct {
	Do       string `json:"do"`                 // one of Actions
	Attempts int    `json:"attempts,omitempty"` // give up after so many consecutive stops for this reason; 0 means that only the policy limits them
}

// The actions after a stop.
const (
	DoResume = "resume"  // resume at the stated time, or else by the policy
	DoStart  = "start"   // the same, with a new session
	DoStop   = "stop"    // end the session without a failure
	DoGiveUp = "give-up" // end the session as failed
)

// Actions are the words that [ParseAction] accepts. "wait" is another word for [DoResume].
var Actions = []string{DoResume, "wait", DoStart, DoStop, DoGiveUp}

// defaults has the default actions, for all reasons whose action can be set.
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

// ParseAction parses the word for an action.
func ParseAction(word string) (Action, error) {
	if !slices.Contains(Actions, word) {
		return Action{}, fmt.Errorf("%q is not an action: want %s", word, strings.Join(Actions, ", "))
	}
	if word == "wait" {
		word = DoResume
	}
	return Action{Do: word}, nil
}

// FieldError is an error about a field of a Spec.
type FieldError struct {
	Field string // name in the configuration
	Err   error
}

// Error returns the name of the field and the problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the problem without the name of the field.
func (e *FieldError) Unwrap() error { return e.Err }

// Fill sets ServerWait, ServerSlack and ResetAfter of the policy to those of [DefaultPolicy], if they
// are zero: sessions need other defaults than the retry package has.
func (s *Spec) Fill() {
	usual, err := retry.Parse(DefaultPolicy)
	if err != nil {
		panic(err) // a programming error: the constant is invalid
	}
	s.Policy.ServerWait = cmp.Or(s.Policy.ServerWait, usual.ServerWait)
	s.Policy.ServerSlack = cmp.Or(s.Policy.ServerSlack, usual.ServerSlack)
	s.Policy.ResetAfter = cmp.Or(s.Policy.ResetAfter, usual.ResetAfter)
}

// fieldErrors collects the errors of the fields of a Spec.
type fieldErrors []error

// fail adds an error about the field.
func (e *fieldErrors) fail(field, format string, args ...any) {
	*e = append(*e, &FieldError{field, fmt.Errorf(format, args...)})
}

// check adds an error unless the condition holds.
func (e *fieldErrors) check(holds bool, field, format string, args ...any) {
	if !holds {
		e.fail(field, format, args...)
	}
}

// checkError adds an error, unless it is nil.
func (e *fieldErrors) checkError(field string, err error) {
	if err != nil {
		e.fail(field, "%w", err)
	}
}

// Validate checks everything except the name. The error joins [*FieldError] values.
func (s *Spec) Validate() error {
	var errs fieldErrors
	errs.check(len(s.Start) > 0 && s.Start[0] != "", "start", "no command given")
	errs.check(s.Dir == "" || filepath.IsAbs(s.Dir), "dir", "%q is not an absolute path", s.Dir)
	_, err := s.pack()
	errs.checkError("detect", err)
	errs.check(!s.Restart || len(s.Resume) == 0, "restart", "can't be used with a resume command: remove one of them")
	for field, argv := range map[string][]string{"start": s.Start, "resume": slices.Concat(s.Resume, s.ResumeLatest)} {
		_, err := render(argv, sample)
		errs.checkError(field, err)
	}
	s.checkResume(&errs)
	s.checkPauseAt(&errs)
	s.checkFallback(&errs)
	for reason, a := range s.On {
		_, known := defaults[reason]
		errs.check(known, "on", "%q is not a reason with an action: want %s", reason, strings.Join(Reasons(), ", "))
		errs.check(a.Attempts >= 0, "on", "%s: %d attempts is negative", reason, a.Attempts)
	}
	errs.checkError("policy", errors.Join(s.Policy.Validate(), s.Policy.Refuse("session", Refused...)))
	errs.check(s.Windows >= 0, "windows", "%d is negative", s.Windows)
	errs.check(s.Deadline >= 0, "deadline", "%v is negative", s.Deadline)
	if s.Account != "" {
		errs.checkError("account", account.CheckName(s.Account))
	}
	errs.check(s.AccountSpread >= 0, "account-spread", "%v is negative", s.AccountSpread)
	return errors.Join(errs...)
}

// checkResume checks that the resume command resumes the same session.
func (s *Spec) checkResume(errs *fieldErrors) {
	if len(s.Resume) == 0 {
		return
	}
	errs.check(s.Resume[0] != "", "resume", "no command given")
	switch uses := mentions(s.Resume, "Session"); {
	case uses && s.SessionID == "" && !mentions(s.Start, "Session") && !s.readsID():
		errs.fail("start", "does not contain {{.Session}}, so the session would not get the id that resume uses: "+
			"add it, as in --session-id {{.Session}}")
	case !uses && !s.ResumeAny:
		errs.fail("resume", "does not contain {{.Session}}, so it might resume another session: "+
			"add it, or set resume-any if the command finds the right one without it")
	}
}

// checkPauseAt validates pause-at.
func (s *Spec) checkPauseAt(errs *fieldErrors) {
	pack := s.quotaPack()
	switch {
	case s.PauseAt == 0:
	case s.PauseAt < 0 || s.PauseAt > 100:
		errs.fail("pause-at", "%g%% is not between 0%% and 100%%", s.PauseAt)
	case !slices.Contains(quotaPacks, pack):
		errs.fail("pause-at", "the quota of %s can't be read: pause-at works with %s", pack, strings.Join(quotaPacks, " and "))
	}
}

// readsID reports whether the pack finds the session id in the output.
func (s *Spec) readsID() bool {
	p, err := s.pack()
	return err == nil && p.StatesSessionID()
}

// pack returns the rules that detect why a command stopped.
func (s *Spec) pack() (*detect.Pack, error) {
	if s.Rules != nil {
		return detect.Compile(*s.Rules)
	}
	return detect.Builtin(cmp.Or(s.Pack, "generic"))
}

// quotaPack returns the built-in pack of the session's tool.
func (s *Spec) quotaPack() string {
	if s.Rules != nil && s.Rules.Extends != "" {
		return s.Rules.Extends
	}
	return s.Pack
}

// NeedsStatusLine reports whether the session's tool shows its quota only in its status line. Other
// tools have a command that returns it.
func (s *Spec) NeedsStatusLine() bool { return s.quotaPack() == "claude-code" }

// AccountName returns the account whose limit the session shares with others; "" for none. The
// default is the account of the tool with its login: sessions that run the same tool with the same
// login use the same account.
func (s *Spec) AccountName() string {
	if s.Account == account.None {
		return ""
	}
	return cmp.Or(s.Account, s.Login, toolAccount(s))
}

// toolAccount returns the account of the tool of a session; "" if the tool is unknown.
func toolAccount(s *Spec) string {
	pack := s.Pack
	if s.Rules != nil {
		pack = s.Rules.Extends
	}
	for _, tool := range []string{CommandPack(s.Start), pack} {
		if tool != "generic" && tool != "" {
			return tool
		}
	}
	return ""
}

// storedPolicy returns the policy of a session that was read back from a run; the default if none is
// stored or it is invalid.
func (s *Spec) storedPolicy() retry.Policy {
	p, err := retry.Parse(cmp.Or(s.PolicyText, DefaultPolicy)) // earlier releases did not store it here
	if err != nil {
		p, _ = retry.Parse(DefaultPolicy)
	}
	return p
}

// Work identifies the task of a session: its command, folder and prompt. It is the input of the
// session's runs.
type Work struct {
	Start   []string `json:"start"`
	Dir     string   `json:"dir,omitempty"`
	Command []string `json:"command,omitempty"` // the start command as given by the user, if it differs
	Prompt  string   `json:"prompt,omitempty"`  // hash of the input of the start command
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

// given returns the start command as given by the user.
func (w *Work) given() []string {
	if w.Command != nil {
		return w.Command
	}
	return w.Start
}

// Same decodes the input of a run, and reports whether the run has the same work as the session. It
// also compares the commands as the user gave them, because an earlier release may have derived
// another start command from the same command.
func (s *Spec) Same(input json.RawMessage) (was Work, same bool) {
	if json.Unmarshal(input, &was) != nil {
		return was, false
	}
	now := s.work()
	command := slices.Equal(was.given(), now.given()) || slices.Equal(was.Start, now.Start) || slices.Equal(was.Start, now.given())
	prompt := was.Prompt == now.Prompt || was.Prompt == "" || now.Prompt == ""
	return was, command && prompt && was.Dir == s.Dir
}

// action returns the action after a stop for this reason.
func (s *Spec) action(reason detect.Reason) Action {
	name := reason.String()
	a, ok := s.On[name]
	if !ok {
		a = defaults[name]
	}
	a.Do = cmp.Or(a.Do, DoResume)
	return a
}

// Workflow returns the workflow of the session. A run that gives up starts a run of alarm, unless
// alarm is nil.
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
