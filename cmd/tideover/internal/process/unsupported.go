//go:build !unix

package process

import (
	"context"
	"os"
	"os/exec"
	"syscall"
)

var errBusy = ErrUnsupported

// Supervisor does not exist on this system: New fails, so its methods are never called.
type Supervisor struct{}

// New returns [ErrUnsupported].
func New(Config) (*Supervisor, error) { return nil, ErrUnsupported }

// Context is never called.
func (*Supervisor) Context() context.Context { return context.Background() }

// Stopped is never called.
func (*Supervisor) Stopped() *SignalError { return nil }

// Run is never called.
func (*Supervisor) Run(context.Context, ...string) (Result, error) { return Result{}, ErrUnsupported }

// Replayable is never called.
func (*Supervisor) Replayable() error { return nil }

// ReaderGone is never called.
func (*Supervisor) ReaderGone() bool { return false }

// Interrupted is never called.
func (*Supervisor) Interrupted(syscall.Signal) {}

// PassOn is never called.
func (*Supervisor) PassOn() error { return ErrUnsupported }

// Close is never called.
func (*Supervisor) Close() error { return nil }

// Startable returns nil.
func Startable(string, string) error { return nil }

// OwnGroup does nothing: there are no process groups on this system.
func OwnGroup(*exec.Cmd) {}

// Die exits with 128+n.
func Die(sig syscall.Signal) { os.Exit(CodeSignal + int(sig)) }

// IsTerminal returns false: terminals are not detected on this system.
func IsTerminal(*os.File) bool { return false }

// Foreground returns false.
func Foreground(*os.File) bool { return false }
