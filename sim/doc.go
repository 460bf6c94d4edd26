// Package sim predicts what a retry policy does to a service: it runs the
// library's own code in virtual time, with up to millions of clients.
//
//	scenario, _ := sim.Preset("metastable")
//	report, err := sim.Run(ctx, scenario, []sim.Contestant{
//		{Name: "eager", Policy: eager},
//		{Name: "budgeted", Policy: budgeted, Breaker: &breaker.Config{}},
//	}, sim.Options{Seeds: 10})
//
// A [Scenario] is plain data: who calls, how fast the services answer, what
// fails and when. [Presets] lists the named ones. A [Contestant] is a policy,
// optionally with a breaker. All contestants run the same scenario with the
// same seeds, and a [Report] compares them.
//
// # What runs
//
// The clients run the library itself, not a model of it: every decision is made
// by [retry.DecideWithin], every budget is a [limit.Budget], every breaker a
// [breaker.Breaker], every hedge follows a [retry.HedgeRule]; the rate limit of
// a service is a [limit.Rate], and a queue by priority a [limit.Concurrency]. A
// test makes the same calls with a simulated client and with a real
// [retry.Runner], and requires the same times to the nanosecond.
//
// The rest is modelled:
//
//   - Clients arrive at a rate, which may change over time, alone or in batches
//     (open), pause between calls (closed), or arrive all at once (herd). The
//     clients of one process share its budget, breakers and hedges.
//   - Services have workers, a queue, a latency that may grow with concurrency,
//     a capacity, a rate limit, and may call other services while a worker
//     waits: that is how retries multiply. A rejection takes a millisecond.
//   - The work of an attempt that has timed out stays at the service, which
//     does it although no caller waits for it, unless the service supports
//     deadlines.
//   - Failures last for a time: errors after the work or before it, an outage, a
//     black hole, slowness, a loss of workers.
//   - Instead of clients and services, a scenario can have writers that change
//     one value at the same time, in a store or by ballots, or a group of
//     members that agree on changes.
//
// # How to read a report
//
// Every measure is an [Estimate]: the mean over the seeds and half the width of
// its 95 % interval. Contestants get the same arrivals, service times and
// failures, so Result.Versus, the difference from the first contestant seed by
// seed, is much more precise than the difference of two means. Do not call one
// contestant better if that interval contains zero.
//
// A peak depends on the width of the buckets: jitter makes the peak of the same
// herd 28 times lower in buckets of 10 ms, and hardly lower in buckets of a
// second. Report.Bucket is the width that was used.
//
// Percentiles are those of the calls that succeeded. A policy that gives up
// early has low ones; compare Success too. NeverRecovers is the share of the
// seeds in which fewer than 95 % of the calls succeeded until the end, long
// after the last failure: such a scenario is metastable. Recovery is the mean
// of the other seeds only.
//
// # What it is not
//
// It is no forecast for a real service: the latency and the failures of the
// next outage are unknown. It compares policies under stated conditions. It
// models no network, no processor and no garbage collector: a response arrives
// at the moment when it is ready. Clients of a process do not wait for each
// other: client-side limits of concurrency and rate are not simulated.
//
// # Determinism
//
// Time is a whole number of nanoseconds, events of the same moment happen in
// the order in which they were caused, and every random number is a function of
// the seed, the client, the call and its purpose. The same arguments give the
// same report, byte for byte, with any number of workers. On another processor
// architecture the last digit of a logarithm may differ, and so may the report.
package sim
