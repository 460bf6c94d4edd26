package notify

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/retry"
)

// command runs the notifier's command, with the message as JSON on its standard input. It
// kills the process group of the command when the timeout ends. An argument that can't be
// rendered is empty, and the message has a note about it.
func (s *Sender) command(ctx context.Context, m Message, k *mask) error {
	argv, err := s.notifier.Argv(m.Fields())
	if err != nil {
		m.Note = maskedText(err, k)
	}
	if len(argv) == 0 || argv[0] == "" {
		return retry.Permanent(cmp.Or(err, errors.New("the command is empty")))
	}
	env, err := s.environ(m)
	if err != nil {
		return err
	}
	input, err := json.Marshal(m)
	if err != nil {
		return retry.Permanent(err)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	said := &guard.Tail{Size: 4 << 10}
	// Mask secrets before the output is truncated: a truncated secret is not recognised.
	masked := s.env.Secrets.Redactor.NewWriter(said)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = s.notifier.Dir, env, bytes.NewReader(append(input, '\n')), masked, masked
	// Do not wait longer for a process that the command left behind and that keeps its
	// output open.
	cmd.WaitDelay = time.Second
	process.OwnGroup(cmd)
	err = cmd.Run()
	_ = masked.Close() // can't fail: it writes to memory
	return commandError(argv[0], err, said.Lines(3))
}

// environ returns the environment of the command: inherited variables of this process,
// variables with the fields of the message, and the variables that the notifier sets.
func (s *Sender) environ(m Message) (env []string, err error) {
	env = append(guard.EnvironOnly(s.env.Inherit.Has, s.env.Hidden...), m.environment()...)
	for _, e := range s.notifier.Env {
		value, err := s.resolve(e.Value)
		if err != nil {
			return nil, err
		}
		env = append(env, e.Name+"="+value)
	}
	for i := range env {
		env[i] = strings.ReplaceAll(env[i], "\x00", "") // a NUL byte would prevent the start of the command
	}
	return env, nil
}

// commandError returns the error of a command that has ended, marked as permanent,
// throttled or transient; nil if it succeeded. said is the end of its output.
func commandError(name string, err error, said string) error {
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return retry.Permanent(fmt.Errorf("run %s: %w", name, err))
	case errors.Is(err, syscall.E2BIG):
		return retry.Permanent(fmt.Errorf("run %s: %w: %s", name, err, guard.TooBig))
	case !ended:
		return fmt.Errorf("run %s: %w", name, err)
	}
	err = fmt.Errorf("run %s: %w%s", name, err, prefixed(": ", said))
	switch exit.ExitCode() {
	case process.CodeNotExecutable, process.CodeNotFound:
		return retry.Permanent(err)
	case exitcode.TempFail:
		return retry.Throttled(err)
	}
	return err
}
