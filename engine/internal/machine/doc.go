// Package machine is the state machine of the engine: the runs of a shard, the decisions
// about them, and the changes that each record makes.
//
// It is pure. It knows no clock, no disk and no goroutine; the time and the randomness
// of a decision are arguments. [Commands] decides and returns a [Record].
// [Machine.Apply] changes the state by it, the first time and in replay alike, so that a
// log of records folds to the state it came from.
//
// Times are nanoseconds since 1970 by the wall clock. A change of the wall clock is a
// record too, see [Jumped].
package machine
