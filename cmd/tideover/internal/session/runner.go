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

// ControlVar is the variable of commands that has the address of the API that knows their session.
const ControlVar = "TIDEOVER_CONTROL"

// Handler is the name of the handler that does the step of a session.
const Handler = "session"

// Grace is how long a command may take to end after TERM. It is less than the
// engine's, which would call the attempt stuck.
const Grace = 8 * time.Second

// Runner runs the commands of sessions, of each session one at a time.
type Runner struct {
	Self     string           // the path of this program, for the guard
	Locks    string           // an existing folder for the locks of commands
	Redactor *secret.Redactor // hides secrets in what is kept of the output
	Ready    <-chan struct{}  // nothing is run before it is closed; nil means at once

	// Open returns where the command's output goes, and how to let go of it.
	Open func(s *Spec) (Streams, error)

	// Expand writes out the references in a value of the environment; nil leaves
	// values as they are.
	Expand func(value string) (string, error)

	// Hidden returns the names of variables that commands do not inherit; nil means
	// that there are none.
	Hidden func() []string

	// Cancel ends a run that its user has ended.
	Cancel func(ctx context.Context, run, by string) error

	// Shared reports whether another session has its conversations in the folder of
	// this one, so that the latest there may not be this one's. Nil means that it may.
	Shared func(s *Spec) bool

	// Stopped is called when a command has ended, before anything follows; nil is
	// for whoever reads the events instead.
	Stopped func(run string, s Stop)

	// Quotas is the folder in which status lines record how much of a quota is used.
	Quotas string

	// Warn reports something that stops nothing; nil means nobody is told.
	Warn func(text string)

	// Control is the address of the API by which programs report limits, for the variable TIDEOVER_CONTROL; "" means
	// that there is none.
	Control string

	// TypeAtReset is for how many stated ends of limits on its screen the prompt to continue is typed into a command
	// on a terminal; 0 means that nothing is ever typed.
	TypeAtReset int

	// Accounts has what is known of the limits of accounts; nil means that sessions share nothing.
	Accounts *account.Store

	// Wake ends the wait of a run that its account has held, see [WakeHeld]; nil means that such a run waits to
	// the end.
	Wake func(ctx context.Context, run, by string) error

	// Tests that are about time replace these; nil means guard.Run and askQuota.
	launch    func(context.Context, guard.Command) (guard.Result, error)
	readQuota func(ctx context.Context, s *Spec, env []string) ([]quota.Window, error)

	ending  atomic.Bool
	screens sync.Map // of commands on a terminal, by the names of their sessions: *screenWatch
	places  sync.Map // of sessions by name: a chan struct{} with room for one
	forced  sync.Map // runs that go on whatever the gate of their account says
	held    heldRuns
}

// Streams are what a command reads and writes. They are closed after it.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool                    // stdin and stdout are a terminal's
	Watch          func(watcher io.Writer) // shows what the terminal shows; nil if it is not one
	Control        TerminalControl         // nil if it is not a terminal
	Close          func() error
}

// End says that the process is about to end. A command that ends from now on by a
// signal was not ended by its user.
func (r *Runner) End() { r.ending.Store(true) }

// Handle makes one attempt: it runs the start or the resume command to its end,
// and says what follows.
func (r *Runner) Handle(ctx context.Context, t *engine.Task) ([]byte, error) {
	s := new(Spec)
	if err := json.Unmarshal(t.Args, s); err != nil {
		return nil, retry.Permanent(fmt.Errorf("stored session: %w", err))
	}
	before := ReadMemo(t.Progress)
	before.Limit = nil // of a command that does not run any more
	if t.Spent == 0 && t.Windows == 0 {
		before.InARow = 0 // it was put back to work, or reset
	}
	if until, quiet := s.Quiet.Until(time.Now()); quiet {
		return nil, engine.Keep(engine.SnoozeUntil(until, "quiet hours, "+s.Quiet.String()), before)
	}
	leave, err := r.enter(ctx, s)
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
	defer use.leave()
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
		return nil, s.beginAnew(memo, end.resumed, failure(end.stop, end.exit))
	}
	memo.Ended = true
	if held := use.record(end.stop, &memo); held != nil {
		return nil, s.waitForAccount(use, memo, held)
	}
	return r.judge(ctx, s, t, memo, end.stop)
}

// commandEnd is how the command of an attempt ended.
type commandEnd struct {
	memo    Memo // for the next attempt
	ran     bool // or it could not be run
	resumed bool // it was to resume the session
	stop    detect.Stop
	exit    int
	gone    bool // it was asked for a session that does not exist
}

