package guard

import (
	"context"
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

// Command is a command to be run under a guard.
type Command struct {
	Self  string        // the path of this program
	Args  []string      // the command and its arguments
	Dir   string        // where it runs; "" means here
	Env   []string      // all of its environment
	Lock  string        // path of the lock that is held meanwhile
	Grace time.Duration // how long it may take to end after TERM

	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool // the streams are a terminal, which is to be the command's own

	// Suspend is called when the command was stopped, as by Ctrl-Z, and returns when it is to go on; nil has it
	// continued at once.
	Suspend func()
}

// Environ returns the environment of this process for a command: all of it but
// the settings of the server, and the variables of the given names.
func Environ(hidden ...string) []string {
	return EnvironOnly(func(string) bool { return true }, hidden...)
}

// EnvironOnly is Environ with the wanted variables only.
func EnvironOnly(wanted func(name string) bool, hidden ...string) []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return isSetting(name) || slices.Contains(hidden, name) || !wanted(name)
	})
}

// settings begin the names of variables that are settings of the server, some of
// which are secrets.
var settings = []string{"TIDEOVER_SERVER", "TIDEOVER_GATEWAY_", "TIDEOVER_ENGINE_"}

func isSetting(name string) bool {
	return name == "TIDEOVER_TOKEN" || slices.ContainsFunc(settings, func(s string) bool { return strings.HasPrefix(name, s) })
}

// TooBig says what to do about a command line that the system refuses (E2BIG). It is the same at every attempt.
const TooBig = "an argument or a variable has at most 128 KiB on Linux, and all of them about 2 MiB: give the command large values by stdin, or in a file"

// Result is how a command ended.
type Result struct {
	Code int  // the exit code, 128+n if it died of signal n
	Told bool // it was told to end, and may say anything about itself
}

// outputDelay is how long the output of a command is read after the command has ended, if a process that it has left
// behind holds the output open. On a busy machine that is also the time for the last lines, which may say why the
// command has ended: what is not read by then is lost.
const outputDelay = 10 * time.Second

// Run runs the command. When the context ends, the command is told to end. An error
// is the guard's own: the command has not been run, or nobody knows how it ended.
func Run(ctx context.Context, c Command) (Result, error) {
	pass, hold, err := os.Pipe() // while it is open the command may run
	if err != nil {
		return Result{}, fmt.Errorf("start the guard of a command: %w", err)
	}
	defer hold.Close()
	says, told, err := os.Pipe()
	if err != nil {
		return Result{}, fmt.Errorf("start the guard of a command: %w", errors.Join(err, pass.Close()))
	}
	defer says.Close()
	// Not CommandContext: the guard is not killed, it is told, and ends what it guards.
	cmd := exec.Command(c.Self, append([]string{Name, c.Grace.String(), c.Lock, "--"}, c.Args...)...) //nolint:noctx // see above
	cmd.Dir, cmd.Env, cmd.ExtraFiles = c.Dir, c.Env, []*os.File{pass, told}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.WaitDelay = outputDelay
	apart(cmd, c.Terminal)
	err = cmd.Start()
	_, _ = pass.Close(), told.Close()
	if err != nil {
		return Result{}, fmt.Errorf("start the guard of a command: %w", err)
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

// listen returns what the guard says for itself, and answers when the command was stopped.
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

// conclude waits for the guard and says how the command ended.
func conclude(ctx context.Context, cmd *exec.Cmd, lock, said string) (r Result, err error) {
	said, told := strings.CutPrefix(said, saysTold)
	r.Told = told
	err = cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); ok || errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if r.Code = cmd.ProcessState.ExitCode(); r.Code < 0 { // it was killed, and could end nothing
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
		err = fmt.Errorf("the guard of the command has died (%v)", cmd.ProcessState)
	}
	return r, err
}
