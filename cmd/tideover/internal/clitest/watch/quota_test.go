//go:build unix

package watch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// A watch with --pause-at starts no command while the app-server of codex, or the status line of
// Claude Code, reports that too much of the quota is used.
func TestWatchPausesBeforeTheLimit(t *testing.T) {
	t.Parallel()
	reset := time.Now().Add(time.Hour).Unix()
	t.Run("codex", func(t *testing.T) {
		t.Parallel()
		dir := clitest.ShortDir(t)
		tool := clitest.FakeTool(t, dir, "codex", fmt.Sprintf(`test "$1" = app-server || exit 0
while read -r line; do case "$line" in
*'"initialize"'*) echo '{"id":1,"result":{}}' ;;
*rateLimits*) echo '{"id":2,"result":{"rateLimits":{"primary":{"usedPercent":91,"windowDurationMins":300,"resetsAt":%d}}}}' ;;
esac; done`, reset))
		watchHeld(t, dir, tool, "exec", "Work through TODO.md")
		calls, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil || string(calls) != "app-server\n" {
			t.Errorf("codex was called with %q, %v", calls, err)
		}
	})
	t.Run("claude", func(t *testing.T) {
		t.Parallel()
		dir := clitest.ShortDir(t)
		tool := clitest.FakeTool(t, dir, "claude", "exit 0")
		status := fmt.Sprintf(`{"rate_limits":{"five_hour":{"used_percentage":91,"resets_at":%d}}}`, reset)
		cmd, _ := clitest.Command(t, "sessions", "status-line")
		cmd.Env, cmd.Stdin = append(cmd.Env, "XDG_STATE_HOME="+dir), strings.NewReader(status)
		if got := clitest.Finish(t, cmd); got.Code != 0 || !strings.HasPrefix(got.Out, "5-hour 91%, resets in ") {
			t.Fatalf("status-line: %+v", got)
		}
		cmd, _ = clitest.Command(t, "sessions", "status-line", "--", "sh", "-c", "cat; exit 3")
		cmd.Env, cmd.Stdin = append(cmd.Env, "XDG_STATE_HOME="+dir), strings.NewReader(status)
		if got := clitest.Finish(t, cmd); got.Out != status {
			t.Errorf("the user's own status line: %+v", got)
		}
		watchHeld(t, dir, tool, "-p", "Work through TODO.md")
		if calls, err := os.ReadFile(filepath.Join(dir, "calls")); err == nil {
			t.Errorf("claude was called with %q", calls)
		}
	})
}

// watchHeld starts a watch of a command, waits until the watch holds the command back because of
// the quota, and ends the watch.
func watchHeld(t *testing.T, dir string, argv ...string) {
	t.Helper()
	cmd, _ := clitest.Command(t, append([]string{"watch", "--data", filepath.Join(dir, "state"), "--pause-at", "90%", "--"}, argv...)...)
	out := new(clitest.SyncBuffer)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = dir, out, out, append(cmd.Env, "XDG_STATE_HOME="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the watch is held", func() bool {
		return strings.Contains(out.String(), "91% of the 5-hour quota is used; the session pauses at 90%")
	})
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
}
