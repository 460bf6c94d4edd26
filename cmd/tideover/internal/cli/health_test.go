//go:build unix

package cli

import (
	"strings"
	"testing"
)

func TestHealthIsTheExitCode(t *testing.T) {
	t.Parallel()
	s := newService(t)
	if got := s.want("health"); got != "healthy" {
		t.Errorf("health = %q", got)
	}
	if got := s.want("health", "--server", s.tcp); got != "healthy" {
		t.Errorf("health over TCP, which needs no token = %q", got)
	}
	if err := s.engine.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := s.verb("health")
	wantCode(t, got, codeUnhealthy)
	if strings.TrimSpace(got.out) != "unhealthy: the engine has stopped" || got.stderr != "" {
		t.Errorf("an engine that has stopped: %+v", got)
	}
	got = s.verb("health", "--json")
	wantCode(t, got, codeUnhealthy)
	wantIn(t, "health --json", got.out, `{"ok":false,"troubles":["the engine has stopped"]}`)
	got = s.verb("health", "--server", "unix:"+s.state+"/nobody.sock")
	wantCode(t, got, codeOwn)
	wantIn(t, "nobody there", got.stderr, "no tideover serve at")
}
