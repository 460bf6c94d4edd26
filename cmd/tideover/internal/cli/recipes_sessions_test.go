//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

var (
	inlineCommand = regexp.MustCompile("`(tideover [^`]+)`")
	shellComment  = regexp.MustCompile(`\s+#.*$`)
	variables     = regexp.MustCompile(`^(\w+=\S*\s+)+`) // before a command
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

// TestTheCommandsOfThePagesAreRight reads every command line that the pages show,
// as tideover would before it does anything.
func TestTheCommandsOfThePagesAreRight(t *testing.T) {
	t.Parallel()
	for name, least := range map[string]int{"recipes.md": 12, "sessions.md": 16, "gateway.md": 12, "serve.md": 10} {
		list := commandLines(page(t, name))
		if len(list) < least {
			t.Errorf("%s has %d command lines, want at least %d: %q", name, len(list), least, list)
		}
		for _, line := range list {
			if err := understood(line); err != nil {
				t.Errorf("%s: %s: %v", name, line, err)
			}
		}
	}
	for _, wrong := range []string{"tideover watch --windoes 4 -- x", "tideover sessions halt todo", "tideover show", "tideover sessions pause todo --until soon"} {
		if understood(wrong) == nil {
			t.Errorf("%s: there should be something wrong with it", wrong)
		}
	}
}

// understood says what is wrong with a command line, as far as can be told without
// running it.
func understood(line string) error {
	argv, err := session.Split(line)
	if err != nil {
		return err
	}
	cmd, rest, err := newRoot(Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}).Find(argv[1:])
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil || cmd.Flags().Changed("help") {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// TestTheFilesOfThePagesAreRight loads every configuration that the pages show.
func TestTheFilesOfThePagesAreRight(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"recipes.md", "sessions.md"} {
		n := 0
		for _, b := range fencedIn(page(t, name)) {
			if b.language != "yaml" {
				continue
			}
			n++
			cfg, err := config.Load(config.Source{
				Path: filepath.Join(t.TempDir(), "tideover.yaml"), Data: []byte(b.text), Environ: []string{"HOME=/home/me", "NTFY_URL=https://ntfy.sh/x"},
			})
			if err != nil {
				t.Errorf("%s: %s\n%v", name, b.text, err)
			} else if len(cfg.Sessions)+len(cfg.Notifiers) == 0 {
				t.Errorf("%s: nothing is in\n%s", name, b.text)
			}
		}
		if n == 0 {
			t.Errorf("%s has no file", name)
		}
	}
}

// TestTheLinksOfThePagesLeadSomewhere looks for the pages and headings that are
// linked to.
func TestTheLinksOfThePagesLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^):#]*)(?:#([^)]*))?\)`)
	for _, name := range []string{"recipes.md", "sessions.md"} {
		for _, m := range link.FindAllStringSubmatch(page(t, name), -1) {
			target := name
			if m[1] != "" {
				target = m[1]
			}
			headings := map[string]bool{"": true}
			for line := range strings.Lines(page(t, target)) {
				if title, ok := strings.CutPrefix(strings.TrimSpace(line), "## "); ok {
					headings[strings.ReplaceAll(strings.ToLower(title), " ", "-")] = true
				}
			}
			if !headings[m[2]] {
				t.Errorf("%s: %s has no heading for %s", name, target, m[2])
			}
		}
	}
}

// TestTheSessionsPageStatesTheDefaults compares what the page says with what is.
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

// TestTheSessionsPageOnARealWatch runs the page's first block, a watch, and its
// block with all verbs beside it.
func TestTheSessionsPageOnARealWatch(t *testing.T) {
	t.Parallel()
	k := emptyKitchen(t)
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
