package dvm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/retry"
)

// deliverEvery is how often an outbox that was full is tried again.
const deliverEvery = time.Second

var errOver = errors.New("the job is over")

// job is a request that a runner does.
type job struct {
	runner *Runner
	r      *Request
	ctx    context.Context
	cancel context.CancelCauseFunc
	stuck  chan struct{} // closed when an attempt that was given up has ended; nil for none

	mu      sync.Mutex
	history History
	sent    int           // events that were published
	kept    []nostr.Event // the end of the job, if there was no room for it
}

func (r *Runner) newJob(req *Request) *job {
	j := &job{runner: r, r: req, history: History{MaxRetries: r.cfg.Policy.Retries()}}
	j.ctx, j.cancel = context.WithCancelCause(context.Background())
	return j
}

// policy returns the runner's policy with the limits of this job.
func (j *job) policy() retry.Policy {
	p := j.runner.cfg.Policy
	switch j.runner.cfg.Scope {
	case PerAttempt:
		p.AttemptTimeout, p.TotalTimeout = j.r.Timeout, j.runner.cfg.MaxTotal
	case Total:
		p.TotalTimeout = min(j.r.Timeout, j.runner.cfg.MaxTotal)
	}
	return p
}

// retrier returns what makes the attempts.
func (j *job) retrier() (*retry.Runner, error) {
	cfg := &j.runner.cfg
	opts := append([]retry.Option{retry.WithName("job " + j.r.ID), retry.WithObserver(j.observe)}, cfg.Options...)
	if j.runner.budget != nil {
		opts = append(opts, retry.WithBudget(j.runner.budget))
	}
	if cfg.ShouldRetry != nil {
		opts = append(opts, retry.WithClassifier(j.classify))
	}
	if cfg.OnRetry != nil {
		opts = append(opts, retry.WithOnRetry(func(ctx context.Context, e retry.Event) error { return cfg.OnRetry(ctx, j.r, e) }))
	}
	return retry.New(j.policy(), opts...)
}

// classify asks about a failure that would be tried again.
func (j *job) classify(err error) retry.Outcome {
	o := retry.OutcomeOf(err)
	if h, ok := err.(*handlerError); ok { //nolint:errorlint // a timeout is to be seen as one
		err = h.err
	}
	if o.Class < retry.ClassPermanent && !j.runner.cfg.ShouldRetry(j.r, err) {
		o.Final = true
	}
	return o
}

// run does the job. It returns when no attempt of it runs any more.
func (j *job) run() {
	defer j.cancel(errOver)
	defer j.deliver()
	defer j.unread()
	retrier, err := j.retrier()
	if err != nil { // which NewRunner has ruled out
		j.end(Outcome{State: Failed, Message: err.Error()})
		return
	}
	result, err := retry.Value(j.ctx, retrier, j.attempt)
	if err == nil {
		j.end(Outcome{State: Succeeded, Content: result.Content, Partial: result.Partial})
	} else {
		j.end(failure(err))
	}
	if err != nil && j.ctx.Err() == nil {
		j.runner.cfg.Logger.Warn("nostr job failed", "id", j.r.ID, "error", err)
	}
	j.deliver()
	if j.stuck != nil {
		<-j.stuck
	}
}

// unread ends the job if an error of the handler panicked when it was looked at.
func (j *job) unread() {
	if p := recover(); p != nil {
		j.runner.cfg.Logger.Error("nostr job: an error can't be read", "id", j.r.ID, "panic", p)
		j.end(Outcome{State: Failed, Code: CodePermanent, Message: "the error of the handler can't be read"})
	}
}

// failure says why there is no further attempt. What the last one said is in the
// history, if there was one.
func failure(err error) Outcome {
	gaveUp, ok := errors.AsType[*retry.Error](err)
	switch {
	case !ok:
		return Outcome{State: Failed, Message: err.Error()}
	case gaveUp.Attempts == 0:
		return Outcome{State: Failed, Message: gaveUp.Reason.Error()}
	case gaveUp.Reason == retry.StopPermanent:
		return Outcome{State: Failed, Code: CodePermanent}
	}
	return Outcome{State: Failed}
}

