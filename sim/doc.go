// Package sim shows what retry policies do to a service before they do it: it
// runs the library's own code in virtual time, with up to millions of clients.
//
//	scenario, _ := sim.Preset("metastable")
//	report, err := sim.Run(ctx, scenario, []sim.Contestant{
//		{Name: "eager", Policy: eager},
//		{Name: "budgeted", Policy: budgeted, Breaker: &breaker.Config{}},
//	}, sim.Options{Seeds: 10})
//
// A [Scenario] is plain data: who calls, how fast the services answer, what goes
// wrong and when. [Presets] lists those that have names. A [Contestant] is a
// policy, perhaps with a breaker. All contestants go through the same scenario
// with the same seeds, and a [Report] sets them side by side.
//
// # What runs
//
// The clients are not a model of the library, they are the library: every
// decision is [retry.DecideWithin], every budget a [limit.Budget], every breaker
// a [breaker.Breaker], every hedge follows a [retry.HedgeRule]; a service's door
// is a [limit.Rate], and a queue by priority a [limit.Concurrency]. A test lets a
// real [retry.Runner] make the calls of a simulated client, and both agree to
// the nanosecond.
//
// What is modelled is the rest of the world:
//
//   - Clients come at a rate (open), think between calls (closed), or all at once
//     (herd). Those of one process share its budget, breakers and hedges.
//   - Services have workers, a queue, a latency that may grow with concurrency, a
//     rate limit, and may call other services while a worker waits: that is how
//     retries multiply. Being refused takes a millisecond.
//   - An attempt that times out leaves its work behind. It stays in the queue and
//     is done in vain, unless the service knows deadlines.
//   - Failures last for a while: errors, an outage, a black hole, slowness, a
//     loss of workers.
//   - Or writers change one thing, and all but the first have to begin again.
//
// # How to read a report
//
// Every measure is an [Estimate]: the mean over the seeds and half the width of
// its 95 % interval. Contestants meet the same arrivals, service times and
// failures, so Result.Versus, the difference from the first contestant seed by
// seed, is much surer than the difference of two means. Do not call one better
// where that interval contains zero.
//
// A peak means nothing without its bucket: the same herd is 28 times lower with
// jitter in buckets of 10 ms, and hardly lower in buckets of a second.
// Report.Bucket says which it was.
//
// Percentiles are of the calls that succeeded. A policy that gives up early has
// fine ones; look at Success beside them. NeverRecovers is the share of the
// seeds in which fewer than 95 % of the calls succeeded until the end, long after
// the last failure: such a scenario is metastable, and the mean of Recovery is
// of the other seeds only.
//
// # What it is not
//
// It is no forecast for a real service: nobody knows the latency and the failures
// of the next outage. It compares policies under conditions that are stated.
// There is no network, no processor and no garbage collector in it; an answer
// that is ready has arrived. Clients of a process do not wait for each other:
// client-side limits of concurrency and rate are not simulated.
//
// # Determinism
//
// Time is a whole number of nanoseconds, what happens at the same moment happens
// in the order it was caused, and every random number is a function of the seed,
// the client, the call and its purpose. The same arguments give the same report,
// byte for byte, whatever the number of workers. Between processor architectures
// the last digit of a logarithm may differ, and with it a run.
package sim
