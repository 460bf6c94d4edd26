// Package health tracks the state of destinations: which of several to call,
// when one that is down may be back, and how fast to call one that is
// overloaded.
//
//   - [Score] estimates how costly the next call of a target is, from response
//     times.
//   - [Pool] chooses among targets that can do the same work, and fails over.
//   - [Gate] makes many callers wait for one destination that is down, while
//     one of them at a time probes it.
//   - [Recovery] estimates from past outages how long one lasts, and when to
//     probe.
//   - [ErrorRate] makes delays longer while most calls fail.
//   - [SendRate] finds the rate at which a destination that answers "too many
//     requests" may be called.
//
// Each can be used alone, and none depends on HTTP:
//
//	pool, err := health.NewPool(health.PoolConfig{}, []health.Target{
//		{Name: "key-1", Provider: "acme"},
//		{Name: "key-2", Provider: "acme"},
//		{Name: "spare", Tier: 1},
//	})
//	call := pool.Pick()
//	answer, err := ask(ctx, call.Target())
//	call.Done(health.Succeeded)
//
// Use one value for one destination, or for one set of them, and share it among
// all goroutines that call it. Score is the exception: it is for one goroutine
// at a time.
//
// # Time
//
// Methods whose names end in At take the time as an argument: a duration since
// any fixed origin, never negative. Tests and simulators pass virtual time. The
// other methods read the monotonic clock. Use only one of the two kinds for one
// value. Only [Gate.Enter] and [SendRate.Wait] block. No value runs a
// goroutine; a gate in which callers block has one timer.
//
// # What it is not for
//
// This package does not make calls, does not retry them and does not decide
// which failures count: its users report an [Outcome]. It contains no circuit
// breaker; a pool can use those of package breaker. Processes share nothing,
// but what a Recovery has learned can be stored and loaded.
package health
