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

// defaultGrace is how long a loser may take to notice that it was canceled.
const defaultGrace = 5 * time.Second

// Hedger is a [Runner] for calls that are slow now and then: when an attempt
// has not answered after the policy's hedge delay, a second one is started
// beside it, and the first answer counts. The loser is canceled and waited for.
// Only hedge operations that may safely run twice.
type Hedger struct {
	r    *Runner
	rule *HedgeRule
}

// NewHedger returns a hedger. The policy must have a hedge key; the options are
// those of [New], and [WithGrace].
func NewHedger(p Policy, opts ...Option) (*Hedger, error) {
	s, err := apply(opts)
	s.hedging = true
	s.grace = cmp.Or(s.grace, defaultGrace)
	if p.Hedge == (Hedge{}) {
		err = errors.Join(err, errors.New("hedge: the policy has none; use New"))
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

// Runner returns the runner that makes the hedger's attempts, for calls that must
// not be hedged: it starts no second attempt.
func (h *Hedger) Runner() *Runner { return h.r }

// WithAttempts is [Runner.WithAttempts] for a hedger. The share of calls that may
// be hedged, and what is known of their latency, are shared too.
func (h *Hedger) WithAttempts(n int) *Hedger {
	own := *h
	own.r = h.r.WithAttempts(n)
	return &own
}

// Hedged is [Value] with a second attempt beside a slow one. The first attempt
// runs on the caller's goroutine and is never abandoned; one that lost and
// ignores its context is waited for. When both succeed, the value of the second
// is dropped.
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

// hedge makes one attempt of the runner: an operation, and perhaps a second.
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

// race is an attempt that may have a second operation running beside the first.
type race[T any] struct {
	h     *Hedger
	ctx   *attemptContext
	op    func(context.Context) (T, error)
	timer *time.Timer

	settled bool // the second has been waited for

	mu     sync.Mutex
	closed bool          // the first has returned: a second must not start
	done   chan struct{} // closed when the second has ended; nil until it starts

	// of the second, valid once done is closed
	value    T
	err      error
	panicked any
}

// second runs on a goroutine of its own when the first is slow.
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
			x.ctx.end() // the first has lost
		}
	}()
	x.value, x.err = x.op(x.ctx)
}

// close keeps a second from starting. It returns nil when none has.
func (x *race[T]) close() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	return x.done
}

// settle chooses between the answer of the first and that of the second, and
// waits until the loser has ended.
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
		x.tell(AttemptFailed, x.err) // the first attempt has succeeded
	} else if x.panicked != nil {
		panic(x.panicked)
	}
	if err != nil && x.err == nil {
		return x.value, nil
	}
	return v, err
}

// finish ends what is still running after a panic of the first.
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
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
