// Package session resumes long-running commands after interruptions: an AI assistant that runs
// into a usage limit, or any other command.
//
// A session is a run of the engine with one step, whose attempts are the start and resume
// commands. Counters, waits and history are records of the run; there is no other state. A
// [Spec] describes the session and is stored with the run; a [Runner] is the handler of the
// step. A [Memo] is the state that one attempt stores for the next. A [Manager] starts, lists and
// controls the sessions of an engine.
//
// An attempt runs a command (attempt.go), looks at its output (package detect) and its screen
// (screen.go), and decides what follows (outcome.go): wait, resume, start again, give up, or let
// another assistant work meanwhile (handover.go).
package session
