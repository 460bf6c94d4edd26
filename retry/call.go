package retry

import (
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
	r      *Runner
	id     uint64
	state  State
	start  time.Duration // the clock's reading from which Elapsed counts on
	spent  time.Duration // Elapsed at start
	budget limit.Call    // the account with the runner's budget; the zero one grants everything
	ok     bool
	timer  *time.Timer

	deadline time.Time // the caller's; zero means none
}

// run makes the whole call: every attempt, every gate.
func (r *Runner) run(ctx context.Context, s State, op func(context.Context) error) error {
	if err := r.misuse(ctx, op); err != nil {
		return err
	}
	c := call{r: r, state: s, spent: s.Elapsed}
	c.begin()
	defer c.end()
	if ctx.Err() != nil {
		return c.giveUp(ctx, StopCanceled, nil, nil)
	}
	o, err, refused := c.attempt(ctx, op, nil)
	switch {
	case refused != nil:
		return refused
	case err == nil:
		c.succeed()
		return nil
	}
	return c.retry(ctx, op, err, o)
}

// again goes on after the first attempt of a direct runner has failed.
func (r *Runner) again(ctx context.Context, op func(context.Context) error, err error) error {
	c := call{r: r, state: State{Attempt: 1}}
	defer c.end()
	return c.retry(ctx, op, err, r.outcome(ctx, err))
}

// misuse reports what would otherwise be a panic or a riddle later.
func (r *Runner) misuse(ctx context.Context, op func(context.Context) error) error {
	switch {
	case r == nil || r.settings.random == nil:
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
	c.budget.End(c.ok)
}

// retry goes on after the first failure until an attempt succeeds or none may
// follow. The history lives here, so that a call which succeeds at once does
// not pay for it.
func (c *call) retry(ctx context.Context, op func(context.Context) error, err error, o Outcome) error {
	var h history
	c.startClock()
	c.deadline, _ = ctx.Deadline()
	for {
		if final := c.next(ctx, err, o, &h); final != nil {
			return final
		}
		var refused error
		o, err, refused = c.attempt(ctx, op, &h)
		switch {
		case refused != nil:
			return refused
		case err == nil:
			c.succeed()
			return nil
		}
	}
}

// attempt makes one attempt. refused is the final error when a gate is closed.
func (c *call) attempt(ctx context.Context, op func(context.Context) error, h *history) (o Outcome, err, refused error) {
	if !c.r.bare {
		return c.guarded(ctx, op, h)
	}
	c.state.Attempt++
	if err = op(ctx); err != nil {
		o = c.r.outcome(ctx, err)
	}
	return o, err, nil
}

func (c *call) succeed() {
	c.ok = true
	c.emit(Succeeded, nil)
}

// next decides what follows a failed attempt, and waits. It returns the final
// error when nothing follows.
func (c *call) next(ctx context.Context, err error, o Outcome, h *history) error {
	c.budget.Fail()
	h.add(c.state.Attempt, err)
	c.emit(AttemptFailed, err)
	d := c.decide(&o)
	if d.Stop != 0 {
		return c.giveUp(ctx, d.Stop, c.r.policy.explain(d.Stop, o), h)
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
func (c *call) decide(o *Outcome) Decision {
	r, s := c.r, &c.state
	if r.timed {
		s.Elapsed = c.elapsed()
	}
	if !c.deadline.IsZero() {
		if s.Left = time.Until(c.deadline); s.Left == 0 {
			s.Left = -1
		}
	}
	if r.schedule != nil && o.After == 0 && o.Class < ClassPermanent {
		r.safely(c, "schedule", func() { o.Delay = max(r.schedule(*s, *o), 0) })
	}
	var u uint64
	if r.draws || o.After > 0 {
		u = r.random()
	}
	var g Gates
	if r.breaker != nil {
		if s := r.breaker.State(); s == breaker.Open || s == breaker.ForcedOpen {
			g.OpenFor = r.breaker.OpenFor()
		}
	}
	d := r.policy.decide(s, o, g, u)
	if d.Stop == 0 && !c.budget.Retry() {
		g.OverBudget = true
		d = r.policy.decide(s, o, g, u)
	}
	return d
}

// wait tells everybody and waits. It reports whether the wait was completed.
func (c *call) wait(ctx context.Context, d Decision, err error) bool {
	r := c.r
	left := d.Wait
	if r.observed || r.onRetry != nil {
		now := time.Now()
		e := c.event(Waiting, err)
		e.Delay, e.By, e.Until = d.Wait, d.By, now.Add(d.Wait)
		r.tell(e)
		if r.onRetry != nil {
			r.safely(c, "OnRetry", func() { c.hook(r.onRetry(ctx, e)) })
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
		return true
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

// outcome says what a failure means. The caller's cancellation comes first: no
// classifier may make a retry of it.
func (r *Runner) outcome(ctx context.Context, err error) (o Outcome) {
	switch {
	case ctx.Err() != nil:
		return Outcome{Class: ClassCanceled}
	case r.classify != nil:
		o = OutcomeOf(err)
		r.safely(nil, "classifier", func() { o = r.classify(err) })
		return o
	default:
		return OutcomeOf(err)
	}
}

// event returns an event of the call as it stands.
func (c *call) event(k EventKind, err error) Event {
	return Event{
		Kind: k, Time: time.Now(), Name: c.r.name, Call: c.id, Err: err,
		Attempt: c.state.Attempt, Attempts: c.r.policy.attempts(), Elapsed: c.elapsed(), Prev: c.state.Prev,
	}
}

// emit is small enough to be inlined: nobody observing costs nothing.
func (c *call) emit(k EventKind, err error) {
	if c.r.observed {
		c.show(k, err)
	}
}

func (c *call) show(k EventKind, err error) { c.r.tell(c.event(k, err)) }

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

// hook passes on the error of a hook.
func (c *call) hook(err error) {
	if err != nil {
		c.emit(HookFailed, fmt.Errorf("OnRetry: %w", err))
	}
}

// safely runs what a user gave us. A panic goes to the observers.
func (r *Runner) safely(c *call, what string, f func()) {
	if err := panics(f); err != nil {
		err = fmt.Errorf("%s: %w", what, err)
		if c != nil {
			c.emit(HookFailed, err)
		} else {
			r.tell(Event{Kind: HookFailed, Time: time.Now(), Name: r.name, Err: err})
		}
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
