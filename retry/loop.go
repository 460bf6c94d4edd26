package retry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/option"
)

// again continues a call whose first attempt was made outside of the runner and
// failed with err.
func (r *Runner) again(ctx context.Context, op func(context.Context) error, err error) error {
	var c call
	c.r, c.state.Attempt = r, 1
	if !r.direct || r.timed { // otherwise begin and end have nothing to do
		c.begin(ctx)
		defer c.end()
	}
	c.judge(ctx, err)
	return c.retry(ctx, op, err)
}

// retry makes further attempts after the first failure, until one succeeds or the
// call must end. The history is a variable of this function, so that a call that
// succeeds at once does not pay for it. For a bare runner, the body of attempt is
// repeated here to save a function call.
func (c *call) retry(ctx context.Context, op func(context.Context) error, err error) error {
	var h history
	if d, ok := ctx.Deadline(); ok {
		c.deadline = d
	}
	atOnce := c.r.atOnce && c.deadline.IsZero()
	for {
		var final error
		if atOnce && c.plain {
			final = c.nextAtOnce(ctx, err, &h)
		} else {
			final = c.next(ctx, err, &h)
		}
		if final != nil {
			return final
		}
		if !c.r.bare {
			if err = c.attempt(ctx, op, &h); err == nil || c.refused {
				return err
			}
			continue
		}
		c.state.Attempt++
		if err = op(ctx); err == nil {
			c.ok = true
			return nil
		}
		c.judge(ctx, err)
	}
}

// judge classifies a failure and sets the outcome. If the caller has canceled, the
// failure is a cancellation, and the classifier is not asked.
func (c *call) judge(ctx context.Context, err error) {
	c.plain = false
	if ctx.Err() != nil {
		c.outcome = Outcome{Class: ClassCanceled}
		return
	}
	s, ok := speaker(err)
	if !ok && c.r.classify == nil {
		c.plain = true
		c.outcome = Outcome{}
		return
	}
	c.classify(s, err)
}

// classify sets the outcome of a failure that states one itself, or that the runner's
// classifier must be asked about. stated is nil if the failure states none.
func (c *call) classify(stated Classified, err error) {
	c.outcome = Outcome{}
	if stated != nil {
		c.outcome = stated.RetryOutcome()
	}
	if c.r.classify == nil || c.outcome.Class == ClassStuck { // a classifier can't know that an attempt is stuck
		return
	}
	c.safely("classifier", func() { c.outcome = c.r.classify(err) })
	if _, left := errors.AsType[*leftError](err); left {
		c.outcome.Final = true
	}
}

// next decides whether another attempt follows a failed one, and waits for its time.
// It returns the final error of the call if no attempt follows.
func (c *call) next(ctx context.Context, err error, h *history) error {
	if c.r.budget != nil {
		c.countFailure()
	}
	c.emit(AttemptFailed, err)
	d := c.decide(ctx, err)
	if d.Stop != 0 {
		h.add(c.state.Attempt, err, 0, 0)
		return c.giveUp(ctx, d.Stop, c.explain(d), h)
	}
	h.add(c.state.Attempt, err, d.Wait, d.By)
	c.state.Prev = d.Prev
	c.startClock()
	if (d.Wait != 0 || c.r.announced) && !c.wait(ctx, d, err) {
		c.budget.Cancel()
		return c.giveUp(ctx, StopCanceled, nil, h)
	}
	return nil
}

// nextAtOnce is next for a plain failure in a call without a deadline, if the runner does
// not wait: only the number of attempts can end such a call.
func (c *call) nextAtOnce(ctx context.Context, err error, h *history) error {
	h.add(c.state.Attempt, err, 0, 0)
	if c.r.policy.usedUp(c.state.Attempt) {
		return c.giveUp(ctx, StopAttempts, nil, h)
	}
	c.state.Prev = 0
	c.startClock()
	return nil
}

