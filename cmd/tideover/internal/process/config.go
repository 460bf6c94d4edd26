package process

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"syscall"
	"time"
)

// ErrUnsupported is what [New] returns on systems without process groups.
var ErrUnsupported = errors.New("unsupported on this system: commands are run on Linux and macOS only")

// ErrInputTooLong is why standard input can't be replayed once it has outgrown
// its limit.
var ErrInputTooLong = errors.New("standard input is longer than its limit")

// Exit codes that shells have made a convention.
const (
	CodeInternal      = 125 // the wrapper's own error
	CodeNotExecutable = 126
	CodeNotFound      = 127
	CodeSignal        = 128 // plus the number of the signal
)

// Config says what a [Supervisor] runs, and how.
type Config struct {
	Args       []string      // the command and its arguments; there is no shell between
	Grace      time.Duration // how long the command may take to end after TERM; 0 sends KILL at once
	StdinLimit int64         // bytes of piped standard input kept for later attempts; 0 keeps none
	Once       bool          // there will be one attempt: standard input is handed over as it is
	DieWithUs  bool          // on Linux the command is killed when the thread that called Run ends
	Cgroup     string        // on Linux: folder of the cgroup that the command is started in, if that is possible; see [NewCgroup]
	Buffer     bool          // hold standard output back until [Supervisor.PassOn]

	// MatchStdout and MatchStderr are looked for in each line of a stream,
	// without its line end; nil leaves the stream alone. Lines are matched on
	// their first MiB.
	MatchStdout *regexp.Regexp
	MatchStderr *regexp.Regexp

	// Suspend is called when the command was stopped, as by Ctrl-Z, and returns when it is to be continued. If it
	// returns false, and if it is nil, our own group is stopped, and the command continued with it.
	Suspend func() bool

	// Notice is called with what the user should know and no result tells, such
	// as a process that may not be signalled. It may be called from any
	// goroutine; nil drops the notices.
	Notice func(string)

	// The streams; nil means the process's own.
	Stdin, Stdout, Stderr *os.File
}

// Result is how an attempt ended.
type Result struct {
	Code     int            // the exit code; 128+n when the command died of signal n
	Signal   syscall.Signal // what the command died of; 0 if it exited
	TimedOut bool           // the attempt's context ended it
	Terminal bool           // the command was in the terminal's foreground, where Ctrl-C reaches it and not us
	HungUp   bool           // the terminal was lent to the command, and is gone
	Duration time.Duration

	MatchedStdout bool // a line matched Config.MatchStdout
	MatchedStderr bool // a line matched Config.MatchStderr
}

// SignalError is why a supervisor stopped: it was told to by a signal.
type SignalError struct {
	Signal syscall.Signal
}

// Error names the signal.
func (e *SignalError) Error() string { return "ended by signal: " + e.Signal.String() }

// Code returns the exit code that stands for the signal.
func (e *SignalError) Code() int { return CodeSignal + int(e.Signal) }

// OutputError is why not all that the command wrote was passed on. The next
// attempt's would not be either.
type OutputError struct {
	Err error
}

// Error says what went wrong.
func (e *OutputError) Error() string { return "the command's output: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *OutputError) Unwrap() error { return e.Err }

// StartError is why a command could not be started. Unless it is
// [StartError.Transient] the command will not start the next time either.
type StartError struct {
	Code int    // CodeNotFound, CodeNotExecutable, or CodeInternal when the system refused
	Name string // the command, without its arguments
	Err  error
}

// Error names the command and the cause.
func (e *StartError) Error() string {
	return fmt.Sprintf("start %s: %v%s", e.Name, e.Err, e.hint())
}

// Transient reports whether the command may start the next time: its file was
// open for writing, as it is while it is being installed.
func (e *StartError) Transient() bool { return errors.Is(e.Err, errBusy) }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }
