package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/internal/console/control"
)

// Streams are the standard streams. They are files, because commands that tideover runs inherit
// them.
type Streams struct {
	In, Out, Err *os.File
}

// Exit is how the process ends: with an exit code, or by a signal.
type Exit struct {
	Code   int
	Signal syscall.Signal // signal to die of; 0 means to exit with Code
}

// Now ends the process.
func (e Exit) Now() {
	if e.Signal != 0 {
		process.Die(e.Signal)
	}
	os.Exit(e.Code)
}

// exitError is an [Exit] that a command returns as its error. Run prints no message for it.
type exitError Exit

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// codedError ends the program with an exit code and a message. The message does not point to the
// help, because the command line was correct.
type codedError struct {
	err  error
	code int
}

// Error returns the message. That of a server's error lists the runs that match an ambiguous name.
func (e *codedError) Error() string {
	p, ok := errors.AsType[*control.Error](e.err)
	if !ok {
		return e.err.Error()
	}
	text := visible(p.Error())
	for _, id := range p.Candidates {
		text += "\n  " + visible(id)
	}
	return text
}

func (e *codedError) Unwrap() error { return e.err }

// interruptedError is the cause of a context that ended because of a signal.
type interruptedError struct{ signal syscall.Signal } //nolint:errname // not a failure

func (t *interruptedError) Error() string { return "ended by a signal" }

// contextUntilSignal returns a context that ends with the first SIGINT or SIGTERM. A second one
// ends the process.
func contextUntilSignal(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			signal.Stop(signals)
			sig, _ := s.(syscall.Signal)
			cancel(&interruptedError{sig})
		case <-ctx.Done():
			signal.Stop(signals)
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}
