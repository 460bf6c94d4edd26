// Package retry runs operations that may fail temporarily, until they succeed or
// a limit or a permanent failure ends the call.
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
// A [Runner] is a policy together with the parts that can't be written in a file:
// breaker, shared budget, limits, classifier, hooks, observers. It never changes, and
// goroutines may share it. The order of the parts is fixed: the total timeout contains
// the loop, and each turn passes the budget, the limits, the breaker and the attempt
// timeout before it runs the operation. For another order, nest two runners.
//
// A runner never starts a wait that would end after the context's deadline, after
// the total timeout or before the breaker allows a call: it gives up at once, with
// the last failure. It makes no attempt with a context that has ended, and it always
// returns a success.
//
// If the policy has a timeout, each attempt has a context of its own, which
// ends with the attempt. The result of an operation must not depend on that context:
// read a response's body or a query's rows inside the operation. (For HTTP, package
// retryhttp returns responses whose bodies can be read afterwards.) Without a timeout
// the attempt has the caller's context.
//
// Without timeouts, budget, breaker, limits and observers a call that succeeds
// at once costs a function call: no clock, no lock, no allocation.
//
// # Errors
//
// Every failure is retried unless its type says otherwise; the text of an error does
// not matter. [Permanent], [After] and [Throttled] mark an error, any error may
// implement [Classified], and [WithClassifier] sets a function for all errors.
//
// The error of a runner that gives up is an [*Error]. It has the [Reason], the
// number of attempts, the elapsed time and the failures, and unwraps to the
// reason and the last failure:
//
//	switch {
//	case errors.Is(err, retry.StopBreaker):    // try elsewhere
//	case errors.Is(err, sql.ErrNoRows):        // what the operation said
//	}
//
// # Decide
//
// [Decide] makes the decision about a failed attempt, as a pure function. The runner
// calls it, and so do stored tasks and the simulator, which wait in other ways. A
// stored [State] is enough to continue a call after a restart.
//
// # For simulators
//
// [DecideWithin], [HedgeRule] and [NewHedgeRule] are the parts of a runner and of a
// hedger that read no clock and start no goroutine. Package sim runs them in virtual
// time. Programs that make calls do not need them.
//
// # What it is not for
//
// A runner can't abandon an operation that ignores its context, because Go can't stop
// a goroutine: the runner waits for it. Retries at several layers multiply; retry at
// one layer. A budget protects a service only if the service can take
// load × (1 + budget).
package retry
