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
	text  string // what happened
	final string // why it is not retried; empty if it may be
	grace time.Duration
}

// Error says what happened, and why it is final if it is.
func (f *failure) Error() string {
	if f.final == "" {
		return f.text
	}
	return f.text + "; not retried: " + f.final
}

// code returns the exit code that stands for the end.
func (f *failure) code() int {
	if f.TimedOut {
		return codeTimeout
	}
	return f.Code
}

// end says what it took to end an attempt that timed out, if that was more than to
// ask it to. A nil one says nothing.
func (f *failure) end() string {
	if f == nil || f.Signal != syscall.SIGKILL {
		return ""
	}
	return ", and killed after a grace of " + textfmt.ReadableDuration(f.grace)
}

// Is makes an attempt that timed out a [context.DeadlineExceeded].
func (f *failure) Is(target error) bool {
	return f.TimedOut && target == context.DeadlineExceeded
}

// judge says what the end of an attempt means: nil for a success. unread says
// that we found nobody to pass its output on to.
func (x *execution) judge(r process.Result, unread bool) *failure {
	f := &failure{Result: r, text: fmt.Sprintf("exited with %d", r.Code), grace: time.Duration(x.grace)}
	if r.Signal != 0 {
		f.text = fmt.Sprintf("died of signal %d (%v)", int(r.Signal), r.Signal)
	}
	switch {
	case r.TimedOut:
		if !x.retryTimeouts {
			f.final = "--retry-timeouts=false"
		}
	case r.Code == 0 && (x.untilOutput.Regexp == nil || r.MatchedStdout):
		return nil
	case r.Code == 0:
		f.text += ", but no line of its output matched"
	case x.interruption(r) == syscall.SIGHUP:
		f.final = "the terminal is gone"
	case x.interruption(r) != 0:
		f.final = "it was interrupted"
	case unread || x.sup.ReaderGone():
		f.final = "nobody reads its output any more"
	case x.stopOn.Has(r.Code):
		f.final = "--stop-on has the code"
	case x.retryOn.Given() && !x.retryOn.Has(r.Code):
		f.final = "--retry-on does not have the code"
	case x.retryStderr.Regexp != nil && !r.MatchedStderr:
		f.final = "no line of its stderr matched"
	}
	return f
}

// interruption returns the signal by which somebody at the terminal ended the
// attempt, 0 if nobody did. The terminal's signals go to the command and not to
// us, so its end is all we see.
func (x *execution) interruption(r process.Result) syscall.Signal {
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
