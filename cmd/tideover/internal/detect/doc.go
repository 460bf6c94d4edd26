// Package detect finds out why a long-running command stopped: a rate limit and when it ends,
// a full context, an exit by the user, success or a crash.
//
// The messages of programs are described by packs, which are data: see [Spec]. A [Detector]
// receives the output while the command runs, and gives its verdict after the end:
//
//	d := detect.New(pack, detect.Options{})
//	cmd.Stdout, cmd.Stderr = d.Stream(), d.Stream()
//	err := cmd.Run()
//	stop := d.Stop(cmd.ProcessState.ExitCode())
//
// Evidence is trusted in this order: an event (a line of JSON), a message of the program, a
// message that any program may print (429 Too Many Requests, or the header Retry-After: 120),
// the exit code. The less specific a message is, the nearer to the end of the output it must
// be, because transcripts contain prose, code and test output about limits. Exit code 0 is
// overruled only by an event and by the program's own last lines. An event counts anywhere,
// until the program makes progress.
//
// A missed limit costs one probe; a false one costs hours of waiting. So in doubt there is no
// limit.
//
// The package does not decide what to do after a stop, and it does not handle running commands,
// except for [Pack.FindOnScreen].
package detect
