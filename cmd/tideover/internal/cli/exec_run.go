package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// codePipe is the exit code of a command whose output can't be written because the reader is gone.
const codePipe = process.CodeSignal + int(syscall.SIGPIPE)

// execution has the state of one tideover exec: the flags, the command and its attempts.
type execution struct {
	*execOptions
	sup       *process.Supervisor
	report    *reporter
	notifiers *notifierSet
	attempt   int             // the number of the current attempt
	last      *process.Result // result of the latest attempt; nil before the end of the first
	stopped   bool            // a signal to tideover ended the latest attempt
}

// runExec runs the command with retries. It returns an exitError for the outcome of the command, or
// another error if tideover itself failed.
func runExec(io Streams, o *execOptions, args []string) error {
	events, err := openEvents(o.events, time.Duration(o.grace))
	if err != nil {
		return fmt.Errorf("--events: %w", err)
	}
	defer events.file.Close() // does nothing without --events
	stderr := &graceWriter{out: io.Err, grace: time.Duration(o.grace)}
	x := &execution{execOptions: o, report: newReporter(io.Err, stderr, o)}
	events.failed = x.report.warn
	if x.notifiers, err = newNotifierSet(o.config, o.notify); err != nil {
		return err
	}
	x.notifiers.warn = x.report.warn
	name := cmp.Or(o.name, filepath.Base(args[0]))
	options := []retry.Option{retry.WithName(name), retry.WithObserver(events.write), retry.WithObserver(x.observe)}
	if o.seeded {
		options = append(options, retry.WithSeed(o.seed))
	}
	runner, err := retry.New(o.policy, options...)
	if err != nil {
		return fmt.Errorf("--policy: %w", err)
	}
	x.sup, err = process.New(process.Config{
		Args:        args,
		Grace:       time.Duration(o.grace),
		StdinLimit:  int64(o.stdinLimit),
		Once:        o.policy.Retries() == 0,
		Buffer:      o.buffer,
		Hold:        o.holdOutput,
		MatchStdout: o.untilOutput.Regexp,
		MatchStderr: o.retryStderr.Regexp,
		Notice:      x.report.warn,
		Stdin:       io.In, Stdout: io.Out, Stderr: io.Err,
	})
	if err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	defer func() { _ = x.sup.Close() }() // an error about a temporary file does not change the outcome
	events.out.stopOn(x.sup.Context())
	stderr.stopOn(x.sup.Context())
	err = runner.Do(x.sup.Context(), x.run)
	x.report.stopCountdown()
	x.notifiers.finish(x.sup.Context())
	return x.finish(err)
}

func (x *execution) observe(e retry.Event) {
	if e.Kind == retry.AttemptStarted {
		x.attempt = e.Attempt
	}
	if e.Kind == retry.GaveUp && x.holdOutput {
		x.printHeld()
	}
	x.report.observe(e)
	x.notifiers.observe(e)
}

// printHeld prints the output of all attempts. The exit code stays that of the command.
func (x *execution) printHeld() {
	err := x.sup.PassOn()
	if _, stopped := errors.AsType[*process.SignalError](err); err != nil && !stopped && !errors.Is(err, syscall.EPIPE) {
		x.report.warn("printing the output of the attempts: " + err.Error())
	}
}

// run makes one attempt. It marks the error as permanent if the attempt must not be retried, and as
// throttled if the exit code is in --throttle-on.
func (x *execution) run(ctx context.Context) error {
	r, err := x.sup.Run(ctx, x.environment()...)
	output, broken := errors.AsType[*process.OutputError](err)
	if start, ok := errors.AsType[*process.StartError](err); ok {
		if start.Transient() {
			return start
		}
		return retry.Permanent(start)
	}
	if err != nil && !broken {
		return err // the context ended before the command was started
	}
	unread := broken && errors.Is(output, syscall.EPIPE)
	if unread && r.Code == 0 {
		r.Code = codePipe // without tideover, SIGPIPE would have killed the command
	}
	if sig := x.terminalSignal(r); sig != 0 && x.sup.Stopped() == nil {
		x.sup.Interrupted(sig)
	}
	x.last, x.stopped = &r, x.sup.Stopped() != nil
	if broken && !unread {
		return retry.Permanent(output)
	}
	f := x.classify(r, unread)
	if f == nil {
		return nil
	}
	return x.outcome(f)
}

