package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/shortage"
	"github.com/tideover/tideover/retry"
)

// attempt is one attempt of a session: it runs one start or resume command and decides what follows.
type attempt struct {
	runner *Runner
	spec   *Spec // of the session, or of its fallback
	task   *engine.Task
}

// handle runs the command of the attempt. It returns the output of a completed session, or an error
// that makes the engine wait, retry or give up.
func (a *attempt) handle(ctx context.Context) ([]byte, error) {
	r, s, t := a.runner, a.spec, a.task
	before := ReadMemo(t.Progress)
	before.Limit = nil // its command has ended
	if t.Spent == 0 && t.Windows == 0 && before.LimitSince.IsZero() {
		before.InARow = 0 // after Retry or Reset
	}
	if until, quiet := s.Quiet.Until(time.Now()); quiet {
		return nil, engine.Keep(engine.SnoozeUntil(until, "quiet hours, "+s.Quiet.String()), before)
	}
	leave, err := r.acquire(ctx, s)
	if err != nil {
		return nil, engine.Keep(err, before)
	}
	defer leave()
	if a.isHandedOver(&before) {
		return a.handleFallback(ctx, before)
	}
	r.held.remove(t.Run)
	_, forced := r.forced.LoadAndDelete(t.Run)
	use, held := a.useAccount(t.Run, forced)
	if held != nil {
		return nil, a.waitForAccount(use, before, held)
	}
	defer use.release()
	end, err := a.runCommand(ctx, before, func(m Memo) Memo { return m })
	memo := end.memo
	if err != nil {
		if end.exit != 0 {
			a.reportStop(Stop{Reason: detect.Terminal.String(), Exit: end.exit, At: time.Now()})
		}
		return nil, engine.Keep(err, memo)
	}
	a.reportStop(*memo.Last)
	memo.endTurn(turnEnd(end.stop), time.Now())
	if end.gone {
		return nil, startOver(memo, end.resumed, failure(end.stop, end.exit))
	}
	memo.Ended = true
	held = use.reportStop(end.stop, &memo)
	return a.nextAction(ctx, memo, end.stop, use, held)
}

// reportStop calls Runner.Stopped.
func (a *attempt) reportStop(s Stop) {
	if a.runner.Stopped != nil {
		a.runner.Stopped(a.task.Run, s)
	}
}

// commandEnd is how the command of an attempt ended.
type commandEnd struct {
	memo    Memo // for the next attempt
	ran     bool // false if the command could not be run
	resumed bool // it was a resume command
	stop    detect.Stop
	exit    int
	gone    bool // the session to resume does not exist
}

// runCommand runs the start or the resume command of an attempt. It returns an error if the command
// could not be run or was interrupted. before is the memo of the last attempt. While the command
// runs, runCommand stores whole(memo) as the progress of the run: the memo of a fallback is stored
// as a part of its session's memo.
func (a *attempt) runCommand(ctx context.Context, before Memo, whole func(Memo) Memo) (commandEnd, error) {
	s := a.spec
	notRun := commandEnd{memo: before}
	pack, err := s.pack()
	if err != nil {
		return notRun, retry.Permanent(fmt.Errorf("stored session: loading the pack: %w", err))
	}
	memo, command, err := a.prepare(ctx, before)
	if err != nil {
		return commandEnd{memo: memo}, err
	}
	if len(s.Fallback) > 0 {
		memo.beginTurn(s.AssistantName(), false, time.Now())
	}
	if err := engine.SaveProgress(ctx, whole(memo)); err != nil { // the next attempt after a crash needs it
		return notRun, cmp.Or(context.Cause(ctx), err)
	}
	running := &attemptMemo{memo: memo, whole: whole}
	running.ctx, running.cancel = context.WithCancel(ctx)
	options := detect.Options{Assistant: runsAssistant(s.Start)}
	if !mentions(s.Start, "Session") { // otherwise we have chosen the id, and the output may contain the id of another session
		options.OnSessionID = running.setStated
	}
	command.detector, command.limited = detect.New(pack, options), running.setLimit
	begun := time.Now()
	if !memo.LimitSince.IsZero() {
		proof := time.AfterFunc(account.ProvenAfter, running.setLimitOver)
		defer proof.Stop()
	}
	end, quit, err := a.run(ctx, command)
	memo = running.finish()
	if err != nil {
		return notRun, a.runError(ctx, err)
	}
	if end.Code == process.CodeNotFound || end.Code == process.CodeNotExecutable {
		notRun.exit = end.Code
		return notRun, retry.Permanent(fmt.Errorf("exit code %d: %s can't be executed", end.Code, command.argv[0]))
	}
	done := commandEnd{memo: memo, ran: true, resumed: command.resumes}
	if end.Told {
		done.memo.endTurn(Turn{Ended: turnInterrupted}, time.Now())
		return done, cmp.Or(context.Cause(ctx), errors.New("interrupted"))
	}
	done.exit, done.stop = end.Code, detectStop(command.detector, end.Code, quit)
	if a.runner.ending.Load() && done.stop.Reason == detect.UserExit {
		<-ctx.Done() // the signal ends this process, too: wait for the engine
		done.exit = 0
		done.memo.endTurn(Turn{Ended: turnInterrupted}, time.Now())
		return done, context.Cause(ctx)
	}
	done.memo.recordStop(done.stop, end.Code, time.Now())
	done.memo.LimitSince = s.limitSince(before.LimitSince, done.stop, time.Since(begun))
	done.gone = end.Code != 0 && command.detector.SessionGone()
	return done, nil
}