// runCommand runs the start or the resume command of an attempt to its end. It returns an error if the command could not be
// run, or was told to end. What is stored meanwhile is what whole returns for the memo.
func (r *Runner) runCommand(ctx context.Context, s *Spec, t *engine.Task, before Memo, whole func(Memo) Memo) (commandEnd, error) {
	notRun := commandEnd{memo: before}
	pack, err := s.pack()
	if err != nil {
		return notRun, retry.Permanent(fmt.Errorf("stored session: detect: %w", err))
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
	if err := engine.SaveProgress(ctx, whole(memo)); err != nil { // an attempt after a crash must know
		return notRun, cmpCause(ctx, err)
	}
	running := newAttemptMemo(ctx, memo, whole)
	options := detect.Options{}
	if !mentions(s.Start, "Session") { // or the id is ours, whatever the output may quote
		options.OnSessionID = running.stated
	}
	d := detect.New(pack, options)
	end, err := r.run(ctx, commandRun{s, env, command, resumes, t.Total > 1, d, running.limited})
	done := commandEnd{memo: running.end(), ran: true, resumed: resumes, exit: end.Code}
	switch {
	case err != nil && ctx.Err() == nil && shortage.Is(err):
		return notRun, engine.Snooze(shortage.Delay(t.Total-t.Attempt), shortage.Note(err))
	case errors.Is(err, syscall.E2BIG):
		return notRun, retry.Permanent(fmt.Errorf("%w: %s", err, guard.TooBig))
	case err != nil:
		return notRun, cmpCause(ctx, err)
	case end.Code == process.CodeNotFound || end.Code == process.CodeNotExecutable:
		notRun.exit = end.Code
		return notRun, retry.Permanent(fmt.Errorf("exit code %d: %s can't be run", end.Code, command[0]))
	case end.Told:
		done.exit = 0
		done.memo.endTurn(Turn{Ended: turnInterrupted}, time.Now())
		return done, cmpCause(ctx, errors.New("told to end"))
	}
	done.stop = r.why(d, end.Code)
	if end.quit && end.Code == 0 && done.stop.Trust == detect.ByLine {
		// The limit was no last word: whoever saw it has ended the program.
		done.stop = detect.Stop{Reason: detect.Completed}
	}
	if r.ending.Load() && done.stop.Reason == detect.UserExit {
		<-ctx.Done() // the signal was meant for all of us, and the engine will say so
		done.exit = 0
		done.memo.endTurn(Turn{Ended: turnInterrupted}, time.Now())
		return done, context.Cause(ctx)
	}
	done.memo.note(done.stop, end.Code, time.Now())
	done.gone = end.Code != 0 && d.SessionGone()
	return done, nil
}

// cmpCause returns why the context ended, or the error if it has not.
func cmpCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// checkDir says that a folder is missing, which would otherwise look as if the
// command were.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a folder")
	}
	if err != nil {
		return fmt.Errorf("dir %s: %w", dir, err)
	}
	return nil
}

// enter waits until nothing else of the session runs here. The guard's lock does
// the same for other processes, but a terminal is taken before it.
func (r *Runner) enter(ctx context.Context, s *Spec) (leave func(), err error) {
	if r.Ready != nil {
		select {
		case <-r.Ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	v, _ := r.places.LoadOrStore(s.Name, make(chan struct{}, 1))
	place := v.(chan struct{}) //nolint:forcetypeassert // there is nothing else in it
	select {
	case place <- struct{}{}:
		return func() { <-place }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// commandRun is what is needed to run a command.
type commandRun struct {
	*Spec
	env, argv []string
	resumes   bool // it resumes the session
	waited    bool // something was run, or waited for, before it
	detector  *detect.Detector
	limited   func(*ScreenLimit) // is told of limits on its screen
}

// runEnd is how a run of a command ended.
type runEnd struct {
	guard.Result
	quit bool // its user typed after a limit had appeared on its screen
}

// run runs the command and shows its output to the detector. Secrets are hidden
// before anything is cut, or a part of one might show.
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
		c.Stdin = nil // what is piped into us is the prompt that the session has had
	case s.Stdin != "":
		c.Stdin = strings.NewReader(s.Stdin)
	}
	if streams.Control != nil {
		c.Suspend = streams.Control.Suspend
		if s.waited { // what was typed during a wait was not meant for the command
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
	quit := look.end()
	err = errors.Join(err, streams.Close())
	_, _ = out.Close(), errs.Close() // to memory
	return runEnd{end, quit}, err
}

// environment returns what the command sees.
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