// outcome returns the error of a failed attempt, which decides what follows.
func (x *execution) outcome(f *failure) error {
	if err := x.sup.Replayable(); f.final == "" && err != nil && x.mayRetry() {
		f.final = fmt.Sprintf("standard input could not be stored: %v", err)
		if errors.Is(err, process.ErrInputTooLong) {
			f.final = fmt.Sprintf("standard input is longer than %v (--stdin-limit) and can't be replayed", &x.stdinLimit)
		}
	}
	switch {
	case f.final != "":
		return retry.Permanent(f)
	case x.throttleOn.Has(f.Code):
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
		last = strconv.Itoa(resultCode(x.last))
	}
	return []string{
		"TIDEOVER_ATTEMPT=" + strconv.Itoa(x.attempt),
		"TIDEOVER_ATTEMPTS=" + attempts,
		"TIDEOVER_LAST_EXIT=" + last,
	}
}

// finish writes the buffered output of a successful attempt and returns the exit code as an
// exitError; nil for 0.
func (x *execution) finish(err error) error {
	exit := exitError{Code: x.code(err)}
	if start, ok := errors.AsType[*process.StartError](err); ok {
		x.report.warn(start.Error())
	} else if output, ok := errors.AsType[*process.OutputError](err); ok {
		x.report.warn(output.Error())
	} else if err == nil && !x.holdOutput { // the output of a failed attempt is dropped
		if err := x.sup.PassOn(); err != nil {
			exit.Code = x.outputErrorCode(err)
		}
	}
	if stop := x.sup.Stopped(); stop != nil && exit.Code == stop.Code() && !x.exitedAfterSignal() {
		exit.Signal = stop.Signal
	}
	if exit.Code == 0 {
		return nil
	}
	return exit
}

// outputErrorCode returns the exit code for buffered output that could not be written.
func (x *execution) outputErrorCode(err error) int {
	if stop, ok := errors.AsType[*process.SignalError](err); ok {
		return stop.Code()
	}
	if errors.Is(err, syscall.EPIPE) {
		return codePipe // without tideover, SIGPIPE would have killed the command
	}
	x.report.warn("standard output: " + err.Error())
	return CodeOwn
}

// exitedAfterSignal reports whether the command exited with its own code after a signal that both
// the command and tideover got.
func (x *execution) exitedAfterSignal() bool {
	return x.stopped && x.last.Signal == 0 && !x.last.TimedOut && x.last.Code != 0
}

func (x *execution) code(err error) int {
	if err == nil {
		return 0
	}
	if start, ok := errors.AsType[*process.StartError](err); ok && x.sup.Stopped() == nil {
		if x.giveUpGiven && start.Transient() {
			return x.giveUpCode
		}
		return start.Code
	}
	if stop := x.sup.Stopped(); stop != nil {
		if x.exitedAfterSignal() {
			return x.last.Code
		}
		return stop.Code()
	}
	if _, ok := errors.AsType[*process.OutputError](err); ok {
		return CodeOwn
	}
	switch {
	case x.giveUpGiven && !errors.Is(err, retry.StopPermanent):
		return x.giveUpCode
	case errors.Is(err, retry.StopTotalTimeout), errors.Is(err, context.DeadlineExceeded):
		return codeTimeout
	case x.last == nil:
		x.report.warn(err.Error())
		return CodeOwn
	}
	return cmp.Or(resultCode(x.last), 1) // 0 would mean success
}

// failure is an attempt that did not succeed.
type failure struct {
	process.Result
	text  string // how the attempt ended
	final string // why the attempt is not retried; empty if it may be retried
	grace time.Duration
}

// Error says how the attempt ended, and why it is not retried if final is set.
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

// killedSuffix returns the end of a message about an attempt that timed out: that it was killed
// after the grace period. It is empty if TERM was enough, or if f is nil.
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

// classify returns the failure of an attempt, or nil if it succeeded. unread is true if the output
// of the command could not be written because its reader is gone.
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
	default:
		f.final = x.whyFinal(r, unread)
	}
	return f
}

// whyFinal returns why no retry follows a command that has ended with an exit code above 0; "" if
// one may follow.
func (x *execution) whyFinal(r process.Result, unread bool) string {
	switch {
	case x.terminalSignal(r) == syscall.SIGHUP:
		return "the terminal was closed"
	case x.terminalSignal(r) != 0:
		return "it was interrupted"
	case unread || x.sup.ReaderGone():
		return "the reader of its output is gone"
	case x.stopOn.Has(r.Code):
		return "--stop-on contains the exit code"
	case x.retryOn.Given() && !x.retryOn.Has(r.Code):
		return "--retry-on does not contain the exit code"
	case x.retryStderr.Regexp != nil && !r.MatchedStderr:
		return "no line of its stderr matched --retry-stderr"
	}
	return ""
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
