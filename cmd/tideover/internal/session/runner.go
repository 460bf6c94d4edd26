package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/cmd/tideover/internal/quota"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/shortage"
	"github.com/tideover/tideover/retry"
)

// ControlVar is the environment variable with the address of the API that controls the session.
const ControlVar = "TIDEOVER_CONTROL"

// Handler is the name of the step handler of sessions.
const Handler = "session"

// Grace is the time between TERM and KILL for a command. It is shorter than the engine's, which
// would mark the attempt as stuck.
const Grace = 8 * time.Second

// Runner runs the commands of sessions, one at a time per session.
type Runner struct {
	Self     string           // path of this program, for the guard
	Locks    string           // existing folder for the locks of commands
	Redactor *secret.Redactor // redacts stored output
	Ready    <-chan struct{}  // commands start when it is closed; nil means at once

	// Open returns the streams of a command.
	Open func(s *Spec) (Streams, error)

	// Expand replaces the references in a value of the environment; nil leaves values
	// unchanged.
	Expand func(value string) (string, error)

	// Hidden returns the names of variables that commands do not inherit; nil means none.
	Hidden func() []string

	// Cancel ends a run that its user has ended.
	Cancel func(ctx context.Context, run, by string) error

	// Shared reports whether another session may have the latest conversation in the folder.
	// Nil means that it may.
	Shared func(s *Spec) bool

	// Stopped is called when a command has ended, before the next action; it may be nil.
	Stopped func(run string, s Stop)

	// Quotas is the folder in which status lines record the used quota.
	Quotas string

	// Warn reports a problem that does not stop the session; nil drops it.
	Warn func(text string)

	// Control is the address of the API to which programs report limits, the value of TIDEOVER_CONTROL; "" means none.
	Control string

	// TypeAtReset is how often the prompt to continue is typed into an interactive command at the stated end of a limit;
	// 0 means never.
	TypeAtReset int

	// Accounts stores the limits of accounts; nil means that sessions share nothing.
	Accounts *account.Store

	// Wake ends the wait of a run that its account holds back, see [WakeHeld]; nil means that such a run waits to the end.
	Wake func(ctx context.Context, run, by string) error

	// Replaced by tests; nil means guard.Run and askQuota.
	launch    func(context.Context, guard.Command) (guard.Result, error)
	readQuota func(ctx context.Context, s *Spec, env []string) ([]quota.Window, error)

	ending  atomic.Bool
	screens sync.Map // of commands on a terminal, by session name: *screenWatch
	slots   sync.Map // by session name: a chan struct{} of capacity 1, which serialises its commands
	forced  sync.Map // runs whose next attempt ignores the gate of the account
	held    heldRuns
}

// Streams are the standard streams of a command. They are closed after it.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool                    // stdin and stdout are a terminal
	Watch          func(watcher io.Writer) // copies the terminal's output to watcher; nil without a terminal
	Control        TerminalControl         // nil without a terminal
	Close          func() error
}

// End marks that the process is shutting down. From now on, a command that a signal ends was not
// ended by its user.
func (r *Runner) End() { r.ending.Store(true) }

