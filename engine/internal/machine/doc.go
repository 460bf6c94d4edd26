// Package machine is the state machine of the engine: what runs there are, what
// may happen to them next, and what each thing that happened has changed.
//
// It is pure. It knows no clock, no disk and no goroutine; the time and the
// randomness of a decision are arguments. A decision returns a [Record], and
// [Machine.Apply] is the only thing that changes state, in life and in replay
// alike, so that a log of records folds to the state it came from.
//
// Times are nanoseconds since 1970 by the wall clock. What the wall clock does
// meanwhile is a record too, see [Jumped].
package machine
