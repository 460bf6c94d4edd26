// Package retry runs operations that fail for a while, until they succeed or
// there is a reason to stop.
//
//	var api = retry.Must("exponential(50ms..20s) jitter=full attempts=3 attempt-timeout=2s")
//
//	u, err := retry.Value(ctx, api, func(ctx context.Context) (*User, error) {
//		return repo.Get(ctx, id)
//	})
//
// or as a loop:
//
//	for a := range api.Attempts(ctx, &err) {
//		rows, err = load(a.Context(), id)
//	}
//
// # Policy
//
// A [Policy] says how long to wait, when to stop and what retries may cost. It
// is plain data with one text form, the same in Go, on a flag, in a file and in
// a stored task:
//
//	policy   = ( family | preset ) { " " key "=" value }
//	family   = fixed(D[..CAP]) | linear(D[..CAP]) | exponential(D[..CAP]) | decorrelated(D..CAP)
//	jitter   = none | 20% | +50% | 0.5..1.5 | full | equal | true
//	attempts = N | unlimited
//	budget   = none | refund(COST,CREDIT,CAP[,THROTTLED]) | ratio(F) | bucket(MAX,RATIO)
//	hedge    = none | D | p95, either with /5% for the share of calls
//
// The other keys are base, cap, factor, max-doublings, attempt-timeout,
// total-timeout, throttle-base, server-wait, server-slack and reset-after.
// A policy without attempts makes one. [Presets] lists the policies that have
// names; keys after a name override: "http attempts=6".
//
// An attempt is one try, the first included. A delay is computed, a wait is
// done. The cap is a promise: no computed delay exceeds it, jitter included.
//
// # Runner
//
// A [Runner] is a policy with what can't be written in a file: breaker, shared
// budget, limits, classifier, hooks, observers. It never changes and is shared.
// Its order is fixed: total timeout around a loop of budget, limits, breaker,
// attempt timeout, operation. For another order, nest two runners.
//
// A runner never starts a wait that must outlive the context's deadline or the
// total timeout, and never waits towards a breaker that will still be open: it
// gives up at once, with the error it has. It makes no attempt with a context
// that has ended, and never throws away a success.
//
// With a policy that has a timeout, each attempt has a context of its own, which
// ends with the attempt. What an operation returns must not depend on it: read a
// response's body or a query's rows inside. (For HTTP there is package
// retryhttp, whose bodies can be read afterwards.) Without a timeout the attempt
// has the caller's context.
//
// Without timeouts, budget, breaker, limits and observers a call that succeeds
// at once costs a function call: no clock, no lock, no allocation.
//
// # Errors
//
// Every failure is retried unless it says otherwise, by type and never by its
// text: [Permanent], [After] and [Throttled] mark an error, any error may
// implement [Classified], and [WithClassifier] decides for all.
//
// The error of a runner that gives up is an [*Error]. It has the [Reason], the
// number of attempts, the time they took and the failures, and unwraps to the
// reason and the last failure:
//
//	switch {
//	case errors.Is(err, retry.StopBreaker):    // try elsewhere
//	case errors.Is(err, sql.ErrNoRows):        // what the operation said
//	}
//
// # Decide
//
// [Decide] is the decision itself, as a pure function. The runner is one of its
// callers; a stored task and a simulator, which wait in another way, call it too.
// [State] is all it needs to go on after a restart.
//
// # For simulators
//
// [DecideWithin], [HedgeRule] and [NewHedgeRule] are the parts of a runner and of a
// hedger that read no clock and start no goroutine. Package sim runs them in virtual
// time. Programs that make calls do not need them.
//
// # What it is not for
//
// An operation that runs on when its context ends is waited for: Go can't stop
// it. Retrying at several layers multiplies; retry at one. A budget protects a
// service only while load × (1 + budget) stays below what it can take.
package retry