// Handle makes one attempt: it runs the start or the resume command and returns what follows.
func (r *Runner) Handle(ctx context.Context, t *engine.Task) ([]byte, error) {
	s := new(Spec)
	if err := json.Unmarshal(t.Args, s); err != nil {
		return nil, retry.Permanent(fmt.Errorf("decoding the stored session: %w", err))
	}
	before := ReadMemo(t.Progress)
	before.Limit = nil // its command has ended
	if t.Spent == 0 && t.Windows == 0 {
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
	if r.isHandedOver(s, t.Run, &before) {
		return r.handleFallback(ctx, s, t, before)
	}
	use, held := r.enterAccount(s, t)
	if held != nil {
		return nil, s.waitForAccount(use, before, held)
	}
	defer use.release()
	end, err := r.runCommand(ctx, s, t, before, func(m Memo) Memo { return m })
	memo := end.memo
	if err != nil {
		if r.Stopped != nil && end.exit != 0 {
			r.Stopped(t.Run, Stop{Reason: detect.Terminal.String(), Exit: end.exit, At: time.Now()})
		}
		return nil, engine.Keep(err, memo)
	}
	if r.Stopped != nil {
		r.Stopped(t.Run, *memo.Last)
	}
	memo.endTurn(turnEnd(end.stop), time.Now())
	if end.gone {
		return nil, s.startOver(memo, end.resumed, failure(end.stop, end.exit))
	}
	memo.Ended = true
	if held := use.recordStop(end.stop, &memo); held != nil {
		return nil, s.waitForAccount(use, memo, held)
	}
	return r.nextAction(ctx, s, t, memo, end.stop)
}

// commandEnd is how the command of an attempt ended.
type commandEnd struct {
	memo    Memo // for the next attempt
	ran     bool // false if it could not be run
	resumed bool // it was a resume command
	stop    detect.Stop
	exit    int
	gone    bool // the session to resume does not exist
}

// runCommand runs the start or the resume command of an attempt. It returns an error if the command
// could not be run or was interrupted. Meanwhile it stores what whole returns for the memo.
func (r *Runner) runCommand(ctx context.Context, s *Spec, t *engine.Task, before Memo, whole func(Memo) Memo) (commandEnd, error) {
	notRun := commandEnd{memo: before}
	pack, err := s.pack()
	if err != nil {
		return notRun, retry.Permanent(fmt.Errorf("stored session: loading the pack: %w", err))
	}
	memo := before
	command, resumes, err := memo.command(s, t)
	if err != nil {
		return commandEnd{memo: memo}, retry.Permanent(err)
	}
	if err := checkDir(s.Dir); err != nil {
		return notRun, err
	}
	env, err := r.environment(s, t, memo)
	if err != nil {
		return notRun, err
	}
	if err := r.beforeLimit(ctx, s, env); err != nil {
		return notRun, err
	}
	if len(s.Fallback) > 0 {
		memo.beginTurn(s.AssistantName(), false, time.Now())
	}
	if err := engine.SaveProgress(ctx, whole(memo)); err != nil { // needed by an attempt after a crash
		return notRun, cmpCause(ctx, err)
	}
	running := newAttemptMemo(ctx, memo, whole)
	options := detect.Options{}
	if !mentions(s.Start, "Session") { // otherwise we have chosen the id, and the output may quote another
		options.OnSessionID = running.setStated
	}
	d := detect.New(pack, options)
	end, err := r.run(ctx, commandRun{s, env, command, resumes, t.Total > 1, d, running.setLimit})
	done := commandEnd{memo: running.finish(), ran: true, resumed: resumes, exit: end.Code}
	switch {
	case err != nil && ctx.Err() == nil && shortage.Is(err):
		return notRun, engine.Snooze(shortage.Delay(t.Total-t.Attempt), shortage.Note(err))
	case errors.Is(err, syscall.E2BIG):
		return notRun, retry.Permanent(fmt.Errorf("%w: %s", err, guard.TooBig))
	case err != nil:
		return notRun, cmpCause(ctx, err)
	case end.Code == process.CodeNotFound || end.Code == process.CodeNotExecutable:
		notRun.exit = end.Code
		return notRun, retry.Permanent(fmt.Errorf("exit code %d: %s can't be executed", end.Code, command[0]))
	case end.Told:
		done.exit = 0
		done.memo.endTurn(Turn{Ended: turnInterrupted}, time.Now())
		return done, cmpCause(ctx, errors.New("interrupted"))
	}
	done.stop = r.detectStop(d, end.Code)
	if end.quit && end.Code == 0 && done.stop.Trust == detect.ByLine {
		// The user saw the limit and ended the program.
		done.stop = detect.Stop{Reason: detect.Completed}
	}
	if r.ending.Load() && done.stop.Reason == detect.UserExit {
		<-ctx.Done() // the signal ends this process, too: wait for the engine
		done.exit = 0
		done.memo.endTurn(Turn{Ended: turnInterrupted}, time.Now())
		return done, context.Cause(ctx)
	}
	done.memo.recordStop(done.stop, end.Code, time.Now())
	done.gone = end.Code != 0 && d.SessionGone()
	return done, nil
}

// cmpCause returns the cause of the context's end, or err if it has not ended.
func cmpCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// checkDir returns an error if the folder is missing, which would otherwise look like a missing
// command.
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

// acquire waits until no other command of the session runs in this process, and returns the
// function that releases it. The guard's lock does the same between processes, but the terminal is
// used before it.
func (r *Runner) acquire(ctx context.Context, s *Spec) (leave func(), err error) {
	if r.Ready != nil {
		select {
		case <-r.Ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	v, _ := r.slots.LoadOrStore(s.Name, make(chan struct{}, 1))
	place := v.(chan struct{}) //nolint:forcetypeassert // the map has no other values
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// commandRun has the parameters of Runner.run.
type commandRun struct {
	*Spec
	env, argv []string
	resumes   bool // it resumes the session
	waited    bool // it is not the first command of the run
	detector  *detect.Detector
	limited   func(*ScreenLimit) // called with limits on its screen
}

// runEnd is how a run of a command ended.
type runEnd struct {
	guard.Result
	quit bool // its user typed after a limit had appeared on its screen
}

// run runs the command and passes its output to the detector. Secrets are redacted before the
// output is split, so that no part of one remains.
func (r *Runner) run(ctx context.Context, s commandRun) (runEnd, error) {
	streams, err := r.Open(s.Spec)
	if err != nil {
		return runEnd{}, err
	}
	d := s.detector
	redactor := cmp.Or(r.Redactor, new(secret.Redactor))
	out, errs := redactor.NewWriter(d.Stream()), redactor.NewWriter(d.Stream())
	c := guard.Command{
		Self: r.Self, Args: s.argv, Dir: s.Dir, Lock: filepath.Join(r.Locks, Prefix+s.Name), Grace: Grace, Env: s.env,
		Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr, Terminal: streams.Terminal,
	}
	switch {
	case streams.Terminal:
	case s.resumes || s.handedOver:
		c.Stdin = nil // piped input is the first prompt, which the session has had
	case s.Stdin != "":
		c.Stdin = strings.NewReader(s.Stdin)
	}
	if streams.Control != nil {
		c.Suspend = streams.Control.Suspend
		if s.waited { // keys typed during a wait are not for the command
			streams.Control.DiscardInput()
		}
	}
	look := r.watchScreen(ctx, s.Spec, streams.Control, s.limited)
	if look != nil {
		streams.Watch(io.MultiWriter(out, look.watch))
	} else if streams.Watch != nil {
		streams.Watch(out)
	} else {
		c.Stdout = io.MultiWriter(out, c.Stdout)
	}
	if streams.Stderr != streams.Stdout {
		c.Stderr = io.MultiWriter(errs, c.Stderr)
	}
	launch := r.launch
	if launch == nil {
		launch = guard.Run
	}
	end, err := launch(ctx, c)
	quit := look.stop()
	err = errors.Join(err, streams.Close())
	_, _ = out.Close(), errs.Close() // they write to memory
	return runEnd{end, quit}, err
}

// environment returns the environment of the command.
func (r *Runner) environment(s *Spec, t *engine.Task, memo Memo) ([]string, error) {
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

// Pass is [Runner.Open] for a process without a terminal: the first command reads our standard
// input, and all output is passed through.
func Pass(stdin *os.File, stdout, stderr io.Writer) func(*Spec) (Streams, error) {
	first := true
	return func(*Spec) (Streams, error) {
		st := Streams{Stdout: stdout, Stderr: stderr, Close: func() error { return nil }}
		if first && stdin != nil {
			// The first command consumes the input; a resumed session remembers it.
			st.Stdin, first = stdin, false
		}
		return st, nil
	}
}
