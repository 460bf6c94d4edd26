package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/shortage"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// Grace is how long a command may take to end after SIGTERM. It is less than the engine's
// grace period, after which an attempt counts as stuck.
const Grace = 5 * time.Second

// Runner runs steps.
type Runner struct {
	Self    string                 // path of this program, which is started again as the guard
	Locks   string                 // existing folder for the lock files of commands
	Secrets func() secret.Resolver // returns the resolver of the current configuration

	// AllowHosts returns the hosts that templates in URLs may choose; nil means none.
	AllowHosts func() hosts.Set

	// Provider returns the transport to a provider of the configuration, with its keys,
	// health gates and limits. The transport does not retry; the engine does.
	Provider func(name string) http.RoundTripper

	// Hidden returns the names of variables that commands never inherit; nil means
	// that there are none.
	Hidden func() []string

	// Inherit has the variables of this process that all commands inherit, in addition to
	// the variables that their steps name.
	Inherit guard.Inherit

	// Accounts has the known limits of accounts; nil means that steps ignore accounts.
	Accounts *account.Store

	// Redactor masks the values of secrets in stored outputs.
	Redactor *secret.Redactor

	// Outputs stores the output of each attempt, also of those that fail; nil means that it is not
	// stored.
	Outputs *output.Store

	// Hold returns the error of an attempt of a flow's step, or one that postpones the step; nil
	// means that all errors stay as they are. Handlers of other steps are wrapped instead.
	Hold func(error) error

	specs specCache
}

// Handlers returns the handlers that an engine needs for these steps.
func (r *Runner) Handlers() map[string]engine.Handler {
	return map[string]engine.Handler{
		handlerCommand: r.Handler(), handlerHTTP: r.Handler(), handlerGiveUp: r.handle(r.giveUpData),
	}
}

// Handler returns a handler for steps of all kinds, for callers that wrap it in a handler
// of their own.
func (r *Runner) Handler() engine.Handler {
	return r.handle(func(_ *Step, t *engine.Task) (Data, error) { return r.data(t) })
}

// handle returns a handler that decodes the stored step, calls data to get the data for its
// templates, and makes an attempt.
func (r *Runner) handle(data func(*Step, *engine.Task) (Data, error)) engine.Handler {
	return func(ctx context.Context, t *engine.Task) ([]byte, error) {
		s := new(Step)
		if err := json.Unmarshal(t.Args, s); err != nil {
			return nil, retry.Permanent(fmt.Errorf("stored step: %w", err))
		}
		d, err := data(s, t)
		if err != nil {
			return nil, retry.Permanent(err)
		}
		res, err := r.attempt(ctx, s, d, t)
		if err != nil {
			return nil, Postpone(err, t)
		}
		return res.encode()
	}
}

// attempt makes one attempt of a step.
func (r *Runner) attempt(ctx context.Context, s *Step, d Data, t *engine.Task) (result, error) {
	if s.IsHTTP() {
		return r.request(ctx, s, d, t)
	}
	return r.command(ctx, s, d, t)
}

// Postpone returns the error of an attempt. If its cause is a shortage of resources on this machine, it returns an
// error that postpones the step instead, so that the attempt does not count.
func Postpone(err error, t *engine.Task) error {
	if !shortage.Is(err) {
		return err
	}
	return engine.Snooze(shortage.Delay(t.Total-t.Attempt), shortage.Note(err))
}

var errTrailing = errors.New("unexpected text after the JSON value")

