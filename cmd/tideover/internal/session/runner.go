package session

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/quota"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// ControlVar is the environment variable with the address of the API that controls the session.
const ControlVar = "TIDEOVER_CONTROL"

// Handler is the name of the step handler of sessions.
const Handler = "session"

// Grace is the time between TERM and KILL for a command. It is shorter than the grace period of the
// engine, after which the engine would mark the attempt as stuck.
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

	// Cancel cancels the run of a session whose user has ended the command.
	Cancel func(ctx context.Context, run, by string) error

	// Shared reports whether the latest conversation in the folder may belong to another session.
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

	// TypeAtReset is how many times the prompt to continue may be typed into an interactive command at the stated end of a
	// limit; 0 means never.
	TypeAtReset int

	// Accounts stores the limits of accounts; nil means that sessions share nothing.
	Accounts *account.Store

	// Wake ends the wait of a run that its account holds back, as [WakeHeld] does; nil means that such a run waits until the
	// end of its wait.
	Wake func(ctx context.Context, run, by string) error

	// Tests replace these functions; nil means guard.Run and askQuota.
	launch    func(context.Context, guard.Command) (guard.Result, error)
	readQuota func(ctx context.Context, s *Spec, env []string) ([]quota.Window, error)

	ending  atomic.Bool // the process is shutting down
	screens sync.Map    // of commands on a terminal, by session name: *screenWatch
	slots   sync.Map    // by session name: a chan struct{} of capacity 1, which serialises its commands
	forced  sync.Map    // runs whose next attempt ignores the gate of the account
	held    heldRuns
}

// Streams are the standard streams of a command. The runner calls Close after the command.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool                    // stdin and stdout are a terminal
	Watch          func(watcher io.Writer) // copies the terminal's output to watcher; nil without a terminal
	Control        TerminalControl         // nil without a terminal
	Close          func() error
}

// End marks that the process is shutting down. From now on, a command that is ended by a signal
// counts as interrupted, not as ended by its user.
func (r *Runner) End() { r.ending.Store(true) }

// Handle is the step handler of sessions. It makes one attempt: it runs the start or the resume
// command, and returns the output of a completed session, or an error that makes the engine wait,
// retry or give up.
func (r *Runner) Handle(ctx context.Context, t *engine.Task) ([]byte, error) {
	a := &attempt{runner: r, spec: new(Spec), task: t}
	if err := json.Unmarshal(t.Args, a.spec); err != nil {
		return nil, retry.Permanent(fmt.Errorf("decoding the stored session: %w", err))
	}
	return a.handle(ctx)
}

// acquire waits until commands may start and no other command of the session runs in this process.
// Call leave after the command. The lock of the guard is not enough: the command's terminal is in
// use before the guard takes that lock.
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

// Pass returns a [Runner.Open] for a process without a terminal: the first command reads stdin, and
// all commands write to stdout and stderr.
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