// countFailure tells the budget about a failed attempt.
func (c *call) countFailure() {
	if c.outcome.Class <= ClassThrottled {
		c.budget.Fail()
	} else { // an answer or a cancellation does not show overload
		c.budget.Answer()
	}
}

// decide returns the policy's decision, subject to the breaker and the budget. It
// asks the budget last, so that a retry that is not made costs nothing. A review (see
// [WithReview]) may replace the decision.
func (c *call) decide(ctx context.Context, err error) Decision {
	r, s, o := c.r, &c.state, &c.outcome
	if c.plain && r.alone && c.deadline.IsZero() {
		var u uint64
		if r.draws {
			u = r.random()
		}
		return r.policy.decidePlain(s, r.tables, u)
	}
	c.readClocks()
	if r.schedule != nil && o.After == 0 && o.Class < ClassPermanent {
		c.askSchedule()
	}
	var u uint64
	if r.draws || o.After > 0 || r.review != nil {
		u = r.random()
	}
	if r.review != nil {
		return c.reviewed(ctx, err, u)
	}
	return r.policy.decideWithin(s, o, Gates{OpenFor: r.openFor()}, &c.budget, r.tables, u)
}

// askSchedule sets the outcome's delay to the one of the function of [WithSchedule].
func (c *call) askSchedule() {
	c.safely("schedule", func() { c.outcome.Delay = max(c.r.schedule(c.state, c.outcome), 0) })
}

// readClocks updates the elapsed time and the time until the deadline in the state.
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

// explain returns details about why the call stops that the reason alone does not
// give, or nil.
func (c *call) explain(d Decision) error {
	switch d.Stop {
	case StopServerWait:
		asked := cmp.Or(d.Wait, c.outcome.After) // a review may have decided on another wait than the server's
		return fmt.Errorf("asked for %v, the policy allows %v", roundTime(asked), cmp.Or(c.r.policy.ServerWait, DefaultServerWait))
	case StopBreaker:
		return c.r.breakerError()
	default:
		return nil
	}
}

// openFor returns how long the breaker will certainly stay open; 0 if it is closed or
// the runner has no breaker.
func (r *Runner) openFor() time.Duration {
	if r.breaker == nil {
		return 0
	}
	return r.breaker.ShutFor()
}

// breakerError returns a [*breaker.OpenError] if the breaker is open, otherwise nil.
func (r *Runner) breakerError() error {
	if d := r.openFor(); d > 0 {
		return &breaker.OpenError{Name: r.breaker.Name(), State: r.breaker.State(), For: d}
	}
	return nil
}

// wait notifies hooks and observers, then waits. It reports whether the wait was completed.
func (c *call) wait(ctx context.Context, d Decision, err error) bool {
	r := c.r
	left := d.Wait
	if r.announced {
		now := time.Now()
		e := c.event(Waiting, err)
		e.Delay, e.By, e.Until = d.Wait, d.By, now.Add(d.Wait)
		r.tell(e)
		for _, hook := range r.onRetry {
			c.safely("OnRetry", func() { c.hooked(hook(ctx, e)) })
		}
		left = max(d.Wait-time.Since(now), 0) // the wait includes the time that the hooks took
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
		return ctx.Err() == nil // timer and context may have ended at the same time
	case <-ctx.Done():
		c.timer.Stop()
		return false
	}
}

