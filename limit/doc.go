// Package limit keeps callers from asking too much of a destination: too many
// retries, too many calls at once, too many calls in a time.
//
//	budget, err := limit.NewBudget(limit.Refund(1, 0.1, 10))
//	calls, err := limit.NewConcurrency(limit.ConcurrencyConfig{Max: 20, Queue: 100})
//	calls, err := limit.NewAdaptive(limit.AdaptiveConfig{Max: 200, Queue: 100})
//	rate, err := limit.NewRate(limit.RateConfig{Rate: limit.Frequency{Events: 50, Per: time.Minute}})
//
// Each is made once per destination and shared by all goroutines that call it.
//
// # Which one
//
//   - [Budget]: retries must not multiply the load when everything fails. Every
//     client that retries should have one. It limits retries only, never calls.
//   - [Concurrency]: the destination can serve so many calls at once, or the
//     caller can afford so many to be open.
//   - [Adaptive]: the same, but nobody knows how many, or it changes.
//   - [Rate]: the destination promised so many calls per minute.
//   - [RateQueue]: the same, and some callers are more urgent than others.
//
// A budget protects while load × (1 + retries it allows) stays below what the
// destination can take; it cannot save one that the calls alone overload. That
// is what the others are for.
//
// # Priorities
//
// Callers that wait for a permit, or in a [RateQueue] for a slot, are served by class, then deadline, then
// arrival. There are five classes, from [Lowest] to [Highest]; the context
// carries the caller's ([WithPriority]). A waiter rises one class per Aging, and
// goes on rising, so nobody starves: time is cut into periods of that length,
// the first rise comes with the next period, the others one period apart.
//
// When the queue is full, a newcomer takes the place of the last waiter if its
// class is higher, and is turned away at once if not. Nobody waits past the
// deadline of its context, and a permit never goes to a caller that is too late.
//
// # Time
//
// The methods whose names end in At take the time as an argument, a duration
// since any fixed origin: tests and simulators give them virtual time. Origins
// up to 73 years ago are fine, so the Unix epoch is. The methods without At read
// the monotonic clock, and only those named Acquire and Wait ever block. Nothing
// here starts a goroutine.
//
// # What it is not for
//
// This package does not retry, does not tell which failures count, and does not
// limit across processes: each process counts for itself.
package limit
