// Package paxos decides one value for each epoch by a quorum of acceptors. Its
// parts are pure state machines: messages go in, messages and effects come out,
// and there is no clock, no I/O, no goroutine and no randomness. A simulator and
// processes on a network drive the same code.
//
// A [Proposer] belongs to a member. It knows the log, which is what was decided
// for every epoch before the current one, and proposes a value for the current
// one. The ballots by which it does are totally ordered; see [Ballot]. When it
// loses it says to what, and starts over when its driver says so: how long to
// wait is the driver's affair.
//
// An [Acceptor] promises and accepts. It answers only after the driver has
// confirmed that what it must remember is persistent, and starts again from
// that after a crash. A rejection carries the ballot that won, and a message
// about an epoch that is decided is answered with the decision.
//
// An acceptor may forget what was decided when every member knows it; who comes
// later starts with the log of another member. See [Acceptor.Forget].
//
// Members and acceptors are numbered from 0. A driver that can tell that an
// acceptor does not answer says so, with [Proposer.Unreachable] or
// [Proposer.Timeout]; messages may be lost, late, repeated and out of order.
//
// A member that starts anew without its memory must not use a ballot a second
// time for another value: it needs a new number, or to remember its attempts.
package paxos
