// Package engine runs tasks and workflows that survive the end of the process.
//
//	order, err := engine.NewWorkflow("order",
//		engine.Step("charge", charge, engine.Policy("exponential(1s..60s) jitter=0.5..1.5 attempts=5")),
//		engine.Step("pack", pack, engine.After("charge"), engine.Policy("fixed(2s) attempts=3")),
//		engine.Step("label", label, engine.After("charge")),
//		engine.Step("ship", ship, engine.After("pack", "label")))
//
//	eng, err := engine.Open(ctx, engine.Config{Dir: "data", Workflows: []*engine.Workflow{order}})
//	run, err := eng.Start(ctx, order, input, engine.Key("order-4711"))
//
// A step is a plain function of the run's input. What it returns is kept, and a
// step after it reads it with [Result]. Each step has a policy of its own, in the
// text form of package retry; its waits outlive the process.
//
// # What is promised
//
// A start that was acknowledged runs at least once until one outcome, and exactly
// one outcome is recorded. No wait is shortened by the wall clock. Attempts never
// exceed the policy; those in which the process ended are counted apart, and
// limited apart. Cancellation is recorded before it is acted on. With the default
// durability, what was acknowledged is on disk.
//
// A step may run more than once: after a crash, it is not known how far it got.
// Make steps idempotent: [Task.Origin] and [Task.Step] together are a key that stays
// the same in all attempts, also when the run is retried, replayed or rerun.
//
// # How it works
//
// The truth is a log of what happened. The state is in memory, a fold over the
// log, and one goroutine owns it: it gathers what is asked of it, appends what
// follows to the log in one write, and only then acts on it and answers. A
// snapshot now and then lets the log be cut off. Lists and searches read a view,
// which is written behind the log and can be deleted at any time.
//
// # What it is not for
//
// Payloads of megabytes: store them elsewhere and pass a reference. Steps of
// microseconds that need no durability: call a function.
package engine
