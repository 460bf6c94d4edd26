package cli

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// reporter writes our lines to standard error. It reads the events of the
// runner and knows nothing else.
type reporter struct {
	file      *os.File
	out       *patient // to the file
	quiet     bool
	draw      bool // a countdown is wanted
	mu        sync.Mutex
	countdown *countdown // the one that is running
}

func newReporter(out *os.File, o *execOptions) *reporter {
	return &reporter{file: out, out: &patient{out: out, grace: time.Duration(o.grace)}, quiet: o.quiet, draw: !o.quiet && !o.noCountdown && process.IsTerminal(out)}
}

func (r *reporter) observe(e retry.Event) {
	switch e.Kind {
	case retry.AttemptStarted:
		r.done()
	case retry.Waiting:
		r.say("attempt %s %s; next in %s", ordinal(e.Attempt, e.Attempts), ending(e.Err), textfmt.ReadableDuration(e.Delay))
		r.count(e)
	case retry.Succeeded:
		if e.Attempt > 1 {
			r.say("attempt %s succeeded after %s", ordinal(e.Attempt, e.Attempts), textfmt.ReadableDuration(e.Elapsed))
		}
	case retry.GaveUp:
		r.done()
		r.gaveUp(e)
	default: // said with the wait that follows, or of no interest here
	}
}

func (r *reporter) gaveUp(e retry.Event) {
	err, ok := errors.AsType[*retry.Error](e.Err)
	if !ok {
		return
	}
	if _, ok := errors.AsType[*process.StartError](err); ok {
		return // said once, as an error
	}
	if _, ok := errors.AsType[*process.OutputError](err); ok {
		return // likewise
	}
	tries := fmt.Sprintf("%d attempts", err.Attempts)
	if err.Attempts == 1 {
		tries = "1 attempt"
	}
	why := ending(err.Last)
	switch err.Reason {
	case retry.StopAttempts, retry.StopPermanent:
	case retry.StopCanceled:
		stop, ok := errors.AsType[*process.SignalError](err.Cause)
		if ok && stop.Signal == syscall.SIGINT {
			r.say("interrupted after %s in %s", tries, textfmt.ReadableDuration(err.Elapsed))
			return
		}
		if ok {
			why = stop.Error()
		}
	default:
		if t, ok := errors.AsType[*retry.TimeoutError](err.Last); !ok || !t.Total {
			why = err.Reason.Error() + "; the last attempt " + why
		}
	}
	did := "gave up"
	if err.Reason == retry.StopPermanent {
		did = "stopped"
	}
	r.say("%s after %s in %s: %s", did, tries, textfmt.ReadableDuration(err.Elapsed), why)
}

// say writes a line unless we are to be quiet.
func (r *reporter) say(format string, args ...any) {
	if !r.quiet {
		r.warn(fmt.Sprintf(format, args...))
	}
}

// warn writes a line in any case.
func (r *reporter) warn(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.countdown != nil {
		r.countdown.erase()
	}
	fmt.Fprintf(r.out, "tideover: %s\n", text)
}

// count starts a countdown, if there is somebody to see it and time to read it.
func (r *reporter) count(e retry.Event) {
	if !r.draw || e.Delay < time.Second || !process.Foreground(r.file) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.countdown = startCountdown(r.out, r.file, "tideover: attempt "+ordinal(e.Attempt+1, e.Attempts)+" in ", "; Ctrl-C ends it", e.Until)
}

// done ends the countdown.
func (r *reporter) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.countdown != nil {
		r.countdown.stop()
		r.countdown = nil
	}
}

// ordinal returns "2/5", or "2" where there is no limit.
func ordinal(n, of int) string {
	if of == retry.Unlimited {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d/%d", n, of)
}

// ending says how an attempt ended.
func ending(err error) string {
	if err == nil {
		return "not started"
	}
	t, timedOut := errors.AsType[*retry.TimeoutError](err)
	f, failed := errors.AsType[*failure](err)
	switch {
	case timedOut && t.Total:
		return "total timeout of " + textfmt.ReadableDuration(t.Limit) + " reached" + f.end()
	case timedOut && failed && f.final != "":
		return "timed out after " + textfmt.ReadableDuration(t.Limit) + f.end() + "; not retried: " + f.final
	case timedOut:
		return "timed out after " + textfmt.ReadableDuration(t.Limit) + f.end()
	default:
		return err.Error()
	}
}
