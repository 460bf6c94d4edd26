package session

import (
	"context"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/guard"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // messages contain times of day without a zone
	m.Run()
}

// assistant is a fake assistant. Its n-th call in a folder prints the file n, whose first line is
// the exit code.
const assistant = `cd "$0"; echo "$*" >> calls; n=$(wc -l < calls); test -f $n || exit 0; tail -n +2 $n; exit $(head -n 1 $n)`

// unguarded runs a command directly.
func unguarded(ctx context.Context, c guard.Command) (guard.Result, error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, c.Stdin, c.Stdout, c.Stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return guard.Result{Code: exit.ExitCode(), Told: ctx.Err() != nil}, nil
	}
	return guard.Result{Told: ctx.Err() != nil}, err
}
