package retry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/limit"
)

// Runner runs operations under a policy. It is made once, never changes, and
// is shared by all goroutines; the context comes with each call.
type Runner struct {
	direct   bool // nothing stands before an attempt, and no clock is needed before the first failure
	bare     bool // nothing stands before an attempt
	timed    bool // the elapsed time is needed before the end
	observed bool // there is an observer
	draws    bool // the policy's delays need a random number
	confined bool // attempts have a context of their own
	queued   bool // attempts wait for limits
	policy   Policy
	settings
	calls *atomic.Uint64 // numbers the calls for observers
}

// settings is what options set.
type settings struct {
	name        string
	breaker     *breaker.Breaker
	budget      *limit.Budget
	concurrency *limit.Concurrency
	adaptive    *limit.Adaptive
	rate        *limit.Rate
	classify    func(error) Outcome
	schedule    func(State, Outcome) time.Duration
	review      func(context.Context, Review) Decision
	onRetry     []func(context.Context, Event) error
	observers   []func(Event)
	chatty      bool // one of them wants to see everything
	random      func() uint64
	grace       time.Duration
	hedging     bool
}

// New returns a runner for the policy. A policy that is not valid, or that has
// a key which the runner can't honour, is an error: reset-after belongs to
// sessions, and hedge to [NewHedger].
func New(p Policy, opts ...Option) (*Runner, error) {
	s, err := apply(opts)
	if err == nil && s.grace != 0 {
		err = errors.New("WithGrace: only a Hedger leaves an attempt behind")
	}
	if err = errors.Join(err, p.Refuse("a Runner", "reset-after", "hedge")); p.Hedge != (Hedge{}) {
		err = errors.Join(err, errors.New("use NewHedger for hedge"))
	}
	return build("New", p, s, err)
}

// Must is [New] for package variables and tests: it panics with the error that New
// would return. It accepts a policy or the text form of one, as [Parse] reads it.
func Must[P Policy | string](policy P, opts ...Option) *Runner {
	p, err := policyOf(policy)
	if err != nil {
		panic(fmt.Errorf("retry.Must: %w", err))
	}
	r, err := New(p, opts...)
	if err != nil {
		panic(err)
	}
	return r
}

// policyOf returns a policy that is given as such or as text.
func policyOf(policy any) (Policy, error) {
	if text, ok := policy.(string); ok {
		return Parse(text)
	}
	return policy.(Policy), nil
}

// build makes a runner for the named constructor, unless there is an error
// already.
func build(name string, p Policy, s settings, err error) (*Runner, error) {
	err = errors.Join(p.Validate(), err)
	switch {
	case err != nil:
	case s.budget == nil && p.Budget != limit.BudgetSpec{}:
		s.budget, err = limit.NewBudget(p.Budget)
	case s.budget != nil && p.Budget != limit.BudgetSpec{} && p.Budget != s.budget.Spec():
		err = fmt.Errorf("budget: the policy says %v, the shared one is %v", p.Budget, s.budget.Spec())
	}
	if err != nil {
		return nil, fmt.Errorf("retry.%s: %w", name, oneline.Error(err))
	}
	if s.random == nil {
		s.random = rand.Uint64
	}
	r := &Runner{policy: p, settings: s, calls: new(atomic.Uint64)}
	r.prepare()
	return r, nil
}

// prepare sets what follows from the policy and the settings.
func (r *Runner) prepare() {
	p, s := &r.policy, &r.settings
	r.observed, r.draws = len(s.observers) > 0, p.Random()
	r.confined = p.AttemptTimeout > 0 || p.TotalTimeout > 0 || s.hedging
	r.queued = s.concurrency != nil || s.adaptive != nil || s.rate != nil
	r.bare = s.breaker == nil && !r.queued && !r.observed && !r.confined
	r.direct = r.bare && s.budget == nil
	r.timed = p.TotalTimeout > 0 || r.observed || len(s.onRetry) > 0 || s.schedule != nil || s.review != nil
}

// Policy returns the runner's policy.
func (r *Runner) Policy() Policy { return r.policy }

// Name returns the runner's name.
func (r *Runner) Name() string { return r.name }

// Do runs the operation until it succeeds or the policy gives up; the error is
// then an [*Error]. The operation runs on the caller's goroutine; if the policy
// has a timeout, its context ends with the attempt, otherwise it is the
// caller's. The operation is never abandoned: one that ignores its context is
// waited for.
func (r *Runner) Do(ctx context.Context, op func(context.Context) error) error {
	if r == nil || !r.direct || op == nil || ctx == nil || ctx.Err() != nil {
		return r.run(ctx, State{}, op)
	}
	err := op(ctx)
	if err == nil {
		return nil
	}
	return r.again(ctx, op, err)
}

