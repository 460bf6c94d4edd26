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

// call is one call of a runner, with all its attempts. It lives on the stack of the
// caller.
type call struct {
	r        *Runner
	id       uint64
	state    State
	outcome  Outcome       // of the last attempt, if it failed
	plain    bool          // the outcome is zero: neither the error nor a classifier stated one
	refused  bool          // breaker, limit or total timeout did not allow the last attempt, so it was not made
	ok       bool          // the call succeeded
	start    time.Duration // reading of the clock at which this process began to count; 0 means not yet
	spent    time.Duration // the Elapsed that the state had at start
	deadline time.Time     // the deadline of the caller's context; zero means none
	budget   limit.Call    // draws on the runner's budget; the zero value allows every retry
	timer    *time.Timer
}

// Resume is [Runner.Do] for a call that has already made attempts, perhaps in
// another process. The next attempt starts at once. If the policy allows no
// further attempt, Resume gives up at once.
//
// Store Event.State and Event.Until in the hook of [WithOnRetry]. Wait until
// Event.Until before calling Resume. If a total timeout is to include the time
// that has passed since, add that time to the state's Elapsed. The state counts
// failed attempts only: an attempt during which the process ended is not counted.
func (r *Runner) Resume(ctx context.Context, s State, op func(context.Context) error) error {
	if s.Attempt < 0 || s.Elapsed < 0 || s.Prev < 0 {
		return fmt.Errorf("retry: Resume: state: attempt %d, prev %v or elapsed %v is negative", s.Attempt, s.Prev, s.Elapsed)
	}
	s.Left = 0 // Left belongs to the deadline of the old context; the new context has its own
	return r.run(ctx, s, op)
}

// run makes all attempts of a call that continues from state s; the zero state is a
// new call.
func (r *Runner) run(ctx context.Context, s State, op func(context.Context) error) error {
	if err := r.misuse(ctx, op); err != nil {
		return err
	}
	var c call
	c.r, c.state, c.spent = r, s, s.Elapsed
	c.begin(ctx)
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

// misuse returns an error for arguments with which a call would panic later, such as
// a nil context.
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

func (c *call) begin(ctx context.Context) {
	if c.r.observed {
		c.id = c.r.callID(ctx)
	}
	if c.r.budget != nil {
		c.budget = c.r.budget.Begin()
	}
	if c.r.timed {
		c.startClock()
	}
}

// callID returns the id of a new call, for its events.
func (r *Runner) callID(ctx context.Context) uint64 {
	if r.identify != nil {
		if id := r.identify(ctx); id != 0 {
			return id
		}
	}
	return r.calls.Add(1)
}

// startClock reads the clock if the call has not read it yet. A runner that needs the
// elapsed time calls it before the first attempt, any other runner after the first
// failure.
func (c *call) startClock() {
	if c.start == 0 {
		c.start = clock.Now()
	}
}

func (c *call) end() {
	if c.r.budget != nil {
		c.budget.End(c.ok)
	}
}

// attempt makes one attempt. If the breaker, a limit or the total timeout does not
// allow the attempt, it sets refused and returns the final error of the call.
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

// emit shows an event to the observers. It is small enough to be inlined, so a
// runner without observers pays nothing.
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

// smooth reports whether an event belongs to a call without any failure so far.
// Observers of [WithTroubleObserver] do not get such events.
func smooth(k EventKind, attempt int) bool {
	return attempt <= 1 && (k == AttemptStarted || k == Succeeded)
}

// guard holds what one attempt has acquired: its place under the concurrency limit,
// its token of the adaptive limit, its breaker permit and its context. release
// gives them back, also when the operation panics.
type guard struct {
	r      *Runner
	ctx    *attemptContext
	held   bool // has acquired r.concurrency
	token  limit.Token
	permit breaker.Permit
	let    bool // permit is valid and must be returned
	health breaker.Result
	load   limit.Result
}

// guarded makes one attempt that needs admission. It passes the limits first, then
// the breaker, and then starts the attempt timeout.
func (c *call) guarded(ctx context.Context, op func(context.Context) error, h *history) (err error) {
	r := c.r
	g := guard{r: r, health: breaker.Failure, load: limit.Ignored} // used if the operation panics
	defer g.release()
	if why, err := g.admit(ctx, c); why != 0 {
		c.refused = true
		g.health = breaker.Canceled
		c.budget.Cancel() // returns the cost of a retry that was not made
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

// admit acquires the limits and the breaker permit for one attempt, and waits for
// them no longer than the total timeout allows. If the attempt must not be made, it
// returns the reason and the error that led to it.
func (g *guard) admit(ctx context.Context, c *call) (why Reason, err error) {
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

// confine returns the context of one attempt: it ends at the attempt timeout or the
// total timeout, whichever comes first.
func (c *call) confine(ctx context.Context) *attemptContext {
	left := c.r.policy.TotalTimeout
	if left > 0 {
		left = max(left-c.elapsed(), 1)
	}
	a := newAttemptContext(ctx, &c.r.policy, left)
	a.call, a.attempt = c.id, c.state.Attempt
	return a
}

// loadOf translates an outcome into a result for an adaptive limit. late means that a
// deadline ended the attempt.
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

// resultOf translates an outcome into a result for a breaker. A permanent failure is
// a success: the service has answered. A caller that cancels says nothing about the
// service. If the caller's deadline passes, the service was too slow: a failure.
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

// enter acquires the limits and the breaker permit. On an error it also returns the
// reason for which the call ends.
func (g *guard) enter(ctx context.Context) (why Reason, err error) {
	r := g.r
	if r.breaker != nil && r.queued {
		// Check the breaker first: a wait for a limit is wasted if it is open.
		if err := r.breakerError(); err != nil {
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

// release gives back everything that the attempt has acquired, in reverse order.
func (g *guard) release() {
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
	context.Context               // the caller's context
	deadline        time.Duration // reading of the clock at which the attempt's own limit ends; 0 means no own limit
	timeout         TimeoutError  // the cause with which the context ends at deadline
	call            uint64
	attempt         int

	made  atomic.Bool // real is set
	ended atomic.Bool
	mu    sync.Mutex // held while real is created
	real  cancelable
}

// cancelable is a context of the standard library with its cancel function.
type cancelable struct {
	context.Context
	cancel context.CancelFunc
}

// newAttemptContext returns the context of an attempt that begins now. left is
// the time until the total timeout. A timeout of 0 in the policy means no timeout.
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
		c.deadline = 0 // too far in the future for the clock, so no limit
		return c
	}
	if d, ok := parent.Deadline(); ok && !clock.Time(c.deadline).Before(d) {
		c.deadline = 0 // the caller's deadline comes first
	}
	return c
}

// timedOut reports whether the attempt's own limit has been reached, not the caller's.
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
	// From here on, Err, Done and context.Cause must always agree.
	return c.make().Err()
}

// Value implements [context.Context]. The standard library uses it to find the real
// context and attaches child contexts to that one without a goroutine.
func (c *attemptContext) Value(key any) any {
	if c.made.Load() {
		return c.real.Value(key)
	}
	return c.Context.Value(key)
}

// make returns the standard context behind this one. The first call creates it.
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
	if c.ended.Load() { // end may have run before the context existed
		c.real.cancel()
	}
	return c.real.Context
}

// end cancels the context, or makes sure that it is canceled once it is created.
func (c *attemptContext) end() {
	c.ended.Store(true)
	if c.made.Load() {
		c.real.cancel()
	}
}
