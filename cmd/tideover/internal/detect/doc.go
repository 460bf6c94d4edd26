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
// What is trusted, most first: an event (a line of JSON), what the program is
// known to say, what any program may say (429 Too Many Requests, or the header
// Retry-After: 120), the exit code. The less is known about who said it, the
// nearer to the end it must stand, because transcripts are full of prose, code and
// the output of tests that mention limits; an exit code of success is overruled
// only by an event and by the program's own last words. An event counts wherever
// it stands, until the program is seen to go on.
//
// A limit that is missed costs a probe; one that is not there costs the hours
// until it ends. In doubt it is none.
//
// The package is not for deciding what to do about a stop, and it does not look
// at a command that is still running.
package detect
