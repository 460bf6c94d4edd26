package retry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/breaker"
)

// again goes on after a first attempt that was made already has failed.
func (r *Runner) again(ctx context.Context, op func(context.Context) error, err error) error {
	var c call
	c.r, c.state.Attempt = r, 1
	c.begin() // which is nothing in a direct runner
	defer c.end()
	c.judge(ctx, err)
	return c.retry(ctx, op, err)
}

// retry goes on after the first failure until an attempt succeeds or none may
// follow. The history lives here, so that a call which succeeds at once does
// not pay for it.
func (c *call) retry(ctx context.Context, op func(context.Context) error, err error) error {
	var h history
	c.startClock()
	if d, ok := ctx.Deadline(); ok {
		c.deadline = d
	}
	for {
		if final := c.next(ctx, err, &h); final != nil {
			return final
		}
		if err = c.attempt(ctx, op, &h); err == nil || c.refused {
			return err
		}
	}
}

// judge says what a failure means. The caller's cancellation comes first: no
// classifier may make a retry of it.
func (c *call) judge(ctx context.Context, err error) {
	if ctx.Err() != nil {
		c.outcome = Outcome{Class: ClassCanceled}
		return
	}
	c.outcome = OutcomeOf(err)
	if c.r.classify == nil || c.outcome.Class == ClassStuck { // which only we can know
		return
	}
	c.safely("classifier", func() { c.outcome = c.r.classify(err) })
	if _, left := errors.AsType[*leftError](err); left {
		c.outcome.Final = true
	}
}

// next decides what follows a failed attempt, and waits. It returns the final
// error when nothing follows.
func (c *call) next(ctx context.Context, err error, h *history) error {
	switch {
	case c.r.budget == nil:
	case c.outcome.Class <= ClassThrottled:
		c.budget.Fail()
	default: // an answer or a cancellation says nothing about load
		c.budget.Answer()
	}
	h.add(c.state.Attempt, err)
	c.emit(AttemptFailed, err)
	d := c.decide(ctx, err)
	if d.Stop != 0 {
		return c.giveUp(ctx, d.Stop, c.explain(d), h)
	}
	c.state.Prev = d.Prev
	h.waited(d)
	if !c.wait(ctx, d, err) {
		c.budget.Cancel()
		return c.giveUp(ctx, StopCanceled, nil, h)
	}
	return nil
}

// decide asks the policy, and the gates only when the policy would go on: a
// retry that will not happen costs no budget.
func (c *call) decide(ctx context.Context, err error) Decision {
	r, s, o := c.r, &c.state, &c.outcome
	c.readClocks()
	if r.schedule != nil && o.After == 0 && o.Class < ClassPermanent {
		c.safely("schedule", func() { o.Delay = max(r.schedule(*s, *o), 0) })
	}
	var u uint64
	if r.draws || o.After > 0 || r.review != nil {
		u = r.random()
	}
	if r.review != nil {
		return c.reviewed(ctx, err, u)
	}
	return r.policy.decideWithin(s, o, Gates{OpenFor: r.openFor()}, &c.budget, u)
}

// readClocks brings the times of the state up to date.
func (c *call) readClocks() {
	if c.r.timed {
		c.state.Elapsed = c.elapsed()
	}
	if c.deadline.IsZero() {
		return
	}
	if c.state.Left = time.Until(c.deadline); c.state.Left == 0 {
		c.state.Left = -1
	}
}

// explain returns what the reason of a stop does not say by itself.
func (c *call) explain(d Decision) error {
	switch d.Stop {
	case StopServerWait:
		asked := cmp.Or(d.Wait, c.outcome.After) // a review may decide for another wait than the server's
		return fmt.Errorf("asked for %v, granted are %v", roundTime(asked), cmp.Or(c.r.policy.ServerWait, DefaultServerWait))
	case StopBreaker:
		return c.r.closedDoor()
	default:
		return nil
	}
}

// openFor returns how long the breaker, if there is one, is open for certain.
func (r *Runner) openFor() time.Duration {
	if r.breaker == nil {
		return 0
	}
	return r.breaker.ShutFor()
}

// closedDoor returns the breaker's error if it is open, otherwise nil.
func (r *Runner) closedDoor() error {
	if d := r.openFor(); d > 0 {
		return &breaker.OpenError{Name: r.breaker.Name(), State: r.breaker.State(), For: d}
	}
	return nil
}

// wait notifies hooks and observers, then waits. It reports whether the wait was completed.
func (c *call) wait(ctx context.Context, d Decision, err error) bool {
	r := c.r
	left := d.Wait
	if r.observed || len(r.onRetry) > 0 {
		now := time.Now()
		e := c.event(Waiting, err)
		e.Delay, e.By, e.Until = d.Wait, d.By, now.Add(d.Wait)
		r.tell(e)
		for _, hook := range r.onRetry {
			c.safely("OnRetry", func() { c.hooked(hook(ctx, e)) })
		}
		left = max(d.Wait-time.Since(now), 0) // what the hook took is part of the wait
		if ctx.Err() != nil {
			return false
		}
	}
	if left == 0 {
		return true
	}
	if c.timer == nil {
		c.timer = time.NewTimer(left)
	} else {
		c.timer.Reset(left)
	}
	select {
	case <-c.timer.C:
		return ctx.Err() == nil // both may have come at once
	case <-ctx.Done():
		return false
	}
}

