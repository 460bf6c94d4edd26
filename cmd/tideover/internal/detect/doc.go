// Package detect says why a long-running command stopped: because of a rate
// limit, and until when; because its context is full; because its owner ended
// it; because it is done.
//
// What programs print is known from packs, which are data: see [Spec]. A
// [Detector] is fed with the output while the command runs and is asked once it
// has ended:
//
//	d := detect.New(pack, detect.Options{})
//	cmd.Stdout, cmd.Stderr = d.Stream(), d.Stream()
//	err := cmd.Run()
//	stop := d.Stop(cmd.ProcessState.ExitCode(), false)
//
// What is trusted, most first: an event (a line of JSON), a header
// (Retry-After: 120), a match in the last lines, the exit code. Text above the
// last lines never counts, because transcripts are full of prose and code that
// mention limits. An event counts wherever it stands, until more than as many
// lines follow: a program that printed that much has gone on.
//
// The package is not for deciding what to do about a stop, and it does not look
// at a command that is still running.
package detect
