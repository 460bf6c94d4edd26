// Package guard runs commands that end together with this process and never overlap.
//
// A command runs under a separate process, the guard, which is this program with a hidden
// command name. When the process that started the guard ends, for any reason, the guard ends the
// command and all processes that the command started. Until they have ended, the guard holds a
// lock, for which the next attempt waits.
package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/internal/shortage"
)

// Name is the hidden command name of a guard.
const Name = "__guard"

// The file descriptors of a guard: the command may run while the other end of guardHold is open, and
// the guard writes its own messages to guardSays.
const (
	guardHold = 3
	guardSays = 4
)

// Main is the main function of a guard. args are a grace period, the path of a lock, "--", and the
// command with its arguments. It ends the command, and all processes that the command has started,
// when the other end of descriptor 3 is closed: at the end of the attempt or of the server. Until
// they have ended it holds the lock, so that the next attempt does not overlap. It returns the
// command's exit code.
func Main(args []string) int {
	// The command is killed when the thread that started it ends.
	runtime.LockOSThread()
	says := os.NewFile(guardSays, "says")
	closeOnExec(says)
	code, told, err := guard(args, says)
	if told {
		fmt.Fprint(says, saysEnded)
	}
	switch start, ok := errors.AsType[*process.StartError](err); {
	case shortage.Is(err):
		fmt.Fprint(says, saysShortage, err)
	case ok && !start.Transient():
		fmt.Fprintf(os.Stderr, "tideover: %v\n", err) // part of the command's output: the attempt counts as a failure of the command
	case err != nil:
		fmt.Fprint(says, err)
	}
	return code
}

// saysShortage is the prefix of an error message if the machine lacks resources to start the command.
const saysShortage = "\x01"

// saysStopped means that the command was stopped, as by Ctrl-Z. The process that started the guard
// answers with holdContinue. The guard can send it several times, before any other message.
const saysStopped = "\x02"

// Messages to a guard, on descriptor guardHold. Guards of earlier releases ignore them.
const (
	holdSuspends = 'j' // the sender answers saysStopped
	holdContinue = 'c' // continue the command
)

// saysEnded is the prefix of the last message if the guard has ended the command.
const saysEnded = "\x00"

func guard(args []string, says *os.File) (code int, told bool, err error) {
	if i := slices.Index(args, "--"); i != 2 || len(args) < 4 {
		return process.CodeInternal, false, errors.New("this is an internal command of tideover")
	}
	grace, err := time.ParseDuration(args[0])
	if err != nil {
		return process.CodeInternal, false, err
	}
	cgroup := process.NewCgroup()
	defer process.RemoveCgroup(cgroup)
	watch := &holder{says: says, continued: make(chan struct{}, 1), over: make(chan struct{})}
	sup, err := process.New(process.Config{Args: args[3:], Grace: grace, Once: true, DieWithUs: true, Cgroup: cgroup, Suspend: watch.suspend})
	if err != nil {
		return process.CodeInternal, false, err
	}
	defer func() { _ = sup.Close() }()
	ctx, cancel := context.WithCancel(sup.Context())
	defer cancel()
	hold := os.NewFile(guardHold, "hold")
	closeOnExec(hold)
	go func() {
		watch.read(hold)
		cancel()
	}()
	held, err := lock(ctx, args[1])
	if err != nil {
		return process.CodeInternal, false, fmt.Errorf("waiting for the previous attempt to end: %w", err)
	}
	if err := process.EndLeftovers(ctx, held.leftovers(), grace); err != nil {
		return process.CodeInternal, false, err // the lock file stays, and with it the record of the processes
	}
	defer held.unlock()
	if err := held.record(process.Leftovers{Env: identity(), Cgroup: cgroup}); err != nil {
		return process.CodeInternal, false, fmt.Errorf("recording the command in the lock file: %w", err)
	}
	res, err := sup.Run(ctx)
	if start, ok := errors.AsType[*process.StartError](err); ok {
		return start.Code, false, err
	}
	if err != nil {
		return process.CodeInternal, false, err
	}
	return res.Code, res.TimedOut, nil
}

// holder is the process that started the guard, as seen by the guard.
type holder struct {
	says      io.StringWriter
	suspends  atomic.Bool   // the process answers saysStopped
	continued chan struct{} // has an element after holdContinue
	over      chan struct{} // closed when the process has ended
}

// read handles the messages of the holder, until it has ended.
func (h *holder) read(hold io.Reader) {
	defer close(h.over)
	var c [1]byte
	for {
		n, err := hold.Read(c[:])
		switch {
		case n > 0 && c[0] == holdSuspends:
			h.suspends.Store(true)
		case n > 0 && c[0] == holdContinue:
			select {
			case h.continued <- struct{}{}:
			default:
			}
		}
		if err != nil {
			return
		}
	}
}

// suspend reports that the command was stopped, and waits until it may continue. It returns false
// if the holder does not handle stops.
func (h *holder) suspend() bool {
	if !h.suspends.Load() {
		return false
	}
	if _, err := h.says.WriteString(saysStopped); err != nil {
		return false
	}
	select {
	case <-h.continued:
	case <-h.over:
	}
	return true
}

// identity returns the variables that only the processes of this attempt have in their environment.
// It returns none if the command is not an attempt: the command of a notifier has a run and a step,
// too, but no attempt number.
func identity() (env []string) {
	if os.Getenv("TIDEOVER_RUN_ID") == "" || os.Getenv("TIDEOVER_ATTEMPT_TOTAL") == "" {
		return nil
	}
	for _, name := range []string{"TIDEOVER_RUN_ID", "TIDEOVER_STEP", "TIDEOVER_SESSION", "TIDEOVER_ATTEMPT_TOTAL"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
