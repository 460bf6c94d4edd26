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

// reporter prints the progress of exec to standard error, from the events of the runner.
type reporter struct {
	file      *os.File
	out       *graceWriter // to the file
	quiet     bool
	draw      bool // show a countdown
	mu        sync.Mutex
	countdown *countdown // nil if none is running
}

func newReporter(out *os.File, o *execOptions) *reporter {
	return &reporter{file: out, out: &graceWriter{out: out, grace: time.Duration(o.grace)}, quiet: o.quiet, draw: !o.quiet && !o.noCountdown && process.IsTerminal(out)}
}

func (r *reporter) observe(e retry.Event) {
	switch e.Kind {
	case retry.AttemptStarted:
		r.stopCountdown()
	case retry.Waiting:
		r.printInfo("attempt %s %s; next in %s", attemptOf(e.Attempt, e.Attempts), describeEnd(e.Err), textfmt.ReadableDuration(e.Delay))
		r.showCountdown(e)
	case retry.Succeeded:
		if e.Attempt > 1 {
			r.printInfo("attempt %s succeeded after %s", attemptOf(e.Attempt, e.Attempts), textfmt.ReadableDuration(e.Elapsed))
		}
	case retry.GaveUp:
		r.stopCountdown()
		r.gaveUp(e)
	default: // included in the line about the wait, or not printed
	}
}

func (r *reporter) gaveUp(e retry.Event) {
	err, ok := errors.AsType[*retry.Error](e.Err)
	if !ok {
		return
	}
	if _, ok := errors.AsType[*process.StartError](err); ok {
		return // printed as an error by finish
	}
	if _, ok := errors.AsType[*process.OutputError](err); ok {
		return // likewise
	}
	tries := fmt.Sprintf("%d attempts", err.Attempts)
	if err.Attempts == 1 {
		tries = "1 attempt"
	}
	why := describeEnd(err.Last)
	switch err.Reason {
	case retry.StopAttempts, retry.StopPermanent:
	case retry.StopCanceled:
		stop, ok := errors.AsType[*process.SignalError](err.Cause)
		if ok && stop.Signal == syscall.SIGINT {
			r.printInfo("interrupted after %s in %s", tries, textfmt.ReadableDuration(err.Elapsed))
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
	r.printInfo("%s after %s in %s: %s", did, tries, textfmt.ReadableDuration(err.Elapsed), why)
}

// printInfo prints a line, unless --quiet is given.
func (r *reporter) printInfo(format string, args ...any) {
	if !r.quiet {
		r.warn(fmt.Sprintf(format, args...))
	}
}

// warn prints a line, also with --quiet.
func (r *reporter) warn(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.countdown != nil {
		r.countdown.erase()
	}
	fmt.Fprintf(r.out, "tideover: %s\n", text)
}

// showCountdown starts a countdown if the terminal is ours and the wait is at least a second.
func (r *reporter) showCountdown(e retry.Event) {
	if !r.draw || e.Delay < time.Second || !process.Foreground(r.file) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.countdown = startCountdown(r.out, r.file, "tideover: attempt "+attemptOf(e.Attempt+1, e.Attempts)+" in ", "; press Ctrl-C to stop", e.Until)
}

// stopCountdown stops the countdown, if there is one.
func (r *reporter) stopCountdown() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.countdown != nil {
		r.countdown.stop()
		r.countdown = nil
	}
}

// attemptOf returns "2/5", or "2" if the number of attempts is unlimited.
func attemptOf(n, of int) string {
	if of == retry.Unlimited {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d/%d", n, of)
}

// describeEnd says how an attempt ended.
func describeEnd(err error) string {
	if err == nil {
		return "not started"
	}
	t, timedOut := errors.AsType[*retry.TimeoutError](err)
	f, failed := errors.AsType[*failure](err)
	switch {
	case timedOut && t.Total:
		return "total timeout of " + textfmt.ReadableDuration(t.Limit) + " reached" + f.killedSuffix()
	case timedOut && failed && f.final != "":
		return "timed out after " + textfmt.ReadableDuration(t.Limit) + f.killedSuffix() + "; not retried: " + f.final
	case timedOut:
		return "timed out after " + textfmt.ReadableDuration(t.Limit) + f.killedSuffix()
	default:
		return err.Error()
	}
}
