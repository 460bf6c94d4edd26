// Package session keeps long work going that stops for a while: an assistant that
// runs into a usage limit, or any other command.
//
// A session is a run of the engine with one step, whose attempts are the start
// and resume commands. What it has spent, until when it waits and what happened
// are the run's records; there is no other state. A [Spec] says what to run, and
// is stored with the run; a [Runner] is the handler of the step.
package session
