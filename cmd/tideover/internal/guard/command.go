package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/internal/shortage"
)

// Command is a command to run under a guard.
type Command struct {
	Self  string        // the path of this program
	Args  []string      // the command and its arguments
	Dir   string        // working folder; "" means ours
	Env   []string      // its whole environment
	Lock  string        // path of the lock that is held while it runs
	Grace time.Duration // time between TERM and KILL

	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool // the streams are a terminal that belongs to the command

	// Suspend is called when the command was stopped, as by Ctrl-Z. The command continues when Suspend returns; nil
	// continues it at once.
	Suspend func()
}

// Environ returns the environment of this process for a command, without the variables that are
// settings of the server, and without the hidden variables.
func Environ(hidden ...string) []string {
	return EnvironOnly(func(string) bool { return true }, hidden...)
}

// EnvironOnly is Environ, limited to the wanted variables.
func EnvironOnly(wanted func(name string) bool, hidden ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return settings.Has(name) || slices.Contains(hidden, name) || !wanted(name)
	})
}

// settings are the variables that are settings of the server, some of which are secret.
var settings = Inherit{"TIDEOVER_TOKEN", "TIDEOVER_SERVER*", "TIDEOVER_GATEWAY_*", "TIDEOVER_ENGINE_*"}

// TooBig is the hint for the error E2BIG: the command line is too long for the system, and fails at
// every attempt.
const TooBig = "on Linux, an argument or a variable can have 128 KiB, and all of them about 2 MiB: pass large values on stdin or in a file"

// Result is how a command ended.
type Result struct {
	Code int  // exit code; 128+n if signal n killed it
	Told bool // the guard ended it, so its exit code means nothing
}

// outputDelay is how long output is read after the end of the command, if a process that the command
// left running keeps the output open. Later output is lost. It is long enough for a busy machine to
// deliver the last lines, which may explain the end.
const outputDelay = 10 * time.Second

// Run runs the command under a guard. The end of the context ends the command. An error means that
// the command was not run, or that it is not known how it ended.
func Run(ctx context.Context, c Command) (Result, error) {
	pass, hold, err := os.Pipe() // the command may run while it is open
	if err != nil {
		return Result{}, fmt.Errorf("starting the guard of a command: %w", err)
	}
	defer hold.Close()
	says, told, err := os.Pipe()
	if err != nil {
		return Result{}, fmt.Errorf("starting the guard of a command: %w", errors.Join(err, pass.Close()))
	}
	defer says.Close()
	// Not CommandContext: the guard must not be killed, so that it can end its command.
	cmd := exec.Command(c.Self, append([]string{Name, c.Grace.String(), c.Lock, "--"}, c.Args...)...) //nolint:noctx // see above
	cmd.Dir, cmd.Env, cmd.ExtraFiles = c.Dir, c.Env, []*os.File{pass, told}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.WaitDelay = outputDelay
	ownSession(cmd, c.Terminal)
	err = cmd.Start()
	_, _ = pass.Close(), told.Close()
	if err != nil {
		return Result{}, fmt.Errorf("starting the guard of a command: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		_ = hold.Close()
		time.AfterFunc(2*c.Grace, func() { _ = cmd.Process.Kill() })
	})
	defer stop()
	if c.Suspend != nil {
		_, _ = hold.Write([]byte{holdSuspends})
	}
	return conclude(ctx, cmd, c.Lock, c.listen(says, hold))
}

// listen handles stops of the command until the guard sends its last message or ends. It returns that
// message; "" if there was none.
func (c *Command) listen(says io.Reader, hold io.Writer) string {
	for {
		var first [1]byte
		switch n, err := says.Read(first[:]); {
		case n == 0 || err != nil:
			return ""
		case string(first[:]) == saysStopped:
			if c.Suspend != nil {
				c.Suspend()
			}
			_, _ = hold.Write([]byte{holdContinue})
			continue
		}
		var own strings.Builder
		own.Write(first[:])
		_, _ = io.Copy(&own, io.LimitReader(says, 4<<10))
		return own.String()
	}
}

// conclude waits for the guard and returns how the command ended. said is the last message of the
// guard. If the guard was killed, conclude kills the processes of the command.
func conclude(ctx context.Context, cmd *exec.Cmd, lock, said string) (r Result, err error) {
	said, told := strings.CutPrefix(said, saysEnded)
	r.Told = told
	err = cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); ok || errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if r.Code = cmd.ProcessState.ExitCode(); r.Code < 0 { // the guard was killed, and could not end the command
		r.Told = ctx.Err() != nil
		process.KillSession(cmd.Process.Pid)
		endLeftovers(lock)
	}
	switch {
	case err != nil || ctx.Err() != nil:
	case strings.HasPrefix(said, saysShortage):
		err = &shortage.Error{Text: strings.TrimPrefix(said, saysShortage)}
	case said != "":
		err = errors.New(said)
	case r.Code < 0:
		err = fmt.Errorf("the guard of the command was killed (%v)", cmd.ProcessState)
	}
	return r, err
}

// Inherit has the names of the variables of this process that a command gets, in addition
// to [BaseVariables]. A name that ends in * stands for all names with that prefix.
type Inherit []string

// InheritAll is `env-inherit: all`.
var InheritAll = Inherit{"*"}

// BaseVariables are the variables of this process that every command gets, except
// settings of the server.
var BaseVariables = Inherit{"PATH", "HOME", "USER", "LANG", "LC_*", "TZ", "TMPDIR", "TIDEOVER_*"}

// Has reports whether a name in the list stands for the variable.
func (i Inherit) Has(name string) bool {
	return slices.ContainsFunc(i, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return name == pattern || open && strings.HasPrefix(name, prefix)
	})
}

// Plus returns the names of both lists, without duplicates.
func (i Inherit) Plus(more Inherit) Inherit {
	all := slices.Clone(i)
	for _, name := range more {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// MarshalJSON encodes a nil list as [], not as null: a stored step without a list is from an
// earlier release, and its command inherits all variables.
func (i Inherit) MarshalJSON() ([]byte, error) {
	if i == nil {
		return []byte("[]"), nil
	}
	return json.Marshal([]string(i))
}

// Tail keeps the last Size bytes that are written to it, for an error about the output of a command.
type Tail struct {
	Size int
	data []byte
}

// Write implements [io.Writer].
func (t *Tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if len(t.data) > 2*t.Size {
		t.data = append(t.data[:0], t.data[len(t.data)-t.Size:]...)
	}
	return len(p), nil
}

// Lines returns the last n lines.
func (t *Tail) Lines(n int) string {
	text := strings.ToValidUTF8(string(t.data[max(0, len(t.data)-t.Size):]), "\uFFFD")
	list := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(list[max(0, len(list)-n):], "\n")
}
