//go:build unix

package cli

import (
	"strings"
	"testing"
)

func TestHealthIsTheExitCode(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	if got := s.mustRun("health"); got != "healthy" {
		t.Errorf("health = %q", got)
	}
	if got := s.mustRun("health", "--server", s.tcp); got != "healthy" {
		t.Errorf("health over TCP, which needs no token = %q", got)
	}
	if err := s.engine.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := s.runCommand("health")
	wantCode(t, got, codeUnhealthy)
	if strings.TrimSpace(got.out) != "unhealthy: the engine has stopped" || got.stderr != "" {
		t.Errorf("an engine that has stopped: %+v", got)
	}
	got = s.runCommand("health", "--json")
	wantCode(t, got, codeUnhealthy)
	wantIn(t, "health --json", got.out, `{"ok":false,"troubles":["the engine has stopped"]}`)
	got = s.runCommand("health", "--server", "unix:"+s.state+"/missing.sock")
	wantCode(t, got, codeOwn)
	wantIn(t, "no server", got.stderr, "no tideover serve at")
}