// observe keeps the history.
func (j *job) observe(e retry.Event) {
	switch e.Kind {
	case retry.AttemptStarted:
		j.record(func(h *History) { h.Attempts = append(h.Attempts, Attempt{Started: e.Time}) })
	case retry.AttemptFailed:
		j.record(func(h *History) { h.Attempts[len(h.Attempts)-1].failed(e) })
	case retry.Waiting:
		j.record(func(h *History) {
			a := &h.Attempts[len(h.Attempts)-1]
			a.Retry, a.Wait = true, e.Delay
		})
	case retry.HookFailed:
		j.runner.cfg.Logger.Error("nostr job: a hook failed", "id", j.r.ID, "error", e.Err)
	default:
	}
}

func (a *Attempt) failed(e retry.Event) {
	a.Ended, a.Error = e.Time, e.Err.Error()
	// It stands outside: one that the handler returned is wrapped.
	if timeout, ok := e.Err.(*retry.TimeoutError); ok { //nolint:errorlint // for the reason above
		a.TimedOut, a.Limit = true, timeout.Limit
	}
	_, a.Stuck = errors.AsType[*stuckError](e.Err)
}

// record changes the history of a job that is not over, and publishes what is new.
// It reports whether it did.
func (j *job) record(change func(*History)) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.history.Outcome != nil {
		return false
	}
	change(&j.history)
	events := Answers(j.r, &j.history)
	if j.publish(events[j.sent:]) && j.history.Outcome != nil {
		j.kept = slices.DeleteFunc(events[j.sent:], func(e nostr.Event) bool { return !isTerminal(&e) })
	}
	j.sent = len(events)
	return true
}

// publish reports whether no relay has room for the events. One that has is enough:
// another may be away for good, and no job should wait for it.
func (j *job) publish(events []nostr.Event) (full bool) {
	err := Publish(j.runner.cfg.Link, j.runner.cfg.Key, events)
	if err != nil {
		j.runner.cfg.Logger.Error("nostr answer", "id", j.r.ID, "error", err)
	}
	return errors.Is(err, errNowhere)
}

// deliver publishes the end of the job until there is room for it, or the runner
// closes. Relays that have it don't get it twice.
func (j *job) deliver() {
	j.mu.Lock()
	end := j.kept
	j.kept = nil
	j.mu.Unlock()
	for last := false; len(end) > 0 && j.publish(end) && !last; {
		select {
		case <-time.After(deliverEvery):
		case <-j.runner.closing:
			last = true
		}
	}
}

// end ends the job, unless it is over.
func (j *job) end(o Outcome) {
	o.At = time.Now()
	ended := j.record(func(h *History) {
		if n := len(h.Attempts); n > 0 && h.Attempts[n-1].Ended.IsZero() {
			h.Attempts[n-1].Ended = o.At
		}
		h.Outcome = &o
	})
	if ended {
		j.runner.ended(j, o.State)
	}
}

// cancelled ends the job at once, whatever its attempt does.
func (j *job) cancelled(why string) {
	j.end(Outcome{State: Cancelled, Message: why})
	j.cancel(errOver)
}

// report takes the progress of an attempt that is not over. What is not published is
// not kept.
func (j *job) report(attempt int, p Progress) {
	p.At = time.Now()
	j.record(func(h *History) {
		if len(h.Attempts)-1 != attempt || !h.Attempts[attempt].Ended.IsZero() {
			return
		}
		a := &h.Attempts[attempt]
		a.Progress = append(a.Progress, p)
		if len(Answers(j.r, h)) == j.sent {
			a.Progress = a.Progress[:len(a.Progress)-1]
		}
	})
}

// snapshot returns a copy of the history.
func (j *job) snapshot() History {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.history
	h.Attempts = slices.Clone(h.Attempts)
	for i := range h.Attempts {
		h.Attempts[i].Progress = slices.Clone(h.Attempts[i].Progress)
	}
	return h
}

// number returns the index of the attempt that has just started.
func (j *job) number() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.history.Attempts) - 1
}

// stuckError says that an attempt did not stop.
type stuckError struct {
	grace time.Duration
	cause error
}

func (e *stuckError) Error() string {
	return fmt.Sprintf("still running %v after it was told to stop: %v", e.grace, e.cause)
}

func (e *stuckError) Unwrap() error { return e.cause }

func (e *stuckError) RetryOutcome() retry.Outcome { return retry.Outcome{Class: retry.ClassStuck} }
