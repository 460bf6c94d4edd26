package retry

import (
	"context"
	"errors"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
)

// guard holds what one attempt has acquired: its place under the concurrency limit,
// its token of the adaptive limit, its breaker permit and its context. leave
// releases them, also when the operation panics.
type guard struct {
	r      *Runner
	ctx    *attemptContext
	held   bool // a place in r.concurrency
	token  limit.Token
	permit breaker.Permit
	let    bool // permit is valid
	health breaker.Result
	load   limit.Result
}

// guarded makes one attempt behind all gates, in the fixed order: limits,
// breaker, timeout.
func (c *call) guarded(ctx context.Context, op func(context.Context) error, h *history) (err error) {
	r := c.r
	g := guard{r: r, health: breaker.Failure, load: limit.Ignored} // what a panic leaves
	defer g.leave()
	if why, err := c.admit(ctx, &g); why != 0 {
		c.refused = true
		g.health = breaker.Canceled
		c.budget.Cancel() // of a retry that did not happen
		return c.giveUp(ctx, why, err, h)
	}
	c.state.Attempt++
	c.emit(AttemptStarted, nil)
	if r.confined {
		g.ctx = c.confine(ctx)
		err = op(g.ctx)
	} else {
		err = op(ctx)
	}
	if err == nil {
		g.health, g.load = breaker.Success, limit.Answered
		return nil
	}
	late := errors.Is(err, context.DeadlineExceeded)
	if late && g.ctx != nil && ctx.Err() == nil && g.ctx.timedOut() {
		err = &TimeoutError{Limit: g.ctx.timeout.Limit, Total: g.ctx.timeout.Total, Err: err}
	}
	c.judge(ctx, err)
	g.health, g.load = resultOf(ctx, c.outcome), loadOf(c.outcome, late)
	return err
}

// admit passes the gates within the time that is left. It returns the reason
// and the cause when the attempt may not be made.
func (c *call) admit(ctx context.Context, g *guard) (why Reason, err error) {
	total := c.r.policy.TotalTimeout
	within := ctx
	if total > 0 && c.r.queued {
		limited, cancel := context.WithTimeout(ctx, total-c.elapsed())
		defer cancel()
		within = limited
	}
	why, err = g.enter(within)
	switch {
	case ctx.Err() != nil:
		return StopCanceled, err
	case total > 0 && c.elapsed() >= total:
		return StopTotalTimeout, err
	}
	return why, err
}

// confine returns the context of an attempt that has limits of its own.
func (c *call) confine(ctx context.Context) *attemptContext {
	left := c.r.policy.TotalTimeout
	if left > 0 {
		left = max(left-c.elapsed(), 1)
	}
	a := newAttemptContext(ctx, &c.r.policy, left)
	a.call, a.attempt = c.id, c.state.Attempt
	return a
}

// loadOf says what an outcome means to an adaptive limit.
func loadOf(o Outcome, late bool) limit.Result {
	switch {
	case o.Class == ClassThrottled || late:
		return limit.Dropped
	case o.Class == ClassPermanent:
		return limit.Answered
	default:
		return limit.Ignored
	}
}

// resultOf says what an outcome means to a breaker. A permanent failure is an
// answer, and no sign of a sick service. A caller who goes away says nothing
// about it; one whose deadline passes got no answer in time, and that does.
func resultOf(ctx context.Context, o Outcome) breaker.Result {
	switch {
	case o.Class == ClassPermanent:
		return breaker.Success
	case o.Class == ClassCanceled && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return breaker.Canceled
	default:
		return breaker.Failure
	}
}

// enter passes the gates. On an error it names the reason.
func (g *guard) enter(ctx context.Context) (why Reason, err error) {
	r := g.r
	if r.breaker != nil && r.queued {
		// Check the breaker first: a wait for a limit is wasted if it is open.
		if err := r.closedDoor(); err != nil {
			return StopBreaker, err
		}
	}
	if r.concurrency != nil {
		if err := r.concurrency.Acquire(ctx); err != nil {
			return StopLimit, err
		}
		g.held = true
	}
	if r.adaptive != nil {
		if g.token, err = r.adaptive.Acquire(ctx); err != nil {
			return StopLimit, err
		}
	}
	if r.rate != nil {
		if err := r.rate.Wait(ctx); err != nil {
			return StopLimit, err
		}
	}
	if r.breaker != nil {
		if g.permit, err = r.breaker.Allow(); err != nil {
			return StopBreaker, err
		}
		g.let = true
	}
	return 0, nil
}

// leave gives everything back, in the opposite order.
func (g *guard) leave() {
	if g.ctx != nil {
		g.ctx.end()
	}
	if g.let {
		g.permit.Done(g.health)
	}
	if g.r.adaptive != nil {
		g.token.Done(g.load)
	}
	if g.held {
		g.r.concurrency.Release()
	}
}
