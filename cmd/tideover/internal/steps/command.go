package steps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// tempFail is EX_TEMPFAIL of sysexits.h: the command asks for a longer wait.
const tempFail = 75

// command makes one attempt of a command step, under the guard.
func (r *Runner) command(ctx context.Context, s *Step, d Data, t *engine.Task) (result, error) {
	argv, err1 := s.Argv(d)
	env, err2 := s.Env(d)
	stdin, err3 := s.Stdin(d)
	if err := errors.Join(err1, err2, err3); err != nil {
		return result{}, template.Classify(err)
	}
	use, held := r.enterAccount(s, t)
	if held != nil {
		return result{}, held
	}
	defer use.release()
	stdout, stderr, last := &capped{limit: limitOf(s)}, &capped{limit: limitOf(s)}, &tail{}
	// Mask secrets before the output is truncated: a truncated secret is not recognised.
	out, errs := r.Redactor.NewWriter(stdout), r.Redactor.NewWriter(io.MultiWriter(stderr, last))
	end, err := guard.Run(ctx, guard.Command{
		Self: r.Self, Args: argv, Dir: s.Dir, Lock: filepath.Join(r.Locks, t.Run+"-"+t.Step), Grace: Grace,
		Env: append(r.environment(s, t), pairs(env)...), Stdin: strings.NewReader(stdin), Stdout: out, Stderr: errs,
	})
	_, _ = out.Close(), errs.Close() // can't fail: they write to memory
	res := result{Stdout: stdout.text(), Stderr: stderr.text(), Truncated: stdout.over || stderr.over, Whole: !stdout.over}
	switch {
	case errors.Is(err, syscall.E2BIG):
		return res, retry.Permanent(fmt.Errorf("%w: %s", err, guard.TooBig))
	case err != nil:
		return res, err
	case ctx.Err() != nil && end.Code != 0:
		return res, context.Cause(ctx)
	}
	if held := use.record(s, end.Code, last.lines()); held != nil {
		return res, held
	}
	if end.Code == 0 {
		return res, nil
	}
	return res, failure(s, end.Code, last.lines())
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
	case code == tempFail:
		return retry.Throttled(err)
	}
	return err
}

// environment returns the variables that a command gets in addition to those of its step: the base variables, those
// that it inherits from this process, and those that describe the run and the attempt.
func (r *Runner) environment(s *Step, t *engine.Task) []string {
	attempts := strconv.Itoa(t.Attempts)
	if t.Attempts == retry.Unlimited {
		attempts = "unlimited"
	}
	var hidden []string
	if r.Hidden != nil {
		hidden = r.Hidden()
	}
	inherit := slices.Concat(guard.BaseVariables, r.Inherit, s.Inherit)
	return append(guard.EnvironOnly(inherit.Has, hidden...),
		"TIDEOVER_RUN_ID="+t.Run, "TIDEOVER_WORKFLOW="+t.Workflow, "TIDEOVER_STEP="+t.Step, "TIDEOVER_KEY="+t.Key,
		"TIDEOVER_ORIGIN_ID="+t.Origin, "TIDEOVER_ORIGIN_KEY="+t.OriginKey,
		"TIDEOVER_ATTEMPT="+strconv.Itoa(t.Attempt), "TIDEOVER_ATTEMPTS="+attempts,
		"TIDEOVER_ATTEMPT_TOTAL="+strconv.Itoa(t.Total))
}

func pairs(env []EnvVar) (list []string) {
	for _, v := range env {
		list = append(list, v.Pair())
	}
	return list
}

// longestHold is the longest time that a step waits for the limit of an account to end, the same as for sessions. The
// policy's server-wait does not apply: it limits the delays that the step's own server states.
const longestHold = 8 * 24 * time.Hour

// usage is the use of an account by one attempt of a command. It is nil for a step without an account.
type usage struct {
	task   *engine.Task
	pass   *account.Pass
	proven *time.Timer // ends the probe of the account as successful; nil if the attempt is not a probe
}

// enterAccount asks the gate of the step's account whether the command may run now. If it must wait, held is the error
// that ends the attempt; it postpones the step and does not count as an attempt.
func (r *Runner) enterAccount(s *Step, t *engine.Task) (u *usage, held error) {
	if r.Accounts == nil || s.Account == "" {
		return nil, nil
	}
	gate, err := r.Accounts.Gate(s.Account)
	if err != nil {
		return nil, retry.Permanent(fmt.Errorf("account: %w", err))
	}
	pass, hold := gate.Enter(account.Asker{
		ID: t.Run + "/" + t.Step, Name: "step " + t.Step + " of workflow " + t.Workflow, Slack: s.Policy.ServerSlack,
		Longest: longestHold, Spread: account.DefaultSpread,
	})
	if hold != nil {
		return nil, engine.Snooze(hold.Wait, hold.Why)
	}
	u = &usage{task: t, pass: pass}
	if pass.Probes() {
		u.proven = time.AfterFunc(account.ProvenAfter, pass.Worked)
	}
	return u, nil
}

// record reports to the account that the command succeeded, or that it was limited (exit code tempFail). It ignores
// other failures, which are unrelated to the account. If the limit was already known, held is the error that ends the
// attempt; it postpones the step and does not count as an attempt.
func (u *usage) record(s *Step, code int, said string) (held error) {
	switch {
	case u == nil:
	case code == 0:
		u.pass.Worked()
	case code == tempFail:
		p := s.Policy
		p.Attempts, p.TotalTimeout = retry.Unlimited, 0
		d := retry.Decide(p, retry.State{Attempt: u.task.Attempt}, retry.Outcome{Class: retry.ClassThrottled}, retry.Gates{}, math.MaxUint64)
		if h := u.pass.Limited(account.Reset{}, said, d.Wait); h != nil {
			return engine.Snooze(h.Wait, h.Why)
		}
	}
	return nil
}

// release ends the use of the account.
func (u *usage) release() {
	if u == nil {
		return
	}
	if u.proven != nil {
		u.proven.Stop()
	}
	u.pass.Leave()
}
