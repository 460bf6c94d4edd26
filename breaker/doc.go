// Package breaker stops calling what keeps failing, and finds out cheaply when
// it works again.
//
//	b := breaker.Must(breaker.Config{}, breaker.WithName("payments"))
//
//	err := breaker.Do(ctx, b, func(ctx context.Context) error {
//		return charge(ctx, order)
//	})
//	if errors.Is(err, breaker.ErrOpen) {
//		// charge was not called: answer from a cache, queue it, say sorry
//	}
//
// The zero [Config] is the default that measurements support: it opens when
// 80 % of at least 20 calls within 10 s fail. One breaker guards one destination,
// for calls with any kind of result, and is shared by all goroutines.
//
// # States
//
// A [Closed] breaker lets calls through and counts their results in a rolling
// window. When a rule of its [Config] is met it becomes [Open] and refuses
// calls with an [*OpenError] that says for how long. After that time it is
// [HalfOpen]: a few calls, the probes, go through. When enough of them succeed
// the breaker closes; when one fails it opens again, for longer.
//
// Only a failed or a slow call opens a breaker, never a plain success, not
// even the one that completes Config.MinCalls.
//
// [Breaker.Force] holds a breaker [ForcedOpen] or [ForcedClosed];
// [Breaker.Reset] gives it back to its rules.
//
// # Results
//
// [Do] is the short form. A caller that can't use a function gets a [Permit]
// from [Breaker.Allow] and reports with [Permit.Done] what became of the call.
// A call that its own caller canceled says nothing about the destination and
// is reported as [Canceled], which counts nothing. A result counts only in the
// state in which its call began: one that comes in after the breaker opened
// and closed again is not held against the new state.
//
// A probe that never reports would keep a half-open breaker from ever closing.
// After Config.ProbeTimeout its place is free for another probe. Should it
// report after all, the report still counts, so that calls which take longer
// than the timeout can close a breaker too.
//
// # Windows
//
// Config.WindowCalls counts the last so many calls, exactly. A success then
// costs one atomic load and one atomic add: no clock, no lock. Config.Window
// counts the calls of the last so long in ten slices that leave the window
// whole: a call counts for at least nine tenths of the window and at most all
// of it. A time window costs one clock read for each result, and
// Config.SlowCall one more when the call begins. In both windows the counts
// are exact at any moment, with any number of goroutines, and rates are
// compared without rounding.
//
// # Events
//
// [WithObserver] reports every change of state, in order and with no lock held.
// There is no event for the initial state: a gauge starts with what
// [Breaker.State] says.
//
// # Time
//
// Methods whose name ends in At are for simulators, and for state machines
// that keep a clock of their own, as package health does. They take the
// current time as an argument, as a duration since any fixed origin, never
// negative. They read no clock, which is how a simulator runs the same code in
// virtual time. The others read the process's monotonic clock, Allow and Done
// only when the state or the configuration needs it. Use one kind or the other
// for one breaker: their origins differ. No method starts a goroutine or
// waits.
//
// # What it is not for
//
// A breaker does not retry, does not limit rates or concurrency, and does not
// time calls out. It is no help against a single client's bad requests: report
// an error that is the caller's own fault as [Success], or leave it out by
// reporting [Canceled].
package breaker
