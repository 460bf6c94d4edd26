package steps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// tempFail is the exit code by which programs ask for a longer wait.
const tempFail = 75

// command runs a command once, under the guard.
func (r *Runner) command(ctx context.Context, s *config.Step, d config.Data, t *engine.Task) (result, error) {
	argv, err1 := s.Argv(d)
	env, err2 := s.Env(d)
	stdin, err3 := s.Stdin(d)
	if err := errors.Join(err1, err2, err3); err != nil {
		return result{}, rendering(err)
	}
	stdout, stderr, last := &capped{limit: limitOf(s)}, &capped{limit: limitOf(s)}, &tail{}
	// Secrets are hidden before anything is cut, or a part of one might show.
	out, errs := r.Redactor.NewWriter(stdout), r.Redactor.NewWriter(io.MultiWriter(stderr, last))
	g, err := r.newGuard(argv, s.Dir, filepath.Join(r.Locks, t.Run+"-"+t.Step), append(environment(t), pairs(env)...))
	if err != nil {
		return result{}, err
	}
	g.cmd.Stdin, g.cmd.Stdout, g.cmd.Stderr = strings.NewReader(stdin), out, errs
	code, err := g.run(ctx)
	_, _ = out.Close(), errs.Close() // to memory
	res := result{Stdout: stdout.text(), Stderr: stderr.text(), Truncated: stdout.over || stderr.over}
	switch {
	case err != nil:
		return res, err
	case ctx.Err() != nil && code != 0:
		return res, context.Cause(ctx)
	case code == 0:
		return res, nil
	}
	return res, failure(s, code, last.lines())
}

// failure says what the exit code means.
func failure(s *config.Step, code int, said string) error {
	err := errors.New("exit code " + strconv.Itoa(code))
	if code > process.CodeSignal && code < process.CodeSignal+65 {
		err = fmt.Errorf("died of signal %d", code-process.CodeSignal)
	}
	if said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	switch {
	case code == process.CodeNotFound, code == process.CodeNotExecutable, !s.Retryable(code):
		return retry.Permanent(err)
	case code == tempFail:
		return retry.Throttled(err)
	}
	return err
}

// environment returns what every command sees: the server's own environment,
// but for what is the server's business, and what it is run for.
func environment(t *engine.Task) []string {
	var env []string
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); name != "TIDEOVER_TOKEN" && !strings.HasPrefix(name, "TIDEOVER_SERVER") {
			env = append(env, kv)
		}
	}
	attempts := strconv.Itoa(t.Attempts)
	if t.Attempts == retry.Unlimited {
		attempts = "unlimited"
	}
	return append(env,
		"TIDEOVER_RUN_ID="+t.Run, "TIDEOVER_WORKFLOW="+t.Workflow, "TIDEOVER_STEP="+t.Step, "TIDEOVER_KEY="+t.Key,
		"TIDEOVER_ATTEMPT="+strconv.Itoa(t.Attempt), "TIDEOVER_ATTEMPTS="+attempts)
}

func pairs(env []config.EnvVar) (list []string) {
	for _, v := range env {
		list = append(list, v.Pair())
	}
	return list
}

// guarded is a command that runs under the guard.
type guarded struct {
	cmd  *exec.Cmd
	hold *os.File // while it is open the command may run
	pass *os.File
	own  strings.Builder // what the guard says for itself
}

// newGuard prepares to run a command.
func (r *Runner) newGuard(argv []string, dir, lock string, env []string) (*guarded, error) {
	pass, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	args := append([]string{GuardName, Grace.String(), lock, "--"}, argv...)
	// Not CommandContext: the guard is not killed, it is told, and ends what it guards.
	cmd := exec.Command(r.Self, args...) //nolint:noctx // see above
	cmd.Dir, cmd.Env, cmd.ExtraFiles = dir, env, []*os.File{pass}
	// A process that the command has left behind may hold its output open.
	cmd.WaitDelay = time.Second
	apart(cmd)
	return &guarded{cmd: cmd, hold: hold, pass: pass}, nil
}

// run runs the command and returns its exit code. An error is the guard's own: the
// command has not been run, or nobody knows how it ended.
func (g *guarded) run(ctx context.Context) (code int, err error) {
	defer g.hold.Close()
	says, told, err := os.Pipe()
	if err != nil {
		return 0, errors.Join(err, g.pass.Close())
	}
	defer says.Close()
	g.cmd.ExtraFiles = append(g.cmd.ExtraFiles, told)
	err = g.cmd.Start()
	_, _ = g.pass.Close(), told.Close()
	if err != nil {
		return 0, fmt.Errorf("start the guard of a command: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		_ = g.hold.Close()
		time.AfterFunc(2*Grace, func() { _ = g.cmd.Process.Kill() })
	})
	defer stop()
	_, _ = io.Copy(&g.own, io.LimitReader(says, 4<<10))
	err = g.cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); ok || errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if code = g.cmd.ProcessState.ExitCode(); code < 0 { // it was killed, and could end nothing
		process.KillSession(g.cmd.Process.Pid)
	}
	switch {
	case err != nil || ctx.Err() != nil:
	case g.own.Len() > 0:
		err = errors.New(g.own.String())
	case code < 0:
		err = fmt.Errorf("the guard of the command has died (%v)", g.cmd.ProcessState)
	}
	return code, err
}
