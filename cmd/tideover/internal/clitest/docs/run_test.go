//go:build unix

package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// longRunning matches commands that run until they are stopped.
var longRunning = regexp.MustCompile(`tideover (serve|gateway|watch|chaos)\b`)

// The commands of each page run in their order, and their output is compared with what the page
// shows, except for numbers and times.
func TestTheCommandsOfThePagesRun(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, name := range clitest.Pages(t) {
		var here []clitest.TypedLine
		for _, line := range clitest.TypedIn(clitest.ReadPage(t, name)) {
			if entry := entryFor(name, line.Text); entry != "" {
				used[entry] = true
			} else {
				here = append(here, line)
			}
		}
		if len(here) == 0 {
			continue
		}
		t.Run(strings.TrimPrefix(name, "../"), func(t *testing.T) {
			t.Parallel()
			k := clitest.EmptyRecipe(t)
			k.Env = append(k.Env, "TIDEOVER_SERVER_LISTEN=127.0.0.1:0", "TIDEOVER_GATEWAY_LISTEN=127.0.0.1:0")
			if set := pageSetups[name]; set != nil {
				set(k)
			}
			for _, line := range here {
				runLine(k, line)
			}
		})
	}
	tests := testNames(t)
	for entry, reason := range testedElsewhere {
		if !used[entry] {
			t.Errorf("elsewhere has %q, and no page does", entry)
		}
		if strings.HasPrefix(reason, "Test") && !tests[reason] {
			t.Errorf("%s: there is no %s", entry, reason)
		}
	}
}

// entryFor returns the longest key of testedElsewhere that matches a command of the page with this
// name; empty if there is none.
func entryFor(name, command string) (found string) {
	for entry := range testedElsewhere {
		if strings.HasPrefix(name+": "+command, entry) && len(entry) > len(found) {
			found = entry
		}
	}
	return found
}

// testNames returns the names of the tests of the command.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	var files []string
	for _, pattern := range []string{"../*/*_test.go", "../../cli/*_test.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	names := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
	}
	return names
}

// runLine runs a command of a page and compares its output with the page. A long-running command
// continues until the test ends.
func runLine(k *clitest.Recipe, line clitest.TypedLine) {
	k.T.Helper()
	cmd := k.Command("sh", "-c", line.Text)
	if !longRunning.MatchString(line.Text) || strings.Contains(line.Text, "--dry-run") {
		out := new(clitest.SyncBuffer) // standard output and standard error, as on a terminal
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Run(); err != nil {
			k.T.Errorf("%s: %v: %s", line.Text, err, out.String())
		}
		if missing := firstMissing(line.Shown, out.String()); missing != "" {
			k.T.Errorf("%s: the page shows %q, which is not in\n%s", line.Text, missing, out.String())
		}
		return
	}
	waitUntilReady(k, cmd, line)
}

// waitUntilReady starts a long-running command and waits until it has printed the output on the
// page; if the page shows none, until it has printed the address of its web page.
func waitUntilReady(k *clitest.Recipe, cmd *exec.Cmd, line clitest.TypedLine) {
	k.T.Helper()
	out := new(clitest.SyncBuffer)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		k.T.Fatal(err)
	}
	k.T.Cleanup(func() {
		_ = cmd.Cancel()
		_ = cmd.Wait()
	})
	shown := line.Shown
	switch {
	case strings.Contains(line.Text, "tideover chaos"):
		shown = shown[:1] // the other lines are printed only when requests arrive
	case len(shown) == 0:
		shown = []string{"tideover: the page is at"}
	}
	testwait.Until(k.T, line.Text+" prints what the page shows", func() bool { return firstMissing(shown, out.String()) == "" })
}

// Parts of the output that differ between runs of a command.
var differing = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`npub1\S*`), "NPUB"},
	{regexp.MustCompile(`\d+[ap]m\b`), "HOUR"},
	{regexp.MustCompile(`(\d+(\.\d+)?(ns|µs|ms|s|m|h|d))+\b`), "SPAN"},
	{regexp.MustCompile(`\d+`), "N"},
	{regexp.MustCompile(`\s+`), " "},
}

func shape(line string) string {
	for _, d := range differing {
		line = d.pattern.ReplaceAllString(line, d.instead)
	}
	return strings.TrimSpace(line)
}

// firstMissing returns the first of the shown lines that the output lacks; empty if it has all of
// them, in this order. Lines are compared by their shape.
func firstMissing(shown []string, output string) string {
	lines := strings.Split(output, "\n")
	for _, want := range shown {
		for len(lines) > 0 && !strings.HasPrefix(shape(lines[0]), shape(want)) {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			return want
		}
		lines = lines[1:]
	}
	return ""
}

func TestWhatIsNotShownIsFound(t *testing.T) {
	t.Parallel()
	const output = "tideover: attempt 1/5 exited with 75; next in 481ms\nhello, after 3 attempts\n"
	for _, tt := range []struct {
		shown []string
		want  string
	}{
		{[]string{"tideover: attempt 2/5 exited with 1; next in 1.1s", "hello, after 2 attempts"}, ""},
		{[]string{"hello, after 2 attempts", "tideover: attempt 2/5 exited with 1; next in 1.1s"}, "tideover: attempt 2/5 exited with 1; next in 1.1s"},
		{[]string{"tideover: attempt 1/5 failed with 75"}, "tideover: attempt 1/5 failed with 75"},
	} {
		if got := firstMissing(tt.shown, output); got != tt.want {
			t.Errorf("notShown(%q) = %q, want %q", tt.shown, got, tt.want)
		}
	}
}

// The requests of docs/api.md are sent to a server that is configured as the page says.
func TestThePageOfTheAPIWorks(t *testing.T) {
	t.Parallel()
	clitest.NeedTools(t, "curl")
	k := clitest.EmptyRecipe(t)
	k.Env = append(k.Env, "TIDEOVER_SERVER_LISTEN=127.0.0.1:0")
	k.Write(k.Path("tideover.yaml"), "version: 1\nworkflows: {order: {steps: [{id: charge, run: [echo, charged]}]}}\n", 0o600)
	runLine(k, clitest.TypedLine{Text: "tideover serve --config tideover.yaml"})
	got := clitest.Finish(t, k.Command("sh", "-e", "-c", clitest.Blocks(t, "api.md", "sh")[0]))
	clitest.WantCode(t, got, 0)
	for _, part := range []string{`"existing":false`, `charged`} {
		clitest.WantIn(t, "stdout", got.Out, part)
	}
}
