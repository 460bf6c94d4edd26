package process

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ErrUnsupported is returned by [New] on systems without process groups.
var ErrUnsupported = errors.New("unsupported on this system: commands run on Linux and macOS only")

// ErrInputTooLong means that standard input can't be replayed because it is longer than its limit.
var ErrInputTooLong = errors.New("standard input is longer than its limit")

// Conventional exit codes of shells.
const (
	CodeInternal      = 125 // an error of tideover itself, not of the command
	CodeNotExecutable = 126
	CodeNotFound      = 127
	CodeSignal        = 128 // plus the number of the signal
)

// Config configures a [Supervisor].
type Config struct {
	Args       []string      // command and arguments; no shell is involved
	Grace      time.Duration // time between TERM and KILL; 0 sends KILL at once
	StdinLimit int64         // bytes of piped standard input stored for later attempts; 0 stores none
	Once       bool          // only one attempt: the command gets standard input directly
	DieWithUs  bool          // on Linux: kill the command when the thread that called Run ends
	Cgroup     string        // on Linux: folder of the cgroup to start the command in, if possible; see [NewCgroup]
	Buffer     bool          // buffer standard output until [Supervisor.PassOn]
	Hold       bool          // store both outputs of all attempts until [Supervisor.PassOn]; not together with Buffer

	// MatchStdout and MatchStderr are matched against the first MiB of each line of a stream,
	// without its line end. Nil means that the command gets the stream directly.
	MatchStdout *regexp.Regexp
	MatchStderr *regexp.Regexp

	// Suspend is called when the command was stopped, as by Ctrl-Z. The command continues when it returns true. If it is
	// nil or returns false, our own group is stopped, and the command continues together with us.
	Suspend func() bool

	// Notice is called with messages for the user that are not part of a result, for example about
	// a process that may not be signalled. It may be called from any goroutine; nil drops the
	// messages.
	Notice func(string)

	// The standard streams; nil means those of this process.
	Stdin, Stdout, Stderr *os.File
}

// Result is how an attempt ended.
type Result struct {
	Code     int            // exit code; 128+n if signal n killed the command
	Signal   syscall.Signal // signal that killed the command; 0 if it exited
	TimedOut bool           // the attempt's context ended before the command
	Terminal bool           // the command had the terminal's foreground, where Ctrl-C reaches it and not us
	HungUp   bool           // the terminal was closed while the command had it
	Duration time.Duration

	MatchedStdout bool // a line matched Config.MatchStdout
	MatchedStderr bool // a line matched Config.MatchStderr

	LastStderr string // last line of standard error that is not blank; empty if the command had our own stream
}

// SignalError means that a signal ended the supervisor.
type SignalError struct {
	Signal syscall.Signal
}

// Error names the signal.
func (e *SignalError) Error() string { return "ended by signal: " + e.Signal.String() }

// Code returns the exit code for the signal.
func (e *SignalError) Code() int { return CodeSignal + int(e.Signal) }

// OutputError means that not all output of the command was written. Another attempt would fail in
// the same way.
type OutputError struct {
	Err error
}

// Error returns the message with the cause.
func (e *OutputError) Error() string { return "writing the command's output: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *OutputError) Unwrap() error { return e.Err }

// StartError means that a command could not be started. Unless it is [StartError.Transient],
// another attempt would fail in the same way.
type StartError struct {
	Code int    // CodeNotFound, CodeNotExecutable, or CodeInternal if the system had no resources
	Name string // command without arguments
	Err  error
}

// Error names the command and the cause.
func (e *StartError) Error() string {
	return fmt.Sprintf("start %s: %v%s", e.Name, e.Err, e.hint())
}

// Transient reports whether another attempt may succeed: the file was open for writing, as during
// an installation.
func (e *StartError) Transient() bool { return errors.Is(e.Err, errBusy) }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// builtins are shell keywords and builtins without an equivalent program.
var builtins = []string{
	".", "alias", "bg", "builtin", "case", "cd", "declare", "eval", "exec", "exit", "export", "fg", "for", "function", "hash", "if", "jobs",
	"let", "local", "popd", "pushd", "read", "return", "set", "shift", "source", "trap", "type", "ulimit", "umask", "unalias", "unset", "until",
	"wait", "while",
}

// hint returns a suggestion for the error message; empty if there is none.
func (e *StartError) hint() string {
	switch {
	case e.Code != CodeNotFound:
		return ""
	case slices.Contains(builtins, e.Name):
		return ": it is a shell builtin: use sh -c '" + e.Name + " ...'"
	case strings.ContainsAny(e.Name, " |&;<>$="):
		return ": the command is not run by a shell: use sh -c '...'"
	}
	return ""
}

// Leftovers identifies processes that an attempt has left running because the supervising process
// was killed.
type Leftovers struct {
	Env    []string `json:"env"`              // "NAME=value" entries; a process that has all of them in its environment is a leftover; empty finds none
	Cgroup string   `json:"cgroup,omitempty"` // folder of the cgroup of the command
}