// giveUp returns the final error of the call and emits it as an event. If the
// context ended at its deadline, the reason is StopDeadline instead of StopCanceled.
func (c *call) giveUp(ctx context.Context, why Reason, cause error, h *history) error {
	if why == StopCanceled && ctx.Err() != nil {
		cause = context.Cause(ctx)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
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

// event returns an event with the current state of the call.
func (c *call) event(k EventKind, err error) Event {
	return Event{
		Kind: k, Time: time.Now(), Name: c.r.name, Call: c.id, Err: err, Note: noteOf(err),
		Attempt: c.state.Attempt, Attempts: c.r.policy.attempts(), Elapsed: c.elapsed(), Prev: c.state.Prev,
	}
}

// tell passes the event to all observers. If an observer panics, the other observers
// still get the event, and also an event of kind HookFailed about the panic. The call
// goes on.
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

// hooked emits the error of a hook, if there is one, as an event.
func (c *call) hooked(err error) {
	if err != nil {
		c.emit(HookFailed, fmt.Errorf("OnRetry: %w", err))
	}
}

// safely calls a function that the user of the package supplied. A panic becomes an
// event of kind HookFailed, in which the argument what names the function.
func (c *call) safely(what string, f func()) {
	if err := panics(f); err != nil {
		c.emit(HookFailed, fmt.Errorf("%s: %w", what, err))
	}
}

// panics calls f. If f panics, it returns the panic as an error.
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

// Review describes a failed attempt and the policy's decision about it. The function
// set by [WithReview] gets it.
type Review struct {
	State    State    // state of the call after the failed attempt
	Outcome  Outcome  // what the failure means
	Err      error    // the failure
	Decision Decision // the policy's decision; breaker and budget are asked after the review

	// PolicyWait is the wait that the policy computes from the same random number
	// without a delay stated by the server. It is set even if Decision is to stop.
	PolicyWait time.Duration

	policy *Policy
	tables *tables
	draw   uint64
}

// Decide returns the policy's decision for another outcome of the same attempt, from
// the same random number. If the decision is StopServerWait, because the server asks
// for a longer wait than the policy allows, Wait is the wait that the server asks for.
func (r *Review) Decide(o Outcome) Decision {
	d := r.policy.decide(&r.State, &o, Gates{}, r.tables, r.draw)
	if d.Stop == StopServerWait {
		d.Wait = o.After
	}
	return d
}

// WithReview sets a function that reviews the policy's decision about each failed
// attempt and returns the decision to apply, usually Review.Decision. It is for a
// caller that knows more than the policy, such as another server to try at once. It is
// called once for each failed attempt, on the goroutine of the call.
//
// The returned decision is still subject to the limits: attempts, total timeout, the
// context's deadline, breaker and budget. A review can't continue a call that was
// canceled, whose attempt is stuck, or whose outcome is [Outcome].Final. If the review
// panics, the policy's decision holds, and the observers get a [HookFailed].
func WithReview(review func(context.Context, Review) Decision) Option {
	return option.Given(review != nil, "WithReview", func(s *settings) { s.review = review })
}

// reviewed returns the decision of the review, restricted by the limits that a review
// can't change.
func (c *call) reviewed(ctx context.Context, err error, draw uint64) Decision {
	r, s, o := c.r, &c.state, &c.outcome
	unasked := *o
	unasked.After = 0
	made := r.policy.decide(s, o, Gates{}, r.tables, draw)
	d := made
	c.safely("review", func() {
		d = r.review(ctx, Review{
			State: *s, Outcome: *o, Err: err, Decision: made, PolicyWait: r.policy.wait(s, &unasked, r.tables, draw).Wait,
			policy: &r.policy, tables: r.tables, draw: draw,
		})
	})
	switch {
	case o.Class == ClassCanceled || o.Class == ClassStuck || o.Final:
		return made
	case d.Stop != 0:
		return d
	case ctx.Err() != nil: // the context ended during the review
		return Decision{Stop: StopCanceled, Prev: s.Prev}
	case r.policy.usedUp(s.Attempt):
		return Decision{Stop: StopAttempts, Prev: s.Prev}
	}
	d.Wait, d.Prev = max(d.Wait, 0), max(d.Prev, 0)
	c.readClocks() // the review may have taken time
	gates := Gates{OpenFor: r.openFor()}
	if d.Stop = r.policy.exceeded(s, gates, d.Wait); d.Stop == 0 && !granted(&c.budget, o) {
		d.Stop = StopBudget
	}
	return d
}