// giveUp makes the final error. A caller whose deadline has passed has not
// canceled.
func (c *call) giveUp(ctx context.Context, why Reason, cause error, h *history) error {
	if ended := ctx.Err(); ended != nil && why == StopCanceled {
		cause = context.Cause(ctx)
		if errors.Is(ended, context.DeadlineExceeded) {
			why = StopDeadline
		}
	}
	e := &Error{Name: c.r.name, Reason: why, Attempts: c.state.Attempt, Elapsed: c.elapsed(), Cause: cause}
	if h != nil {
		h.keep(e)
	}
	if c.r.observed {
		ev := c.event(GaveUp, e)
		ev.Reason = why
		c.r.tell(ev)
	}
	return e
}

// event returns an event of the call as it stands.
func (c *call) event(k EventKind, err error) Event {
	return Event{
		Kind: k, Time: time.Now(), Name: c.r.name, Call: c.id, Err: err, Note: noteOf(err),
		Attempt: c.state.Attempt, Attempts: c.r.policy.attempts(), Elapsed: c.elapsed(), Prev: c.state.Prev,
	}
}

// tell shows the event to all observers. One that panics does not keep the
// others from seeing it, nor the call from going on.
func (r *Runner) tell(e Event) {
	for i, observe := range r.observers {
		if err := panics(func() { observe(e) }); err != nil {
			failed := e
			failed.Kind, failed.Err = HookFailed, fmt.Errorf("observer: %w", err)
			for j, other := range r.observers {
				if j != i {
					_ = panics(func() { other(failed) })
				}
			}
		}
	}
}

// hooked passes on the error of a hook.
func (c *call) hooked(err error) {
	if err != nil {
		c.emit(HookFailed, fmt.Errorf("OnRetry: %w", err))
	}
}

// safely runs what a user gave us. A panic goes to the observers.
func (c *call) safely(what string, f func()) {
	if err := panics(f); err != nil {
		c.emit(HookFailed, fmt.Errorf("%s: %w", what, err))
	}
}

// panics runs f and returns its panic as an error.
func panics(f func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case error:
			err = fmt.Errorf("panic: %w", v)
		default:
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	f()
	return nil
}

// Review is a failed attempt and what the policy decides about it, for the function
// that [WithReview] sets.
type Review struct {
	State    State    // of the call, after the failed attempt
	Outcome  Outcome  // what the failure means
	Err      error    // the failure
	Decision Decision // of the policy; breaker and budget are asked after the review

	// PolicyWait is the wait that the policy computes from the same random number if
	// no server asks for one. It is there for decisions to stop, too.
	PolicyWait time.Duration

	policy *Policy
	draw   uint64
}

// Decide returns the policy's decision for another outcome of the same attempt, from
// the same random number. If it is to stop because the server asks for too long a wait
// (StopServerWait), Wait is the wait that the server asks for.
func (r *Review) Decide(o Outcome) Decision {
	d := r.policy.decide(&r.State, &o, Gates{}, r.draw)
	if d.Stop == StopServerWait {
		d.Wait = o.After
	}
	return d
}

// WithReview shows each failed attempt to the function, which returns the decision to
// apply: usually Review.Decision. It is for a caller that knows more than the policy,
// such as another server that can be asked at once. It is called once for each failed
// attempt, on the goroutine of the call.
//
// The limits of the policy hold for its decision: attempts, total timeout, the
// context's deadline, breaker and budget. It can't undo the end of a call that was
// canceled, whose attempt is stuck or must not be repeated ([Outcome].Final). A review
// that panics changes nothing; the panic goes to the observers as [HookFailed].
func WithReview(review func(context.Context, Review) Decision) Option {
	return given(review != nil, "WithReview", func(s *settings) { s.review = review })
}

// reviewed returns what the review makes of the decision, within the limits that it
// can't change.
func (c *call) reviewed(ctx context.Context, err error, draw uint64) Decision {
	r, s, o := c.r, &c.state, &c.outcome
	unasked := *o
	unasked.After = 0
	made := r.policy.decide(s, o, Gates{}, draw)
	d := made
	c.safely("review", func() {
		d = r.review(ctx, Review{
			State: *s, Outcome: *o, Err: err, Decision: made, PolicyWait: r.policy.wait(s, &unasked, draw).Wait,
			policy: &r.policy, draw: draw,
		})
	})
	switch {
	case o.Class == ClassCanceled || o.Class == ClassStuck || o.Final:
		return made
	case d.Stop != 0:
		return d
	case ctx.Err() != nil: // during the review
		return Decision{Stop: StopCanceled, Prev: s.Prev}
	case s.Attempt >= r.policy.Attempts && r.policy.Attempts != Unlimited:
		return Decision{Stop: StopAttempts, Prev: s.Prev}
	}
	d.Wait, d.Prev = max(d.Wait, 0), max(d.Prev, 0)
	c.readClocks() // the review may have waited
	gates := Gates{OpenFor: r.openFor()}
	if d.Stop = r.policy.exceeded(s, gates, d.Wait); d.Stop == 0 && !granted(&c.budget, o) {
		d.Stop = StopBudget
	}
	return d
}
