//go:build unix

package process

import (
	"context"
	"errors"
	"syscall"
	"testing"
)

// supervisor opens a supervisor for the test. Tests that use it do not run in parallel, because a
// supervisor reaps every child of the process.
func supervisor(t *testing.T, cfg Config) *Supervisor {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A signal arrives after Run has checked for one, and before there is an attempt to forward it to.
func TestSignalJustBeforeTheStartStartsNothing(t *testing.T) { //nolint:paralleltest // see supervisor
	s := supervisor(t, Config{Args: []string{"sleep", "600"}})
	s.signals.handle(syscall.SIGTERM)
	a, err := s.start(nil)
	if stop, ok := errors.AsType[*SignalError](err); !ok || stop.Signal != syscall.SIGTERM {
		t.Errorf("start = %v, %v; want the signal", a, err)
	}
	if a != nil {
		_ = syscall.Kill(-a.pid, syscall.SIGKILL)
	}
}

func TestRunGivesTheCodeOfTheCommand(t *testing.T) { //nolint:paralleltest // see supervisor
	s := supervisor(t, Config{Args: []string{"sh", "-c", "exit $CODE"}})
	for code, env := range map[int]string{0: "CODE=0", 7: "CODE=7"} {
		if r, err := s.Run(context.Background(), env); err != nil || r.Code != code {
			t.Errorf("Run with %s = %+v, %v; want code %d", env, r, err, code)
		}
	}
}
