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

// deliverEvery is how often a full outbox is tried again.
const deliverEvery = time.Second

var errOver = errors.New("the job is over")

// job is a request that a [Runner] works on.
type job struct {
	runner *Runner
	r      *Request
	ctx    context.Context
	cancel context.CancelCauseFunc
	stuck  chan struct{} // closed when an abandoned attempt has ended; nil for none

	mu          sync.Mutex
	history     History
	sent        int           // number of published events
	undelivered []nostr.Event // the end of the job, if the outboxes were full
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

// retrier returns the retry runner that makes the attempts.
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

// classify calls ShouldRetry for a failure that would be retried.
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

// run does the job. It returns when no attempt of it is running.
func (j *job) run() {
	defer j.cancel(errOver)
	defer j.deliverEnd()
	defer j.recoverUnreadable()
	retrier, err := j.retrier()
	if err != nil { // NewRunner has excluded this
		j.finish(Outcome{State: Failed, Message: err.Error()})
		return
	}
	result, err := retry.Value(j.ctx, retrier, j.attempt)
	if err == nil {
		j.finish(Outcome{State: Succeeded, Content: result.Content, Partial: result.Partial})
	} else {
		j.finish(failure(err))
	}
	if err != nil && j.ctx.Err() == nil {
		j.runner.cfg.Logger.Warn("nostr job failed", "id", j.r.ID, "error", err)
	}
	j.deliverEnd()
	if j.stuck != nil {
		<-j.stuck
	}
}

// recoverUnreadable ends the job if a method of an error that the handler returned
// panicked, such as Error or Unwrap. It must be deferred.
func (j *job) recoverUnreadable() {
	if p := recover(); p != nil {
		j.runner.cfg.Logger.Error("nostr job: an error of the handler panicked", "id", j.r.ID, "panic", p)
		j.finish(Outcome{State: Failed, Code: CodePermanent, Message: "the error of the handler can't be read"})
	}
}

// failure returns the outcome of a job without a further attempt. The error of
// the last attempt is in the history, if there was one.
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

// observe updates the history.
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
	// A timeout is the outermost error: one that the handler returned is
	// wrapped.
	if timeout, ok := e.Err.(*retry.TimeoutError); ok { //nolint:errorlint // for the reason above
		a.TimedOut, a.Limit = true, timeout.Limit
	}
	_, a.Stuck = errors.AsType[*stuckError](e.Err)
}

// record changes the history of a job that is not over, and publishes the new
// events. It reports whether it did.
func (j *job) record(change func(*History)) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.history.Outcome != nil {
		return false
	}
	change(&j.history)
	events := Answers(j.r, &j.history)
	if j.publish(events[j.sent:]) && j.history.Outcome != nil {
		j.undelivered = slices.DeleteFunc(events[j.sent:], func(e nostr.Event) bool { return !isTerminal(&e) })
	}
	j.sent = len(events)
	return true
}

// publish publishes events. It reports whether the outboxes of all relays are
// full; one with room is enough, because another relay may never come back.
func (j *job) publish(events []nostr.Event) (full bool) {
	err := Publish(j.runner.cfg.Link, j.runner.cfg.Key, events)
	if err != nil {
		j.runner.cfg.Logger.Error("nostr answer not published to all relays", "id", j.r.ID, "error", err)
	}
	return errors.Is(err, errNowhere)
}

// deliverEnd publishes the end of the job until an outbox has room for it, or
// the runner closes. Relays that have it do not get it twice.
func (j *job) deliverEnd() {
	j.mu.Lock()
	end := j.undelivered
	j.undelivered = nil
	j.mu.Unlock()
	for last := false; len(end) > 0 && j.publish(end) && !last; {
		select {
		case <-time.After(deliverEvery):
		case <-j.runner.closing:
			last = true
		}
	}
}

// finish ends the job, unless it is over.
func (j *job) finish(o Outcome) {
	o.At = time.Now()
	ended := j.record(func(h *History) {
		if n := len(h.Attempts); n > 0 && h.Attempts[n-1].Ended.IsZero() {
			h.Attempts[n-1].Ended = o.At
		}
		h.Outcome = &o
	})
	if ended {
		j.runner.recordEnd(j, o.State)
	}
}

// cancelNow ends the job at once, without waiting for its attempt.
func (j *job) cancelNow(why string) {
	j.finish(Outcome{State: Cancelled, Message: why})
	j.cancel(errOver)
}

// report records the progress of an attempt that is not over, if it is
// published.
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

// currentAttempt returns the index of the attempt that has just started.
func (j *job) currentAttempt() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.history.Attempts) - 1
}

// stuckError is the error of an attempt that did not stop.
type stuckError struct {
	grace time.Duration
	cause error
}

func (e *stuckError) Error() string {
	return fmt.Sprintf("still running %v after it was told to stop: %v", e.grace, e.cause)
}

func (e *stuckError) Unwrap() error { return e.cause }

func (e *stuckError) RetryOutcome() retry.Outcome { return retry.Outcome{Class: retry.ClassStuck} }
