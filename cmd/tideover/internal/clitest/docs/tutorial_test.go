//go:build unix

package docs_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// The tutorial of docs/serve.md works as written: each shell block runs, and prints the block that
// follows it.
func TestTheTutorialWorks(t *testing.T) {
	t.Parallel()
	text, _, _ := strings.Cut(clitest.ReadPage(t, "serve.md"), "\n## Where to go from here\n")
	k := clitest.EmptyRecipe(t)
	k.Env = append(k.Env, "TIDEOVER_SERVER_LISTEN=127.0.0.1:0")
	steps := clitest.FencedIn(text)
	log := new(clitest.SyncBuffer) // of the server
	for i, step := range steps {
		if step.Language != "sh" {
			continue
		}
		var shown []string
		if i+1 < len(steps) && steps[i+1].Language == "" {
			shown = shownLines(steps[i+1].Text)
		}
		switch cmd := k.Command("sh", "-c", step.Text); {
		case step.Text == "tideover serve\n":
			cmd.Stdout, cmd.Stderr = log, log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = cmd.Cancel()
				_ = cmd.Wait()
			})
			testwait.Until(t, "the server prints its address", func() bool { return firstMissing(shown, log.String()) == "" })
		case strings.HasPrefix(step.Text, "sed "):
			clitest.WantCode(t, clitest.Finish(t, cmd), 0)
			testwait.Until(t, "the server loads the file", func() bool { return strings.Contains(log.String(), shown[0]) })
		default:
			tutorialStep(k, step.Text, shown)
		}
		if i == 0 {
			k.Dir = k.Path("nightly")
		}
	}
}

// shownLines returns the lines of a block without empty ones, each up to the first …
func shownLines(text string) (list []string) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimRight(line, "\n"), "…")
		if line != "" {
			list = append(list, line)
		}
	}
	return list
}

// tutorialStep runs a script of the tutorial until it prints the shown lines.
func tutorialStep(k *clitest.Recipe, script string, shown []string) {
	k.T.Helper()
	ids := regexp.MustCompile(`\b01[0-9a-z]{24}\b`)
	for i, line := range shown {
		shown[i] = ids.ReplaceAllString(line, "ID")
	}
	run := func(script string) string {
		got := clitest.Finish(k.T, k.Command("sh", "-c", script))
		if want := map[bool]int{true: 1}[strings.Contains(script, "--wait")]; got.Code != want {
			k.T.Errorf("%s: exit code %d, want %d: %s%s", script, got.Code, want, got.Out, got.Stderr)
		}
		return ids.ReplaceAllString(got.Out+got.Stderr, "ID")
	}
	out := run(script)
	if last, ok := strings.CutPrefix(script, "tideover retry --latest first\n"); ok { // the run ends soon after
		testwait.Until(k.T, "the run succeeds", func() bool { return firstMissing(shown, run(last)) == "" })
	} else if missing := firstMissing(shown, out); missing != "" {
		k.T.Errorf("%s: the page shows %q, which is not in\n%s", script, missing, out)
	}
	if strings.Contains(script, "--wait") {
		for _, part := range []string{"cat: order.txt: No such file or directory", "Retry with the current definition"} {
			testwait.Until(k.T, "the page of dead letters has "+part, func() bool { return strings.Contains(webPage(k, "/dead"), part) })
		}
	}
}

// webPage returns a page of the server in the working folder.
func webPage(k *clitest.Recipe, path string) string {
	k.T.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", k.Path("data/tideover.sock"))
	}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://tideover" + path)
	if err != nil {
		k.T.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		k.T.Errorf("GET %s: %s, %v", path, resp.Status, err)
	}
	return string(body)
}