// command makes one attempt of a command step, under the guard.
func (r *Runner) command(ctx context.Context, s *Step, d Data, t *engine.Task) (result, error) {
	argv, err1 := s.Argv(d)
	env, err2 := s.Env(d)
	stdin, err3 := s.Stdin(d)
	if err := errors.Join(err1, err2, err3); err != nil {
		return result{}, template.Classify(err)
	}
	use, held := enterAccount(r.Accounts, s, t)
	if held != nil {
		return result{}, held
	}
	defer use.release()
	stdout, stderr, last := &output.Capture{Limit: limitOf(s)}, &output.Capture{Limit: limitOf(s)}, &guard.Tail{Size: 2 << 10}
	// Mask secrets before the output is truncated: a truncated secret is not recognised.
	out, errs := r.Redactor.NewWriter(stdout), r.Redactor.NewWriter(io.MultiWriter(stderr, last))
	end, err := guard.Run(ctx, guard.Command{
		Self: r.Self, Args: argv, Dir: s.Dir, Lock: filepath.Join(r.Locks, t.Run+"-"+t.Step), Grace: Grace,
		Env: r.environment(s, t, env), Stdin: strings.NewReader(stdin), Stdout: out, Stderr: errs,
	})
	_, _ = out.Close(), errs.Close() // can't fail: they write to memory
	var over1, over2 bool
	var res result
	res.Stdout, over1 = beginning(stdout)
	res.Stderr, over2 = beginning(stderr)
	res.Truncated, res.Whole = over1 || over2, !over1
	if err == nil || stdout.Size()+stderr.Size() > 0 {
		r.keepOutput(t, &output.Record{Command: r.commandLine(argv), Exit: exitCode(end, err), Streams: []output.Stream{stdout.Stream("stdout"), stderr.Stream("stderr")}})
	}
	switch {
	case errors.Is(err, syscall.E2BIG):
		return res, retry.Permanent(fmt.Errorf("%w: %s", err, guard.TooBig))
	case err != nil:
		return res, err
	case ctx.Err() != nil && end.Code != 0:
		return res, context.Cause(ctx)
	}
	said := last.Lines(5)
	if held := use.record(s, end.Code, said); held != nil {
		return res, held
	}
	if end.Code == 0 {
		return res, nil
	}
	return res, failure(s, end.Code, said)
}

// maxCommandLine is how many bytes of a command line are stored with the output of an attempt.
const maxCommandLine = 4 << 10

// commandLine returns a command as it would be typed in a shell, with secrets masked.
func (r *Runner) commandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = strings.ToValidUTF8(r.Redactor.String(word), "\uFFFD")
	}
	return textfmt.TruncateMark(textfmt.ShellWords(words), maxCommandLine, "…")
}

// exitCode returns the exit code of a command; nil if it is unknown or the guard has ended the command.
func exitCode(end guard.Result, err error) *int {
	if err != nil || end.Told {
		return nil
	}
	return &end.Code
}

// keepOutput stores the output of an attempt. If that fails, the attempt goes on: the store reports the
// problem.
func (r *Runner) keepOutput(t *engine.Task, o *output.Record) {
	if r.Outputs == nil {
		return
	}
	o.Attempt, o.Ended = output.Attempt{Run: t.Run, Step: t.Step, Operation: t.Operation, Number: t.Total}, time.Now()
	_ = r.Outputs.Append(o) // see above
}

// failure returns the error for an exit code, marked as permanent, throttled or
// transient. said is the end of the command's stderr.
func failure(s *Step, code int, said string) error {
	err := errors.New("exit code " + strconv.Itoa(code))
	if code > process.CodeSignal && code < process.CodeSignal+65 {
		err = fmt.Errorf("exit code %d, which stands for signal %d", code, code-process.CodeSignal)
	}
	if said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	switch {
	case code == process.CodeNotFound, code == process.CodeNotExecutable, !s.Retryable(code):
		return retry.Permanent(err)
	case code == exitcode.TempFail:
		return retry.Throttled(err)
	}
	return err
}

// environment returns the variables that a command gets: variables of this process that it inherits, variables that
// describe the run and the attempt, and own, the variables that its step sets.
func (r *Runner) environment(s *Step, t *engine.Task, own []EnvVar) []string {
	attempts := strconv.Itoa(t.Attempts)
	if t.Attempts == retry.Unlimited {
		attempts = "unlimited"
	}
	var hidden []string
	if r.Hidden != nil {
		hidden = r.Hidden()
	}
	inherit := slices.Concat(guard.BaseVariables, r.Inherit, s.Inherit)
	list := append(guard.EnvironOnly(inherit.Has, hidden...),
		"TIDEOVER_RUN_ID="+t.Run, "TIDEOVER_WORKFLOW="+t.Workflow, "TIDEOVER_STEP="+t.Step, "TIDEOVER_KEY="+t.Key,
		"TIDEOVER_ORIGIN_ID="+t.Origin, "TIDEOVER_ORIGIN_KEY="+t.OriginKey,
		"TIDEOVER_ATTEMPT="+strconv.Itoa(t.Attempt), "TIDEOVER_ATTEMPTS="+attempts,
		"TIDEOVER_ATTEMPT_TOTAL="+strconv.Itoa(t.Total), "TIDEOVER_UNDOS="+strconv.Itoa(t.Undos))
	for _, v := range own {
		list = append(list, v.Pair())
	}
	return list
}
