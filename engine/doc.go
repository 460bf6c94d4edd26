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
// A step is a plain function of the run's input. The engine stores the value that
// the function returns, and later steps read that value with [Result]. Each step has
// a retry policy of its own, in the text form of package retry. A wait between two
// attempts continues after a restart of the process.
//
// A workflow may also be one function with loops, branches and sleeps: see [NewFlow].
//
// # What is where
//
// Define a workflow:
//   - of steps: [NewWorkflow], [Step], [Call]
//   - of a function: [NewFlow], [MustFlow], [CallFunction], [Function], [Operations], [Operation]
//   - limits, input and what follows: [Timeout], [MaxRuns], [PrepareInput], [CompareArgs], [OnEnd], [OnGiveUp]
//
// Say how attempts are made:
//   - retries: [Policy], [WithPolicy], [MaxLost], [MaxWindows], [HeartbeatTimeout], [Attempts]
//   - of steps: [After], [Concurrency], [Version]
//   - of operations: [ForKey], [Parallel], [Labels], [Within], [Detached], [UndoPolicy]
//
// In the function of a flow, call operations:
//   - work: [Do], [Map], [Collect], [Branches], [Branch]
//   - work that can be undone: [DoUndo], [MapUndo]
//   - waits: [Sleep], [Await], [Ask]
//   - other runs: [Child], [Children], [Registered], [Again], [KeepDone]
//   - values that stay the same: [Now], [Random]
//   - what people see: [SetStatus], [SetTag], [Skip]
//   - changes since an earlier version: [Added], [Removed], [Renamed]
//
// In a handler, a step or an operation:
//   - ask and tell: [TaskOf], [Result], [Heartbeat], [Progress], [SaveProgress]
//   - return more than an error: [Snooze], [SnoozeUntil], [Limited], [LimitedFor], [SpendWindow], [Keep], [Coded]
//
// Start runs:
//   - [Open], [Engine.Start], [Engine.StartRegistered], [Engine.SetSchedules], [ParseCron]
//   - how: [Key], [At], [In], [RunTimeout], [Source], [StoreWithin]
//
// Follow and change runs:
//   - read: [Engine.Wait], [Engine.Get], [Engine.List], [Output], [Engine.Events]
//   - send: [Engine.Signal], [Engine.SignalKey], [Engine.Answer], with [ID], [Once] and [SentBy]
//   - change: [Engine.Cancel], [Engine.Pause], [Engine.Postpone], [Engine.Retry], [Engine.RetryLatest], [Engine.Rerun], [Engine.Replay]
//
// Operate a process: [Engine.Stats], [Engine.Troubles], [Engine.Backup], [Engine.Operator], [Examine].
//
// # What is promised
//
//   - A run whose start was acknowledged runs until it has an outcome, and exactly
//     one outcome is recorded.
//   - A change of the wall clock never shortens a wait.
//   - The number of attempts never exceeds the policy. Attempts that were lost
//     because the process died have a counter and a limit of their own ([MaxLost]).
//   - A cancellation is recorded before attempts are ended.
//   - With the default durability, everything that was acknowledged is on disk.
//
// A step may run more than once: after a crash, the engine does not know how far the
// step got. Make steps idempotent: [Task.Origin] and [Task.Step] together are a key
// that is the same in all attempts, also when the run is retried, replayed or rerun.
//
// # How it works
//
// The log of events is the source of truth. The state in memory is a fold over the
// log, and one goroutine owns it. That goroutine collects requests, appends the
// resulting records to the log in one write, and only then begins attempts and
// answers the requests. Snapshots allow the beginning of the log to be removed.
// Lists and searches read a view: a database that follows the log with a small
// delay, and is rebuilt if it is deleted.
//
// # What it is not for
//
// Payloads of megabytes: store them elsewhere and pass a reference. Steps of
// microseconds that need no durability: call a function.
package engine
