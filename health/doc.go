// Package health knows how destinations are doing: which of several to call,
// when one that is down may be back, and how hard to press one that struggles.
//
//   - [Score] says how costly a target is to call, from how long its answers take.
//   - [Pool] chooses among targets that can do the same work, and fails over.
//   - [Gate] makes many callers wait for one destination that is down, while one
//     of them at a time looks whether it is back.
//   - [Recovery] estimates from past outages how long one lasts, and when to look.
//   - [ErrorRate] makes delays longer while most of what is sent fails.
//   - [SendRate] finds out how often a destination may be called that answers
//     "too many requests".
//
// Each is usable alone, and none knows about HTTP:
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
// One value serves one destination, or one set of them, and is shared by all
// goroutines that call it; only Score is for one goroutine at a time.
//
// # Time
//
// Methods whose names end in At take the time as an argument, a duration since any
// fixed origin, never negative: tests and simulators give them virtual time. The
// others read the monotonic clock. Use one kind or the other for one value. Only
// [Gate.Enter] and [SendRate.Wait] ever block. Nothing here keeps a goroutine; a
// gate at which callers block has one timer.
//
// # What it is not for
//
// This package does not make calls, does not retry them and does not tell which
// failures count: its users report an [Outcome]. It is no circuit breaker: a pool
// looks at those of package breaker. Nothing is shared between processes, though
// what a Recovery has learned can be stored and loaded.
package health
