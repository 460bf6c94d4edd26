package cli

import (
	"context"
	"fmt"
	"syscall"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
)

// failure is an attempt that did not succeed.
type failure struct {
	process.Result
	text  string // what happened
	final string // why it is not retried; empty if it may be
}

// Error says what happened, and why it is final if it is.
func (f *failure) Error() string {
	if f.final == "" {
		return f.text
	}
	return f.text + "; not retried: " + f.final
}

// Is makes an attempt that timed out a [context.DeadlineExceeded].
func (f *failure) Is(target error) bool {
	return f.TimedOut && target == context.DeadlineExceeded
}

// judge says what the end of an attempt means: nil for a success.
func (x *execution) judge(r process.Result) *failure {
	f := &failure{Result: r, text: fmt.Sprintf("exited with %d", r.Code)}
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
	case x.interrupted(r):
		f.final = "it was interrupted"
	case r.Code == process.CodeSignal+int(syscall.SIGPIPE) && x.sup.ReaderGone():
		f.final = "nobody reads its output any more"
	case x.stopOn.has(r.Code):
		f.final = "--stop-on has the code"
	case x.retryOn.given() && !x.retryOn.has(r.Code):
		f.final = "--retry-on does not have the code"
	case x.retryStderr.Regexp != nil && !r.MatchedStderr:
		f.final = "no line of its stderr matched"
	}
	return f
}

// interrupted reports whether somebody at the terminal ended the attempt. The
// terminal's signals go to the command and not to us, so its end is all we see.
func (x *execution) interrupted(r process.Result) bool {
	if !r.Terminal {
		return false
	}
	const byInterrupt = process.CodeSignal + int(syscall.SIGINT)
	return r.Signal == syscall.SIGINT || r.Signal == syscall.SIGQUIT ||
		r.Code == byInterrupt && !x.retryOn.has(byInterrupt)
}
