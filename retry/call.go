package retry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/limit"
)

// call is one call of a runner. It lives on the stack of the caller.
type call struct {
	r        *Runner
	id       uint64
	state    State
	outcome  Outcome       // of the last attempt, if it failed
	refused  bool          // a gate was closed, so that the last attempt was none
	ok       bool          // the call succeeded
	start    time.Duration // the clock's reading from which Elapsed counts on
	spent    time.Duration // Elapsed at start
	deadline time.Time     // the caller's; zero means none
	budget   limit.Call    // the account with the runner's budget; the zero one grants everything
	timer    *time.Timer
}

// run makes the whole call: every attempt, every gate.
func (r *Runner) run(ctx context.Context, s State, op func(context.Context) error) error {
	if err := r.misuse(ctx, op); err != nil {
		return err
	}
	var c call
	c.r, c.state, c.spent = r, s, s.Elapsed
	c.begin()
	defer c.end()
	if ctx.Err() != nil {
		return c.giveUp(ctx, StopCanceled, nil, nil)
	}
	if why := r.policy.spent(s); why != 0 {
		return c.giveUp(ctx, why, nil, nil)
	}
	err := c.attempt(ctx, op, nil)
	if err == nil || c.refused {
		return err
	}
	return c.retry(ctx, op, err)
}

// again goes on after a first attempt that was made already has failed.
func (r *Runner) again(ctx context.Context, op func(context.Context) error, err error) error {
	var c call
	c.r, c.state.Attempt = r, 1
	c.begin() // which is nothing in a direct runner
	defer c.end()
	c.judge(ctx, err)
	return c.retry(ctx, op, err)
}

// misuse reports what would otherwise be a panic or a riddle later.
func (r *Runner) misuse(ctx context.Context, op func(context.Context) error) error {
	switch {
	case r == nil || r.random == nil:
		return errors.New("retry: the Runner was not made by New")
	case ctx == nil:
		return errors.New("retry: context: nil")
	case op == nil:
		return errors.New("retry: operation: nil")
	}
	return nil
}

func (c *call) begin() {
	if c.r.observed {
		c.id = c.r.calls.Add(1)
	}
	if c.r.budget != nil {
		c.budget = c.r.budget.Begin()
	}
	if c.r.timed {
		c.startClock()
	}
}

// startClock reads the clock for the first time: before the first attempt where
// the elapsed time matters, otherwise after the first failure.
func (c *call) startClock() {
	if c.start == 0 {
		c.start = clock.Now()
	}
}

func (c *call) end() {
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.r.budget != nil {
		c.budget.End(c.ok)
	}
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

// attempt makes one attempt. When a gate is closed it sets refused, and the
// error is final.
func (c *call) attempt(ctx context.Context, op func(context.Context) error, h *history) (err error) {
	if c.r.bare {
		c.state.Attempt++
		if err = op(ctx); err != nil {
			c.judge(ctx, err)
			return err
		}
	} else if err = c.guarded(ctx, op, h); err != nil {
		return err
	}
	c.ok = true
	c.emit(Succeeded, nil)
	return nil
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

func (c *call) elapsed() time.Duration {
	if c.start == 0 {
		return c.spent
	}
	return c.spent + clock.Now() - c.start
}

// event returns an event of the call as it stands.
func (c *call) event(k EventKind, err error) Event {
	return Event{
		Kind: k, Time: time.Now(), Name: c.r.name, Call: c.id, Err: err, Note: noteOf(err),
		Attempt: c.state.Attempt, Attempts: c.r.policy.attempts(), Elapsed: c.elapsed(), Prev: c.state.Prev,
	}
}

// emit is small enough to be inlined: without an observer it costs nothing.
func (c *call) emit(k EventKind, err error) {
	if c.r.observed {
		c.show(k, err)
	}
}

func (c *call) show(k EventKind, err error) {
	if c.r.chatty || !smooth(k, c.state.Attempt) {
		c.r.tell(c.event(k, err))
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
