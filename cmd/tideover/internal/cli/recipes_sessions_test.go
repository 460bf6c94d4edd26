//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

var (
	inlineCommand = regexp.MustCompile("`(tideover [^`]+)`")
	shellComment  = regexp.MustCompile(`\s+#.*$`)
	variables     = regexp.MustCompile(`^(\w+=\S*\s+)+`) // assignments before a command
)

// commandLines returns the command lines of a page that begin with tideover.
func commandLines(text string) (list []string) {
	for _, b := range fencedIn(text) {
		joined := strings.NewReplacer("\\\n", " ", "$(RETRY)", "tideover exec --attempts 3 --", "$$", "$").Replace(b.text)
		for line := range strings.Lines(joined) {
			line = variables.ReplaceAllString(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "")
			if strings.HasPrefix(line, "tideover ") {
				list = append(list, shellComment.ReplaceAllString(line, ""))
			}
		}
	}
	for _, m := range inlineCommand.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

// docs/sessions.md states the same defaults as the code.
func TestTheSessionsPageStatesTheDefaults(t *testing.T) {
	t.Parallel()
	text := page(t, "sessions.md")
	for _, part := range []string{"`" + session.DefaultPolicy + "`", "or " + session.DefaultMorning + " if it has none", "| `windows` | 10 |", "has 8 seconds"} {
		wantIn(t, "docs/sessions.md", text, part)
	}
	if session.DefaultWindows != 10 || session.Grace != 8*time.Second {
		t.Error("docs/sessions.md states other defaults")
	}
	for _, action := range session.Actions {
		wantIn(t, "docs/sessions.md", text, "`"+action+"`")
	}
}

// The first block of docs/sessions.md starts a watch. The block with all commands controls that
// watch.
func TestTheSessionsPageOnARealWatch(t *testing.T) {
	t.Parallel()
	k := emptyRecipe(t)
	for _, b := range fencedIn(page(t, "sessions.md")) {
		if b.language == "sh" {
			k.recipe = append(k.recipe, b)
		}
	}
	k.fake("claude", `echo "retry after 3600s"; exit 1`)
	watch := k.shell(0)
	var out syncBuffer
	watch.Stdout, watch.Stderr = &out, &out
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	k.untilSession("todo", waits)
	got := k.run(1)
	wantCode(t, got, 0)
	for _, part := range []string{"todo paused", "todo waiting until "} {
		wantIn(t, "stdout", got.out, part)
	}
	_ = watch.Wait()
	if code := exitCode(watch); code != 143 {
		t.Errorf("watch exited with %d, want 143: %s", code, out.String())
	}
	wantIn(t, "output", out.String(), "session todo was stopped")
	for _, name := range []string{"log.db", "audit.jsonl"} {
		path := filepath.Join(k.home, ".local/state/tideover/watch/todo", name)
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the page says that there is %s: %v", path, err)
		}
	}
}
