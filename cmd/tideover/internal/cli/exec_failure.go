package cli

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/internal/textfmt"
)

// failure is an attempt that did not succeed.
type failure struct {
	process.Result
	text  string // how the attempt ended
	final string // why it is not retried; empty if it can be
	grace time.Duration
}

// Error says how the attempt ended, and why it is not retried.
func (f *failure) Error() string {
	if f.final == "" {
		return f.text
	}
	return f.text + "; not retried: " + f.final
}

// resultCode returns the exit code of an attempt; codeTimeout if it timed out.
func resultCode(r *process.Result) int {
	if r.TimedOut {
		return codeTimeout
	}
	return r.Code
}

// killedSuffix says that an attempt that timed out had to be killed after the grace period. It is
// empty if TERM was enough, or if f is nil.
func (f *failure) killedSuffix() string {
	if f == nil || f.Signal != syscall.SIGKILL {
		return ""
	}
	return ", then killed after a grace period of " + textfmt.ReadableDuration(f.grace)
}

// Is makes an attempt that timed out match [context.DeadlineExceeded].
func (f *failure) Is(target error) bool {
	return f.TimedOut && target == context.DeadlineExceeded
}

// classify returns the failure of an attempt, or nil if it succeeded. unread means that the reader
// of our standard output is gone.
func (x *execution) classify(r process.Result, unread bool) *failure {
	f := &failure{Result: r, text: fmt.Sprintf("exited with %d", r.Code), grace: time.Duration(x.grace)}
	if r.Signal != 0 {
		f.text = fmt.Sprintf("killed by signal %d (%v)", int(r.Signal), r.Signal)
	}
	switch {
	case r.TimedOut:
		if !x.retryTimeouts {
			f.final = "--retry-timeouts=false"
		}
	case r.Code == 0 && (x.untilOutput.Regexp == nil || r.MatchedStdout):
		return nil
	case r.Code == 0:
		f.text += ", but no line of its output matched --until-output"
	case x.terminalSignal(r) == syscall.SIGHUP:
		f.final = "the terminal was closed"
	case x.terminalSignal(r) != 0:
		f.final = "it was interrupted"
	case unread || x.sup.ReaderGone():
		f.final = "the reader of its output is gone"
	case x.stopOn.Has(r.Code):
		f.final = "--stop-on contains the exit code"
	case x.retryOn.Given() && !x.retryOn.Has(r.Code):
		f.final = "--retry-on does not contain the exit code"
	case x.retryStderr.Regexp != nil && !r.MatchedStderr:
		f.final = "no line of its stderr matched --retry-stderr"
	}
	return f
}

// terminalSignal returns the signal that the user sent to the command from the terminal; 0 if there
// was none. The terminal sends signals to the command and not to this process, so the end of the
// command is the only evidence.
func (x *execution) terminalSignal(r process.Result) syscall.Signal {
	const byInterrupt = process.CodeSignal + int(syscall.SIGINT)
	switch {
	case !r.Terminal:
		return 0
	case r.Signal == syscall.SIGINT, r.Signal == syscall.SIGQUIT:
		return r.Signal
	case (r.Signal == syscall.SIGHUP || r.HungUp && r.Code != 0) && !signal.Ignored(syscall.SIGHUP):
		return syscall.SIGHUP
	case r.Code == byInterrupt && !x.retryOn.Has(byInterrupt):
		return syscall.SIGINT
	}
	return 0
}
