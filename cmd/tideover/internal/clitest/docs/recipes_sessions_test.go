//go:build unix

package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// docs/sessions-howto.md states the same defaults as the code.
func TestTheSessionsPageStatesTheDefaults(t *testing.T) {
	t.Parallel()
	text := clitest.ReadPage(t, "sessions-howto.md")
	for _, part := range []string{"`" + session.DefaultPolicy + "`", "or " + session.DefaultMorning + " if it has none", "| `windows` | 10 |", "has 8 seconds"} {
		clitest.WantIn(t, "docs/sessions-howto.md", text, part)
	}
	if session.DefaultWindows != 10 || session.Grace != 8*time.Second {
		t.Error("docs/sessions-howto.md states other defaults")
	}
	for _, action := range session.Actions {
		clitest.WantIn(t, "docs/sessions-howto.md", text, "`"+action+"`")
	}
}

// The tutorial of docs/sessions.md works as written: its blocks create a job, watch it, watch it again
// after an interrupt, and end its wait; each prints the block that follows it.
func TestTheTutorialOfSessions(t *testing.T) {
	t.Parallel()
	k := clitest.EmptyRecipe(t)
	k.Env = append(k.Env, inTheMorning())
	blocks := clitest.FencedIn(clitest.ReadPage(t, "sessions.md"))
	clitest.WantCode(t, clitest.Finish(t, k.Command("sh", "-e", "-c", blocks[0].Text)), 0)
	k.Dir = k.Path("sessions")
	watch, again, control := blocks[1].Text, blocks[3].Text, blocks[5].Text
	start := func(script, shown string) (*exec.Cmd, *clitest.SyncBuffer) {
		cmd, out := k.Command("sh", "-c", "exec "+script), new(clitest.SyncBuffer)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(shown) {
			testwait.Until(t, "the watch prints "+line, func() bool { return firstMissing([]string{line}, out.String()) == "" })
		}
		return cmd, out
	}
	first, out := start(watch, blocks[2].Text)
	before := untilSession(k, "job", waits)
	if err := first.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	if code := clitest.ExitCode(first); code != 130 {
		t.Errorf("the interrupted watch exited with %d, want 130: %s", code, out.String())
	}
	second, out := start(again, blocks[4].Text)
	if st := untilSession(k, "job", waits); !st.Next.Equal(*before.Next) {
		t.Errorf("the session waits until %s, before the interrupt until %s", st.Next, before.Next)
	}
	got := clitest.Finish(t, k.Command("sh", "-e", "-c", control))
	clitest.WantCode(t, got, 0)
	if missing := firstMissing(shownLines(blocks[6].Text), got.Out); missing != "" {
		t.Errorf("the page shows %q, which is not in\n%s", missing, got.Out)
	}
	_ = second.Wait()
	if code := clitest.ExitCode(second); code != 0 {
		t.Errorf("the watch exited with %d, want 0: %s", code, out.String())
	}
	clitest.WantIn(t, "output", out.String(), "second half: done")
}

// inTheMorning returns a TZ in which it is about 10 o'clock, as on the page, which shows times of the same
// day without the day.
func inTheMorning() string {
	return fmt.Sprintf("TZ=Etc/GMT%+d", min(time.Now().UTC().Hour()-10, 12)) // west is positive
}

// The watch of an assistant in docs/sessions.md is controlled by the block with all commands in
// docs/sessions-howto.md.
func TestTheCommandsForSessionsOnARealWatch(t *testing.T) {
	t.Parallel()
	k := clitest.EmptyRecipe(t)
	for _, b := range append(clitest.FencedIn(clitest.ReadPage(t, "sessions.md")), clitest.FencedIn(clitest.ReadPage(t, "sessions-howto.md"))...) {
		if b.Language == "sh" && strings.Contains(b.Text, " todo") {
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
