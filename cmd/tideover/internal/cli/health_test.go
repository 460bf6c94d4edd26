//go:build unix

package cli

import (
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
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
	clitest.WantCode(t, got, CodeFailed)
	if strings.TrimSpace(got.Out) != "unhealthy: the engine has stopped" || got.Stderr != "" {
		t.Errorf("an engine that has stopped: %+v", got)
	}
	got = s.runCommand("health", "--json")
	clitest.WantCode(t, got, CodeFailed)
	clitest.WantIn(t, "health --json", got.Out, `{"ok":false,"troubles":["the engine has stopped"]}`)
	got = s.runCommand("health", "--server", "unix:"+s.state+"/missing.sock")
	clitest.WantCode(t, got, CodeOwn)
	clitest.WantIn(t, "no server", got.Stderr, "no tideover serve at")
}
