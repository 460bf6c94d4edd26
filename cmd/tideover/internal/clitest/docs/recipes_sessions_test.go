//go:build unix

package docs_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// docs/sessions.md states the same defaults as the code.
func TestTheSessionsPageStatesTheDefaults(t *testing.T) {
	t.Parallel()
	text := clitest.ReadPage(t, "sessions.md")
	for _, part := range []string{"`" + session.DefaultPolicy + "`", "or " + session.DefaultMorning + " if it has none", "| `windows` | 10 |", "has 8 seconds"} {
		clitest.WantIn(t, "docs/sessions.md", text, part)
	}
	if session.DefaultWindows != 10 || session.Grace != 8*time.Second {
		t.Error("docs/sessions.md states other defaults")
	}
	for _, action := range session.Actions {
		clitest.WantIn(t, "docs/sessions.md", text, "`"+action+"`")
	}
}

// The first block of docs/sessions.md starts a watch. The block with all commands controls that
// watch.
func TestTheSessionsPageOnARealWatch(t *testing.T) {
	t.Parallel()
	k := clitest.EmptyRecipe(t)
	for _, b := range clitest.FencedIn(clitest.ReadPage(t, "sessions.md")) {
		if b.Language == "sh" {
			k.Blocks = append(k.Blocks, b)
		}
	}
	k.Fake("claude", `echo "retry after 3600s"; exit 1`)
	watch := k.Shell(0)
	var out clitest.SyncBuffer
	watch.Stdout, watch.Stderr = &out, &out
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	untilSession(k, "todo", waits)
	got := k.Run(1)
	clitest.WantCode(t, got, 0)
	for _, part := range []string{"todo paused", "todo waiting until "} {
		clitest.WantIn(t, "stdout", got.Out, part)
	}
	_ = watch.Wait()
	if code := clitest.ExitCode(watch); code != 143 {
		t.Errorf("watch exited with %d, want 143: %s", code, out.String())
	}
	clitest.WantIn(t, "output", out.String(), "session todo was stopped")
	for _, name := range []string{"log.db", "audit.jsonl"} {
		path := filepath.Join(k.Home, ".local/state/tideover/watch/todo", name)
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the page says that there is %s: %v", path, err)
		}
	}
}
