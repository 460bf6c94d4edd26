// Package paxos decides one value for each epoch by a quorum of acceptors. Its
// parts are pure state machines: messages are the input, messages and effects
// the output, and there is no clock, no I/O, no goroutine and no randomness. A
// simulator and processes on a network run the same code.
//
// A [Proposer] belongs to a member. It has the log, which is what was decided
// for every epoch before the current one, and proposes a value for the current
// one. Its ballots are totally ordered; see [Ballot]. When it loses it reports
// to which ballot or value, and starts again when its driver calls it: the
// driver decides how long to wait.
//
// An [Acceptor] promises and accepts. It answers only after the driver has
// confirmed that its state is persistent, and restarts from that state after a
// crash. A rejection carries the ballot that won, and a message about a decided
// epoch is answered with the decision.
//
// An acceptor may forget decisions that every member knows; a member that joins
// later starts with the log of another member. See [Acceptor.Forget].
//
// Members and acceptors are numbered from 0. A driver that detects that an
// acceptor does not answer reports it with [Proposer.Unreachable] or
// [Proposer.Timeout]; messages may be lost, late, repeated and out of order.
//
// A member that restarts without its state must not use a ballot a second time
// for another value: it needs a new number, or must have stored its attempts.
package paxos
