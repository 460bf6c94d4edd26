package cli

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// reporter prints the progress of exec to standard error, from the events of the runner.
type reporter struct{ progressPrinter }

func newReporter(out *os.File, grace *graceWriter, o *execOptions) *reporter {
	quiet := o.quiet || o.holdOutput
	return &reporter{progressPrinter{
		out: grace, file: out, quiet: quiet, draw: !quiet && !o.noCountdown && process.IsTerminal(out),
		clean: func(text string) string { return text },
	}}
}

func (r *reporter) observe(e retry.Event) {
	switch e.Kind {
	case retry.AttemptStarted:
		r.stopCountdown()
	case retry.Waiting:
		r.printInfo("attempt %s %s; next in %s", attemptOf(e.Attempt, e.Attempts), describeEnd(e.Err), textfmt.ReadableDuration(e.Delay))
		label := "tideover: attempt " + attemptOf(e.Attempt+1, e.Attempts) + " in "
		r.showCountdown(label, "; press Ctrl-C to stop", e.Delay, e.Until)
	case retry.Succeeded:
		if e.Attempt > 1 {
			r.printInfo("attempt %s succeeded after %s", attemptOf(e.Attempt, e.Attempts), textfmt.ReadableDuration(e.Elapsed))
		}
	case retry.GaveUp:
		r.stopCountdown()
		r.gaveUp(e)
	default: // other events are not printed, or are part of the line about the wait
	}
}

func (r *reporter) gaveUp(e retry.Event) {
	err, ok := errors.AsType[*retry.Error](e.Err)
	_, notStarted := errors.AsType[*process.StartError](e.Err)
	_, notWritten := errors.AsType[*process.OutputError](e.Err)
	if !ok || notStarted || notWritten { // execution.finish prints a StartError and an OutputError
		return
	}
	tries := textfmt.Plural(err.Attempts, "attempt")
	why := describeEnd(err.Last)
	switch err.Reason {
	case retry.StopAttempts, retry.StopPermanent:
	case retry.StopCanceled:
		stop, ok := errors.AsType[*process.SignalError](err.Cause)
		if ok && stop.Signal == syscall.SIGINT {
			r.printInfo("interrupted after %s in %s", tries, textfmt.ElapsedDuration(err.Elapsed))
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
	text := fmt.Sprintf("%s after %s in %s: %s", did, tries, textfmt.ElapsedDuration(err.Elapsed), why)
	if err.Reason == retry.StopCanceled {
		r.printInfo("%s", text)
		return
	}
	r.warn(text)
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
	case timedOut:
		text := "timed out after " + textfmt.ReadableDuration(t.Limit) + f.killedSuffix()
		if failed && f.final != "" {
			text += "; not retried: " + f.final
		}
		return text
	}
	return err.Error()
}