// prepare returns the command of the attempt, and the memo with which it runs. It fails if the
// command can't or must not run now; then it returns the memo for the next attempt.
func (a *attempt) prepare(ctx context.Context, before Memo) (memo Memo, c commandRun, err error) {
	memo = before
	if c.argv, c.resumes, err = memo.command(a.spec, a.task); err != nil {
		return memo, c, retry.Permanent(err)
	}
	if err := checkDir(a.spec.Dir); err != nil {
		return before, c, err
	}
	if c.env, err = a.environment(memo); err != nil {
		return before, c, err
	}
	if err := a.runner.beforeLimit(ctx, a.spec, c.env); err != nil {
		return before, c, err
	}
	return memo, c, nil
}

// runError returns what the engine does after a command could not be run.
func (a *attempt) runError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() == nil && shortage.Is(err):
		return engine.Snooze(shortage.Delay(a.task.Total-a.task.Attempt), shortage.Note(err))
	case errors.Is(err, syscall.E2BIG):
		return retry.Permanent(fmt.Errorf("%w: %s", err, guard.TooBig))
	}
	return cmp.Or(context.Cause(ctx), err)
}

// checkDir returns an error if the folder is missing. Without this check, the system reports a
// missing command instead. "" is valid.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("not a folder")
	}
	if err != nil {
		return fmt.Errorf("dir %s: %w", dir, err)
	}
	return nil
}

// commandRun has the parameters of attempt.run.
type commandRun struct {
	env, argv []string
	resumes   bool // it resumes the session
	detector  *detect.Detector
	limited   func(*ScreenLimit) // called with limits on its screen
}

// run runs the command and passes its output to the detector. It redacts secrets before the detector
// splits the output, so that no part of a secret remains. quit reports whether the user typed after a
// limit had appeared on the screen.
func (a *attempt) run(ctx context.Context, c commandRun) (end guard.Result, quit bool, err error) {
	r, s := a.runner, a.spec
	streams, err := r.Open(s)
	if err != nil {
		return end, false, err
	}
	redactor := cmp.Or(r.Redactor, new(secret.Redactor))
	out, errs := redactor.NewWriter(c.detector.Stream()), redactor.NewWriter(c.detector.Stream())
	g := guard.Command{
		Self: r.Self, Args: c.argv, Dir: s.Dir, Lock: filepath.Join(r.Locks, Prefix+s.Name), Grace: Grace, Env: c.env,
		Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr, Terminal: streams.Terminal,
	}
	switch {
	case streams.Terminal:
	case c.resumes || s.handedOver:
		g.Stdin = nil // piped input is the first prompt, which the session already has
	case s.Stdin != "":
		g.Stdin = strings.NewReader(s.Stdin)
	}
	if streams.Control != nil {
		g.Suspend = streams.Control.Suspend
		if a.task.Total > 1 { // keys typed during a wait are not for the command
			streams.Control.DiscardInput()
		}
	}
	watch := r.watchScreen(ctx, s, streams.Control, c.limited)
	if watch != nil {
		streams.Watch(io.MultiWriter(out, watch))
	} else if streams.Watch != nil {
		streams.Watch(out)
	} else {
		g.Stdout = io.MultiWriter(out, g.Stdout)
	}
	if streams.Stderr != streams.Stdout {
		g.Stderr = io.MultiWriter(errs, g.Stderr)
	}
	launch := r.launch
	if launch == nil {
		launch = guard.Run
	}
	end, err = launch(ctx, g)
	quit = watch.stop()
	err = errors.Join(err, streams.Close())
	_, _ = out.Close(), errs.Close() // they write to memory
	return end, quit, err
}

// environment returns the environment of the command.
func (a *attempt) environment(memo Memo) ([]string, error) {
	r, s, t := a.runner, a.spec, a.task
	var hidden []string
	if r.Hidden != nil {
		hidden = r.Hidden()
	}
	env := append(guard.Environ(hidden...),
		"TIDEOVER_SESSION="+s.Name, "TIDEOVER_SESSION_ID="+cmp.Or(memo.Session, sessionID(cmp.Or(s.idSeed, t.Run), memo.Generation)), "TIDEOVER_RUN_ID="+t.Run,
		"TIDEOVER_ORIGIN_ID="+t.Origin, "TIDEOVER_ORIGIN_KEY="+t.OriginKey,
		"TIDEOVER_ATTEMPT="+strconv.Itoa(t.Attempt), "TIDEOVER_ATTEMPT_TOTAL="+strconv.Itoa(t.Total), "TIDEOVER_WINDOWS="+strconv.Itoa(t.Windows))
	if r.Control != "" {
		env = append(env, ControlVar+"="+r.Control)
	}
	for name, value := range s.Env {
		if r.Expand != nil {
			var err error
			if value, err = r.Expand(value); err != nil {
				return nil, fmt.Errorf("env.%s: %w", name, err)
			}
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}
