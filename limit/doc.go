// Package limit protects a destination from its callers: from too many retries,
// too many concurrent calls, and too many calls per minute.
//
//	budget, err := limit.NewBudget(limit.Refund(1, 0.1, 10))
//	calls, err := limit.NewConcurrency(limit.ConcurrencyConfig{Max: 20, Queue: 100})
//	calls, err := limit.NewAdaptive(limit.AdaptiveConfig{Max: 200, Queue: 100})
//	rate, err := limit.NewRate(limit.RateConfig{Rate: limit.Frequency{Events: 50, Per: time.Minute}})
//
// Make each once per destination and share it among all goroutines that call
// the destination.
//
// # Which one
//
//   - [Budget]: retries must not multiply the load while everything fails.
//     Every client that retries should have one. It limits retries only, never
//     first attempts.
//   - [Concurrency]: the destination, or the caller, can handle a known number
//     of concurrent calls.
//   - [Adaptive]: the same, but the number is unknown or changes.
//   - [Rate]: the destination allows a known number of calls per minute.
//   - [RateQueue]: the same, and some callers are more urgent than others.
//
// A budget protects a destination while load × (1 + allowed retries per call)
// is below its capacity. It cannot help if the first attempts alone overload
// the destination; use one of the others for that.
//
// # Priorities
//
// Callers that wait for a permit, or in a [RateQueue] for a slot, are served by
// class, then by deadline, then by arrival. There are five classes, from
// [Lowest] to [Highest]; the context carries the caller's ([WithPriority]). A
// waiter rises by one class per Aging, without an upper end, so no caller
// starves. Time is divided into periods of that length: the first rise comes
// with the next period, each further one a period later.
//
// When the queue is full, a new caller replaces the last waiter if its class is
// higher; otherwise it is rejected at once. No caller waits past the deadline
// of its context, and a permit never goes to a caller whose deadline has
// passed.
//
// # Time
//
// The methods whose names end in At take the time as an argument: a duration
// since any fixed origin up to 73 years ago, such as the Unix epoch. Tests and
// simulators pass virtual time. The methods without At read the monotonic
// clock; only those named Acquire and Wait block. This package starts no
// goroutines.
//
// # What it is not for
//
// This package does not retry, does not decide which failures count, and does
// not limit across processes: each process has its own counts.
package limit