// Continue is [Runner.Do] for a call whose first attempt was made already, and
// failed. A caller that tries by itself first pays nothing for a runner while
// all goes well. The attempt that was made stood behind no breaker, limit or
// timeout of the runner, which counts it nevertheless; it is meant for runners
// that have none.
func (r *Runner) Continue(ctx context.Context, failed error, op func(context.Context) error) error {
	if failed == nil {
		return nil
	}
	if err := r.misuse(ctx, op); err != nil {
		return err
	}
	return r.again(ctx, op, failed)
}

// WithAttempts returns a runner that makes so many attempts and shares
// everything else with this one: budget, breaker, limits, observers, the numbers
// of calls. Less than 1 makes one attempt.
func (r *Runner) WithAttempts(n int) *Runner {
	own := *r
	own.policy.Attempts = max(n, 1)
	return &own
}

// WithHedge returns a hedger that shares everything else with this runner: budget,
// breaker, limits, observers, the numbers of calls. What it learns of the latency of
// calls is its own. A hedge that is zero or not valid is an error; nothing else is
// validated anew.
func (r *Runner) WithHedge(h Hedge) (*Hedger, error) {
	rule, err := NewHedgeRule(h)
	if err != nil {
		return nil, fmt.Errorf("retry.WithHedge: %w", err)
	}
	own := *r
	own.policy.Hedge = h
	own.hedging, own.grace = true, cmp.Or(r.grace, defaultGrace)
	own.prepare()
	return &Hedger{r: &own, rule: rule}, nil
}

// Value is [Runner.Do] for an operation with a result. The result must not
// depend on the attempt's context. When it gives up it returns what the last
// attempt returned beside its error.
func Value[T any](ctx context.Context, r *Runner, op func(context.Context) (T, error)) (v T, err error) {
	if op == nil {
		return v, r.run(ctx, State{}, nil)
	}
	if r == nil || !r.direct || ctx == nil || ctx.Err() != nil {
		err = r.run(ctx, State{}, func(ctx context.Context) (err error) { v, err = op(ctx); return err })
		return v, err
	}
	if v, err = op(ctx); err == nil {
		return v, nil
	}
	err = r.again(ctx, func(ctx context.Context) (err error) { v, err = op(ctx); return err }, err)
	return v, err
}

// Attempt is one turn of the loop over [Runner.Attempts].
type Attempt struct {
	ctx    context.Context
	number int
}

// Context returns the context of the attempt. It ends with the turn if the
// policy has a timeout, so nothing that outlives the turn may depend on it;
// otherwise it is the caller's.
func (a Attempt) Context() context.Context { return a.ctx }

// Number returns the number of the attempt, from 1.
func (a Attempt) Number() int { return a.number }

// Attempts is [Runner.Do] as a loop. Each turn is an attempt, *err says how it
// went, and after the loop *err is nil or the reason for giving up:
//
//	var rows []Row
//	var err error
//	for a := range api.Attempts(ctx, &err) {
//		rows, err = load(a.Context(), id)
//	}
//
// Each turn starts with *err nil. Assign to that very variable: with := in the
// body a new one hides it, and every turn looks like a success. Leaving the loop
// early is allowed and leaves *err as it is. A nil err panics: without it the loop
// could neither learn of a failure nor report one.
func (r *Runner) Attempts(ctx context.Context, err *error) iter.Seq[Attempt] {
	if err == nil {
		panic("retry: Attempts: err is nil; pass the address of the error that the loop assigns to")
	}
	return func(yield func(Attempt) bool) { r.each(ctx, err, yield) }
}

func (r *Runner) each(ctx context.Context, err *error, yield func(Attempt) bool) {
	*err = nil
	if r != nil && r.direct && ctx != nil && ctx.Err() == nil {
		if !yield(Attempt{ctx, 1}) || *err == nil {
			return
		}
	}
	r.eachAfter(ctx, err, yield)
}

// leftError is the failure of a turn that left the loop: it counts as what it
// is, and nothing follows.
type leftError struct{ error }

func (e *leftError) Unwrap() error { return e.error }

func (e *leftError) RetryOutcome() Outcome {
	o := OutcomeOf(e.error)
	o.Final = true
	return o
}

// eachAfter goes on after a first turn that failed. It is apart because its
// closure would otherwise be paid for by a first turn that succeeds.
func (r *Runner) eachAfter(ctx context.Context, err *error, yield func(Attempt) bool) {
	number, left := 0, false
	turn := func(ctx context.Context) error {
		number++
		*err = nil
		if yield(Attempt{ctx, number}) {
			return *err
		}
		left = true
		if *err == nil {
			return nil
		}
		return &leftError{*err}
	}
	var final error
	if *err != nil {
		number = 1
		final = r.again(ctx, turn, *err)
	} else {
		final = r.run(ctx, State{}, turn)
	}
	if !left {
		*err = final
	}
}
