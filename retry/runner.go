package retry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
