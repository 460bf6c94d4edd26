// Package guard runs commands that end with us, and never twice at once.
//
// A command runs under a process of its own, the guard, which is this program
// under a hidden name. When whoever asked for the command goes away, however
// that happens, the guard ends the command and everything the command has
// started, and meanwhile it holds a lock that the next attempt waits for.
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

// Name is the hidden command under which this program is a guard.
const Name = "__guard"

// The descriptors of a guard: one says for how long the command may run, the other
// is for errors that are not the command's.
const (
	guardHold = 3
	guardSays = 4
)

// Main is the guard. It runs one command: a grace, the path of a lock, "--", and the command with
// its arguments. It ends the command, and everything the command has started, when
// the other end of descriptor 3 is closed: because the attempt is over, or because
// the server is. It holds the lock meanwhile, so that the attempt of the server's
// successor does not begin beside it. It returns the command's exit code.
func Main(args []string) int {
	// The command dies with the thread that has started it.
	runtime.LockOSThread()
	says := os.NewFile(guardSays, "says")
	keep(says)
	code, told, err := guard(args, says)
	if told {
		fmt.Fprint(says, saysTold)
	}
	switch start, ok := errors.AsType[*process.StartError](err); {
	case shortage.Is(err):
		fmt.Fprint(says, saysShortage, err)
	case ok && !start.Transient():
		fmt.Fprintf(os.Stderr, "tideover: %v\n", err) // which is as good as the command's own
	case err != nil:
		fmt.Fprint(says, err)
	}
	return code
}

// saysShortage is how the guard says that it could not start the command because this machine has not
// enough of something.
const saysShortage = "\x01"

// saysStopped is how the guard says that the command was stopped, as by Ctrl-Z. It comes before anything else that
// the guard says, and is answered with holdContinue.
const saysStopped = "\x02"

// What is written to a guard, on the descriptor that says for how long the command may run. Guards of earlier releases
// read it as nothing.
const (
	holdSuspends = 'j' // stops of the command are answered
	holdContinue = 'c' // the command goes on
)

// saysTold is how the guard says that it has told the command to end.
const saysTold = "\x00"

func guard(args []string, says *os.File) (code int, told bool, err error) {
	if i := slices.Index(args, "--"); i != 2 || len(args) < 4 {
		return process.CodeInternal, false, errors.New("this command is for tideover itself")
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
	keep(hold)
	go func() {
		watch.read(hold)
		cancel()
	}()
	held, err := lock(ctx, args[1])
	if err != nil {
		return process.CodeInternal, false, fmt.Errorf("wait for the attempt before: %w", err)
	}
	if err := process.EndLeftovers(ctx, held.leftovers(), grace); err != nil {
		return process.CodeInternal, false, err // the lock stays, and with it what is known of them
	}
	defer held.unlock()
	if err := held.note(process.Leftovers{Env: identity(), Cgroup: cgroup}); err != nil {
		return process.CodeInternal, false, fmt.Errorf("note what is started: %w", err)
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

// holder is whoever has asked for the command, as the guard sees it.
type holder struct {
	says      io.StringWriter
	suspends  atomic.Bool   // it answers when the command was stopped
	continued chan struct{} // has an element if it has said that the command goes on
	over      chan struct{} // closed when it has gone
}

// read reads what the holder writes, until it has gone.
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

// suspend says that the command was stopped, and waits until it is to go on. It reports
// whether there is somebody to say it to.
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

// identity returns the variables by which processes of this attempt are known, and those of no
// other: the command of a notifier has the run and the step too. Without an attempt there are
// none.
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
