package retry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// defaultGrace is how long the hedger waits for a canceled attempt to return.
const defaultGrace = 5 * time.Second

// Hedger is a [Runner] for calls that are slow now and then: if an attempt
// has not returned after the policy's hedge delay, it starts a second attempt
// beside it and takes the first success. It cancels the other attempt and waits for
// it. Only hedge operations that may safely run twice.
type Hedger struct {
	r    *Runner
	rule *HedgeRule
}

// NewHedger returns a hedger. The policy must have a hedge. The options are those of
// [New] and [WithGrace].
func NewHedger(p Policy, opts ...Option) (*Hedger, error) {
	s, err := apply(opts)
	s.hedging = true
	s.grace = cmp.Or(s.grace, defaultGrace)
	if p.Hedge == (Hedge{}) {
		err = errors.Join(err, errors.New("hedge: the policy has no hedge; use New"))
	}
	r, err := build("NewHedger", p, s, errors.Join(err, p.Refuse("a Hedger", "reset-after")))
	if err != nil {
		return nil, err
	}
	rule, err := NewHedgeRule(p.Hedge)
	if err != nil {
		return nil, fmt.Errorf("retry.NewHedger: %w", err)
	}
	return &Hedger{r: r, rule: rule}, nil
}

// Policy returns the hedger's policy.
func (h *Hedger) Policy() Policy { return h.r.policy }

// Runner returns the hedger's runner without hedging, for calls that must not run
// twice.
func (h *Hedger) Runner() *Runner { return h.r }

// WithAttempts is [Runner.WithAttempts] for a hedger. The new hedger shares the
// budget of hedges and the statistics of latency with this one.
func (h *Hedger) WithAttempts(n int) *Hedger {
	own := *h
	own.r = h.r.WithAttempts(n)
	return &own
}

// Hedged is [Value] with a second attempt beside a slow one. The first attempt
// runs on the caller's goroutine, and Hedged always waits for it. If both attempts
// succeed, Hedged returns the value of the first and drops the other.
func Hedged[T any](ctx context.Context, h *Hedger, op func(context.Context) (T, error)) (v T, err error) {
	if h == nil || h.r == nil {
		return v, errors.New("retry: the Hedger was not made by NewHedger")
	}
	if op == nil {
		return v, h.r.run(ctx, State{}, nil)
	}
	err = h.r.run(ctx, State{}, func(ctx context.Context) (err error) {
		v, err = hedge(ctx.(*attemptContext), h, op)
		return err
	})
	return v, err
}

// hedge makes one attempt of the runner: it calls the operation, and a second time if
// the first call is slow.
func hedge[T any](ctx *attemptContext, h *Hedger, op func(context.Context) (T, error)) (v T, err error) {
	var start time.Duration
	if h.rule.tail != nil {
		start = clock.Now()
	}
	x := &race[T]{h: h, ctx: ctx, op: op}
	if d, ok := h.rule.Begin(); ok {
		x.timer = time.AfterFunc(d, x.second)
	}
	defer x.finish() // also when op panics
	v, err = op(ctx)
	if second := x.close(); second != nil {
		x.settled = true
		v, err = x.settle(second, v, err)
	}
	if err == nil && h.rule.tail != nil {
		h.rule.Answered(clock.Now() - start)
	}
	return v, err
}

// race is an attempt that may call the operation a second time beside the first call.
type race[T any] struct {
	h     *Hedger
	ctx   *attemptContext
	op    func(context.Context) (T, error)
	timer *time.Timer

	settled bool // finish need not wait for the second call

	mu     sync.Mutex
	closed bool          // the first call has returned: a second must not start
	done   chan struct{} // closed when the second call has ended; nil until it starts

	// result of the second call, valid once done is closed
	value    T
	err      error
	panicked any
}

// second makes the second call. The timer runs it on a goroutine of its own if the
// first call is slow.
func (x *race[T]) second() {
	x.mu.Lock()
	if x.closed || !x.h.rule.Take() {
		x.mu.Unlock()
		return
	}
	x.done = make(chan struct{})
	x.mu.Unlock()
	x.tell(HedgeStarted, nil)
	x.err = errors.New("hedge: the operation ended its goroutine")
	defer close(x.done)
	defer func() {
		if x.panicked = recover(); x.panicked != nil {
			x.err = fmt.Errorf("hedge: panic: %v", x.panicked)
		}
		if x.err == nil {
			x.ctx.end() // cancels the first call, which has lost
		}
	}()
	x.value, x.err = x.op(x.ctx)
}

// close prevents a second call from starting. It returns nil if none has started, or
// else a channel that is closed when the second call ends.
func (x *race[T]) close() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	return x.done
}

// settle waits until the second call has ended and chooses one of the two results.
// v and err are the result of the first call.
func (x *race[T]) settle(done <-chan struct{}, v T, err error) (T, error) {
	if err == nil {
		x.ctx.end()
	}
	select {
	case <-done:
	case <-x.ctx.Done():
		if !within(x.h.r.grace, done) {
			x.tell(AttemptStuck, err)
			if err != nil {
				err = &marked{err, Outcome{Class: ClassStuck}}
			}
			return v, err
		}
	}
	if x.panicked != nil && err == nil {
		x.tell(AttemptFailed, x.err) // the first call has succeeded, so its result counts
	} else if x.panicked != nil {
		panic(x.panicked)
	}
	if err != nil && x.err == nil {
		return x.value, nil
	}
	return v, err
}

// finish stops the timer. If the first call panicked, it cancels the second call and
// waits for it.
func (x *race[T]) finish() {
	if x.timer != nil {
		x.timer.Stop()
	}
	if done := x.close(); done != nil && !x.settled {
		x.ctx.end()
		within(x.h.r.grace, done)
	}
}

func (x *race[T]) tell(k EventKind, err error) {
	r := x.h.r
	if len(r.observers) > 0 {
		r.tell(Event{Kind: k, Time: time.Now(), Name: r.name, Call: x.ctx.call, Attempt: x.ctx.attempt, Attempts: r.policy.attempts(), Err: err})
	}
}

// within reports whether done is closed before the time is up.
func within(d time.Duration, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}
