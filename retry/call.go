package retry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
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

// Resume is [Runner.Do] for a call that has made attempts already, perhaps in
// another process. Its next attempt starts at once, unless the policy allows no
// further one.
//
// Store Event.State and Event.Until in the hook of [WithOnRetry]; wait until
// then before calling Resume, and add the time that has passed to the state's
// Elapsed if a total timeout is to cover it. The state is that of attempts which
// have failed: one that takes the process down with it is not counted.
func (r *Runner) Resume(ctx context.Context, s State, op func(context.Context) error) error {
	if s.Attempt < 0 || s.Elapsed < 0 || s.Prev < 0 {
		return fmt.Errorf("retry: Resume: state: attempt %d, prev %v or elapsed %v is negative", s.Attempt, s.Prev, s.Elapsed)
	}
	s.Left = 0 // the deadline is that of this context
	return r.run(ctx, s, op)
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
	if s != (State{}) {
		if why := r.policy.spent(s); why != 0 {
			return c.giveUp(ctx, why, nil, nil)
		}
	}
	err := c.attempt(ctx, op, nil)
	if err == nil || c.refused {
		return err
	}
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

func (c *call) elapsed() time.Duration {
	if c.start == 0 {
		return c.spent
	}
	return c.spent + clock.Now() - c.start
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

// smooth reports whether an event is all that happens to a call that goes right at
// once.
func smooth(k EventKind, attempt int) bool {
	return attempt <= 1 && (k == AttemptStarted || k == Succeeded)
}

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

// attemptContext is the context of one attempt. It ends when the attempt does,
// or at its deadline. A context of the standard library starts a timer
// at once; this one starts it when Done is called for the first time.
type attemptContext struct {
	context.Context               // the caller's
	deadline        time.Duration // the clock's reading at our limit; 0 means that we have none
	timeout         TimeoutError  // the cause when it is reached
	call            uint64
	attempt         int

	made  atomic.Bool // real is there
	ended atomic.Bool
	mu    sync.Mutex // held while real is made
	real  cancelable
}

// cancelable is a context of the standard library with its cancel function.
type cancelable struct {
	context.Context
	cancel context.CancelFunc
}

// newAttemptContext returns the context of an attempt that begins now. left is
// what the total timeout leaves; zero limits are none.
func newAttemptContext(parent context.Context, p *Policy, left time.Duration) *attemptContext {
	c := &attemptContext{Context: parent}
	limit := p.AttemptTimeout
	c.timeout.Limit = limit
	if p.TotalTimeout > 0 && (limit == 0 || left < limit) {
		c.timeout.Limit, c.timeout.Total = p.TotalTimeout, true
		limit = left
	}
	if limit == 0 {
		return c
	}
	if c.deadline = clock.Later(clock.Now(), limit); c.deadline == math.MaxInt64 {
		c.deadline = 0 // beyond all time
		return c
	}
	if d, ok := parent.Deadline(); ok && !clock.Time(c.deadline).Before(d) {
		c.deadline = 0 // the caller's comes first
	}
	return c
}

// timedOut reports whether our own limit has been reached.
func (c *attemptContext) timedOut() bool { return c.deadline != 0 && clock.Now() >= c.deadline }

// Deadline implements [context.Context].
func (c *attemptContext) Deadline() (time.Time, bool) {
	if c.deadline == 0 {
		return c.Context.Deadline()
	}
	return clock.Time(c.deadline), true
}

// Done implements [context.Context].
func (c *attemptContext) Done() <-chan struct{} { return c.make().Done() }

// Err implements [context.Context].
func (c *attemptContext) Err() error {
	if c.made.Load() {
		return c.real.Err()
	}
	if !c.ended.Load() && c.Context.Err() == nil && !c.timedOut() {
		return nil
	}
	// From here on Err, Done and context.Cause must agree for good.
	return c.make().Err()
}

// Value implements [context.Context]. The standard library finds the real
// context through it, and hangs children on that without a goroutine.
func (c *attemptContext) Value(key any) any {
	if c.made.Load() {
		return c.real.Value(key)
	}
	return c.Context.Value(key)
}

// make returns the standard context behind this one, made at the first call.
func (c *attemptContext) make() context.Context {
	if c.made.Load() {
		return c.real.Context
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made.Load() {
		return c.real.Context
	}
	if c.deadline != 0 {
		c.real.Context, c.real.cancel = context.WithDeadlineCause(c.Context, clock.Time(c.deadline), &c.timeout)
	} else {
		c.real.Context, c.real.cancel = context.WithCancel(c.Context)
	}
	c.made.Store(true)
	if c.ended.Load() { // end may have looked before there was anything to cancel
		c.real.cancel()
	}
	return c.real.Context
}

// end cancels the context.
func (c *attemptContext) end() {
	c.ended.Store(true)
	if c.made.Load() {
		c.real.cancel()
	}
}
