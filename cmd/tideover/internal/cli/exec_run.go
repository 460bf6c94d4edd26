package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/retry"
)

// codeTimeout is the exit code of a command that a timeout of ours has ended.
const codeTimeout = 124

// execution is one call of exec.
type execution struct {
	*execOptions
	sup     *process.Supervisor
	report  *reporter
	attempt int             // the number of the current attempt
	last    *process.Result // of the latest attempt; nil before the first
	stopped bool            // a signal told us to end during the latest attempt
}

// runExec runs the command through failure. Its error is an exit code, or an
// error of our own.
func runExec(io Streams, o *execOptions, args []string) error {
	events, err := openEvents(o.events)
	if err != nil {
		return fmt.Errorf("--events: %w", err)
	}
	defer events.close()
	x := &execution{execOptions: o, report: newReporter(io.Err, o)}
	events.failed = x.report.warn
	runner, err := retry.New(o.policy, x.options(filepath.Base(args[0]), events)...)
	if err != nil {
		return fmt.Errorf("--policy: %w", err)
	}
	x.sup, err = process.New(process.Config{
		Args:        args,
		Grace:       time.Duration(o.grace),
		StdinLimit:  int64(o.stdinLimit),
		Once:        o.policy.Retries() == 0,
		Buffer:      o.buffer,
		MatchStdout: o.untilOutput.Regexp,
		MatchStderr: o.retryStderr.Regexp,
		Notice:      x.report.warn,
		Stdin:       io.In, Stdout: io.Out, Stderr: io.Err,
	})
	if err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	defer func() { _ = x.sup.Close() }() // the outcome is known, whatever a temporary file says
	err = runner.Do(x.sup.Context(), x.run)
	x.report.done()
	return x.finish(err)
}

func (x *execution) options(name string, events *eventLog) []retry.Option {
	opts := []retry.Option{
		retry.WithName(name),
		retry.WithObserver(events.write),
		retry.WithObserver(x.observe),
	}
	if x.seeded {
		opts = append(opts, retry.WithSeed(x.seed))
	}
	return opts
}

func (x *execution) observe(e retry.Event) {
	if e.Kind == retry.AttemptStarted {
		x.attempt = e.Attempt
	}
	x.report.observe(e)
}

// run makes one attempt.
func (x *execution) run(ctx context.Context) error {
	r, err := x.sup.Run(ctx, x.environment()...)
	if start, ok := errors.AsType[*process.StartError](err); ok {
		return retry.Permanent(start)
	}
	if err != nil {
		return err // the context was done before the command was started
	}
	x.last, x.stopped = &r, x.sup.Stopped() != nil
	f := x.judge(r)
	if f == nil {
		return nil
	}
	if err := x.sup.Replayable(); f.final == "" && err != nil && x.mayRetry() {
		f.final = fmt.Sprintf("standard input could not be kept: %v", err)
		if errors.Is(err, process.ErrInputTooLong) {
			f.final = fmt.Sprintf("standard input is longer than %v (--stdin-limit) and can't be replayed", &x.stdinLimit)
		}
	}
	switch {
	case f.final != "":
		return retry.Permanent(f)
	case x.throttleOn.has(r.Code):
		return retry.Throttled(f)
	}
	return f
}

func (x *execution) mayRetry() bool {
	return x.policy.Attempts == retry.Unlimited || x.attempt < x.policy.Attempts
}

func (x *execution) environment() []string {
	attempts, last := "unlimited", ""
	if x.policy.Attempts != retry.Unlimited {
		attempts = strconv.Itoa(x.policy.Attempts)
	}
	if x.last != nil {
		last = strconv.Itoa(x.lastCode())
	}
	return []string{
		"TIDEOVER_ATTEMPT=" + strconv.Itoa(x.attempt),
		"TIDEOVER_ATTEMPTS=" + attempts,
		"TIDEOVER_LAST_EXIT=" + last,
	}
}

// finish passes on what was held back and turns the outcome into an exit code.
func (x *execution) finish(err error) error {
	code := x.code(err)
	if start, ok := errors.AsType[*process.StartError](err); ok {
		x.report.warn(start.Error())
	} else if err := x.sup.PassOn(); err != nil {
		if errors.Is(err, syscall.EPIPE) {
			return exitError(process.CodeSignal + int(syscall.SIGPIPE)) // what it would have died of
		}
		x.report.warn("standard output: " + err.Error())
		return exitError(codeOwn)
	}
	if code == 0 {
		return nil
	}
	return exitError(code)
}

func (x *execution) code(err error) int {
	if err == nil {
		return 0
	}
	if start, ok := errors.AsType[*process.StartError](err); ok {
		return start.Code
	}
	if stop := x.sup.Stopped(); stop != nil {
		if x.stopped && x.last.Signal == 0 && !x.last.TimedOut && x.last.Code != 0 {
			return x.last.Code // it ended by itself, as it was asked to
		}
		return stop.Code()
	}
	switch {
	case x.giveUpGiven && !errors.Is(err, retry.StopPermanent):
		return x.giveUpCode
	case errors.Is(err, retry.StopTotalTimeout), errors.Is(err, context.DeadlineExceeded):
		return codeTimeout
	case x.last == nil:
		x.report.warn(err.Error())
		return codeOwn
	case x.lastCode() == 0:
		return 1 // its own code would say that it succeeded
	default:
		return x.lastCode()
	}
}

// lastCode returns the exit code of the latest attempt.
func (x *execution) lastCode() int {
	if x.last.TimedOut {
		return codeTimeout
	}
	return x.last.Code
}
