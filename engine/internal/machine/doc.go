// Package machine is the state machine of the engine: the runs of a shard, the decisions
// about them, and the changes that each record makes.
//
// It is pure: it uses no clock, no disk and no goroutine. The time and the random numbers of a
// decision are arguments. [Commands] decides and returns a [Record]. [Machine.Apply] applies
// the record to the state, the first time and in a replay of the log alike. So replaying the
// log restores the same state.
//
// Times are nanoseconds since 1970 by the wall clock. A change of the wall clock is a
// record too, see [Jumped].
package machine
