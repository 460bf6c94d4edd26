// Package breaker is a circuit breaker: it stops calling a destination that
// keeps failing, and probes it to find out when it works again.
//
//	b := breaker.Must(breaker.Config{}, breaker.WithName("payments"))
//
//	err := breaker.Do(ctx, b, func(ctx context.Context) error {
//		return charge(ctx, order)
//	})
//	if errors.Is(err, breaker.ErrOpen) {
//		// charge was not called: answer from a cache, or enqueue the order
//	}
//
// The zero [Config] is a tested default: the breaker opens when 80 % of at
// least 20 calls within 10 s fail. One breaker guards one destination, for
// calls with any kind of result, and is shared by all goroutines.
//
// # States
//
// A [Closed] breaker lets calls through and counts their results in a rolling
// window. When a rule of its [Config] is met it becomes [Open] and rejects
// calls with an [*OpenError] that says for how long. After that time it is
// [HalfOpen]: a few calls, the probes, go through. When enough of them succeed
// the breaker closes; when one fails it opens again, for longer.
//
// Only a failed or a slow call opens a breaker, never a success, not even the
// one that completes Config.MinCalls.
//
// [Breaker.Force] keeps a breaker [ForcedOpen] or [ForcedClosed];
// [Breaker.Reset] ends that.
//
// # Results
//
// [Do] is the short form. A caller that cannot use a function gets a [Permit]
// from [Breaker.Allow] and reports the result of the call with [Permit.Done]. A
// call that its own caller canceled shows nothing about the destination: report
// it as [Canceled], which does not count. A result counts only in the state in
// which its call began: one that arrives after the breaker opened and closed
// again is ignored.
//
// A probe that never reports must not keep a breaker half-open for ever: after
// Config.ProbeTimeout another probe may start. A later report of the first
// probe still counts, so that calls which take longer than the timeout can
// close a breaker too.
//
// # Windows
//
// Config.WindowCalls counts the last n calls, exactly. A success then costs one
// atomic load and one atomic add: no clock, no lock. Config.Window counts the
// calls of the last d in ten slices; a slice leaves the window as a whole, so a
// call counts for at least nine tenths of the window and at most all of it. A
// time window costs one clock read for each result, and Config.SlowCall one
// more when the call begins. In both windows the counts are exact at any
// moment, with any number of goroutines, and rates are compared without
// rounding.
//
// # Events
//
// [WithObserver] reports every change of state, in order and with no lock held.
// There is no event for the initial state: initialise a gauge with
// [Breaker.State].
//
// # Time
//
// Methods whose name ends in At are for simulators, and for state machines that
// have their own clock, as package health does. They take the current time as
// an argument: a duration since any fixed origin, never negative. They read no
// clock. The other methods read the process's monotonic clock; Allow and Done
// read it only when the state or the configuration needs it. Use only one of
// the two kinds for one breaker: their origins differ. No method starts a
// goroutine or blocks.
//
// # What it is not for
//
// A breaker does not retry, does not limit rates or concurrency, and has no
// timeout for calls. Errors that are the caller's own fault, such as an invalid
// request, must not open it: report them as [Success], or as [Canceled] to
// ignore them.
package breaker
