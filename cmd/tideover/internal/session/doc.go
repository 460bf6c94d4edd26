// Package session keeps long-running commands going through interruptions: an assistant that
// runs into a usage limit, or any other command.
//
// A session is a run of the engine with one step, whose attempts are the start and resume
// commands. Counters, waits and history are records of the run; there is no other state. A
// [Spec] describes the session and is stored with the run; a [Runner] is the handler of the
// step.
package session
