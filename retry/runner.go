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

// Runner runs operations under a policy. Make it once and share it: it never
// changes, and all goroutines may use it. Each call has its own context.
type Runner struct {
	direct    bool // bare, and without a budget: a first attempt that succeeds is only a function call
	alone     bool // nothing but the policy decides about a retry, and it has no total timeout
	atOnce    bool // alone, without a delay, and no hook or observer learns of a failure
	bare      bool // an attempt needs no breaker, limit, observer or own context
	timed     bool // the elapsed time is needed before the call ends
	observed  bool // there is an observer
	draws     bool // the policy's delays need a random number
	announced bool // hooks or observers learn of every wait
	confined  bool // attempts have a context of their own
	queued    bool // attempts wait for limits
	policy    Policy
	tables    *tables // the policy's schedules
	settings
	calls *atomic.Uint64 // numbers the calls for observers
}

// settings holds the values that options set.
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
	identify    func(context.Context) uint64
	chatty      bool // an observer wants all events, not only those about failures
	random      func() uint64
	grace       time.Duration
	hedging     bool
}

// New returns a runner for the policy. It returns an error if the policy is not valid
// or sets a key that a runner does not support: reset-after, which is for sessions,
// and hedge, which is for [NewHedger].
func New(p Policy, opts ...Option) (*Runner, error) {
	s, err := apply(opts)
	if err == nil && s.grace != 0 {
		err = errors.New("WithGrace: only NewHedger supports this option")
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

// policyOf returns the policy that a value holds: a Policy, or its text form.
func policyOf(policy any) (Policy, error) {
	if text, ok := policy.(string); ok {
		return Parse(text)
	}
	return policy.(Policy), nil
}

// build makes a runner. name is the constructor for error messages. err has the
// problems that the constructor found; build adds its own.
func build(name string, p Policy, s settings, err error) (*Runner, error) {
	err = errors.Join(p.Validate(), err)
	switch {
	case err != nil:
	case s.budget == nil && p.Budget != limit.BudgetSpec{}:
		s.budget, err = limit.NewBudget(p.Budget)
	case s.budget != nil && p.Budget != limit.BudgetSpec{} && p.Budget != s.budget.Spec():
		err = fmt.Errorf("budget: the policy has %v, but the budget of WithBudget is %v; they must be equal", p.Budget, s.budget.Spec())
	}
	if err != nil {
		return nil, fmt.Errorf("retry.%s: %w", name, oneline.Error(err))
	}
	if s.random == nil {
		s.random = rand.Uint64
	}
	r := &Runner{policy: p, tables: p.compile(), settings: s, calls: new(atomic.Uint64)}
	r.prepare()
	return r, nil
}

// prepare computes the flags that follow from the policy and the settings.
func (r *Runner) prepare() {
	p, s := &r.policy, &r.settings
	r.observed, r.draws = len(s.observers) > 0, p.Random()
	r.announced = r.observed || len(s.onRetry) > 0
	r.confined = p.AttemptTimeout > 0 || p.TotalTimeout > 0 || s.hedging
	r.queued = s.concurrency != nil || s.adaptive != nil || s.rate != nil
	r.bare = s.breaker == nil && !r.queued && !r.observed && !r.confined
	r.direct = r.bare && s.budget == nil
	r.alone = s.breaker == nil && s.budget == nil && s.schedule == nil && s.review == nil && p.TotalTimeout == 0
	r.atOnce = r.alone && p.Base == 0 && !r.announced
	r.timed = p.TotalTimeout > 0 || r.announced || s.schedule != nil || s.review != nil
}

// Policy returns the runner's policy.
func (r *Runner) Policy() Policy { return r.policy }

// Name returns the runner's name.
func (r *Runner) Name() string { return r.name }

// Do runs the operation until it succeeds or the policy gives up; the error is
// then an [*Error]. The operation runs on the caller's goroutine. If the policy
// has a timeout, the context of the operation ends with the attempt, otherwise it is
// the caller's. Do waits for an operation that ignores its context.
func (r *Runner) Do(ctx context.Context, op func(context.Context) error) error {
	return inlined(func() error {
		for r != nil && r.direct && op != nil && ctx != nil && ctx.Err() == nil {
			err := op(ctx)
			if err != nil {
				err = r.again(ctx, op, err)
			}
			return err //nolint:staticcheck // not a loop, see inlined
		}
		return r.start(ctx, op)
	})
}

// inlined returns the result of f. A function whose body is an argument of inlined is
// inlined into its callers even if it is larger than the compiler's usual limit: a call of
// a parameter counts little, and a function literal that is called once may be ten times
// as large. An operation that is a function literal is then inlined too.
//
// [Runner.Do] and [Value] write their only condition as a loop that ends after one round.
// The compiler expects that a loop is entered, and places its body directly after the
// condition. With an if, a call that succeeds at once jumps over the code of the other
// path; without that jump it takes about 5 % less time.
func inlined(f func() error) error { return f() }

// start makes all attempts of a new call. It is not inlined, because that would make the
// code of every caller of Do larger.
//
//go:noinline
func (r *Runner) start(ctx context.Context, op func(context.Context) error) error {
	return r.run(ctx, State{}, op)
}

// Continue is [Runner.Do] for a call whose first attempt the caller has already made,
// and which failed with the given error. A caller that makes the first attempt itself
// pays nothing for the runner if that attempt succeeds. The runner counts the attempt,
// although its breaker, limits and timeouts did not apply to it: use Continue with
// runners that have none of these. If failed is nil, Continue returns nil.
func (r *Runner) Continue(ctx context.Context, failed error, op func(context.Context) error) error {
	if failed == nil {
		return nil
	}
	if err := r.misuse(ctx, op); err != nil {
		return err
	}
	return r.again(ctx, op, failed)
}

// WithAttempts returns a runner that makes up to n attempts and shares everything
// else with this one: budget, breaker, limits, observers and the counter of
// calls. An n below 1 means one attempt.
func (r *Runner) WithAttempts(n int) *Runner {
	own := *r
	own.policy.Attempts = max(n, 1)
	return &own
}

// WithHedge returns a hedger that shares everything else with this runner: budget,
// breaker, limits, observers and the counter of calls. It has its own statistics of
// latency. It returns an error if the hedge is zero or not valid.
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
// depend on the attempt's context. If the runner gives up, Value returns the result
// of the last attempt together with the error.
func Value[T any](ctx context.Context, r *Runner, op func(context.Context) (T, error)) (v T, err error) {
	err = inlined(func() (err error) {
		for r != nil && r.direct && op != nil && ctx != nil && ctx.Err() == nil {
			v, err = op(ctx)
			if err != nil {
				v, err = againValue(ctx, r, op, v, err)
			}
			return err //nolint:staticcheck // not a loop, see inlined
		}
		v, err = startValue(ctx, r, op)
		return err
	})
	return v, err
}

// againValue is [Runner.again] for an operation with a result. v is the result of the
// first attempt. Like startValue it is not inlined, so that [Value] is small and keeps its
// result in a register.
//
//go:noinline
func againValue[T any](ctx context.Context, r *Runner, op func(context.Context) (T, error), v T, err error) (T, error) {
	err = r.again(ctx, func(ctx context.Context) (err error) { v, err = op(ctx); return err }, err)
	return v, err
}

// startValue is [Runner.start] for an operation with a result.
//
//go:noinline
func startValue[T any](ctx context.Context, r *Runner, op func(context.Context) (T, error)) (v T, err error) {
	if op == nil {
		return v, r.start(ctx, nil)
	}
	err = r.start(ctx, func(ctx context.Context) (err error) { v, err = op(ctx); return err })
	return v, err
}

// Attempt is one iteration of the loop over [Runner.Attempts].
type Attempt struct {
	ctx    context.Context
	number int
}

// Context returns the context of the attempt. If the policy has a timeout, the
// context ends with the iteration, so nothing that outlives the iteration may depend
// on it. Otherwise it is the caller's context.
func (a Attempt) Context() context.Context { return a.ctx }

// Number returns the number of the attempt, from 1.
func (a Attempt) Number() int { return a.number }

// Attempts is [Runner.Do] as a loop. Each iteration is an attempt. The body assigns
// the result of the attempt to *err. After the loop *err is nil or the error with
// which the runner gave up:
//
//	var rows []Row
//	var err error
//	for a := range api.Attempts(ctx, &err) {
//		rows, err = load(a.Context(), id)
//	}
//
// Each iteration starts with *err nil. Assign to that very variable: with := in the
// body a new variable hides it, and every iteration looks like a success. The body
// may leave the loop early; *err then stays as it is. Attempts panics if err is nil.
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

// leftError is the failure of an iteration that left the loop early. It has the class
// of the failure that it wraps, but no attempt may follow.
type leftError struct{ error }

func (e *leftError) Unwrap() error { return e.error }

func (e *leftError) RetryOutcome() Outcome {
	o := OutcomeOf(e.error)
	o.Final = true
	return o
}

// eachAfter runs the loop as a call of the runner. If *err is not nil, the first
// iteration was already made and failed with it. It is a separate function so that a
// first iteration that succeeds does not pay for the closure.
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
