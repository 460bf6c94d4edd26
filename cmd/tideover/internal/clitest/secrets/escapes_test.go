//go:build unix

package secrets_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// escapes is text that attacks a terminal. It changes colours, the title and the clipboard, and
// contains a link, one-byte escapes, a faked line of tideover, characters that reverse text, and
// HTML.
const escapes = "E\x1b[31m\x1b]0;t\x07\x1b]52;c;eA==\x07\x1b]8;;http://evil\x1b\\x\x1b]8;;\x1b\\\u009b31m\u009d0;x\u009c\rtideover: done\b\b\u202egnp\u2066\u200f\U000e0041<script>alert(1)</script>"

// plainText fails the test if the text contains characters other than line breaks that are not
// visible on a terminal. what names the text in the message.
func plainText(t *testing.T, what, text string) {
	t.Helper()
	for i, r := range text {
		if r != '\n' && !unicode.IsGraphic(r) {
			t.Errorf("%s has %U: …%q…", what, r, text[max(0, i-60):min(len(text), i+20)])
			return
		}
	}
}

// Escape sequences are planted in keys, inputs, outputs, errors, lines of a session and answers of
// a provider. The commands print all of these, without the sequences.
func TestWhatOthersWroteDoesNothingToATerminal(t *testing.T) {
	t.Parallel()
	code, err := json.Marshal(map[string]any{"error": map[string]string{"code": escapes, "type": escapes, "message": escapes}})
	if err != nil {
		t.Fatal(err)
	}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Odd", "\x1b[31m")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write(code)
	}))
	t.Cleanup(up.Close)
	dir := clitest.ShortDir(t)
	clitest.WriteFile(t, filepath.Join(dir, "said"), escapes+"\n"+escapes+"\xff\xfe\n")
	s := clitest.Serve(t, `version: 1
providers: {up: {base-url: `+up.URL+`, auth: "${env:KEY}", policy: fixed(1ms) attempts=2}}
sessions: {kept: {start: [sh, -c, 'cat said; exit 7'], policy: fixed(1ms) attempts=2}}
workflows:
  bad: {description: "\e[31m", steps: [{id: a, run: [sh, -c, 'cat said; cat said >&2; exit 3'], policy: fixed(1ms) attempts=2}]}
  good: {steps: [{id: a, run: [cat, said]}]}
  asks: {steps: [{id: a, http: {provider: up, get: /x}, policy: fixed(1ms) attempts=1}]}
`, dir, "KEY=hush-hush-key")
	input, err := json.Marshal(map[string]string{escapes: escapes})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"bad", "good", "asks"} {
		o := s.RunCommand("run", w, "--wait", "--input", string(input), "--key", "\u202e<b>"+w)
		plainText(t, "run "+w, o.Out+o.Stderr)
	}
	clitest.WantIn(t, "a run", s.RunCommand("show", "\u202e<b>bad").Out, `E\x1b[31m\x1b]0;t\x07\x1b]52;c;eA==\x07`)
	var all sync.WaitGroup
	defer all.Wait()
	for _, args := range [][]string{
		{"runs"}, {"runs", "--json"}, {"dead"}, {"dead", "--groups"}, {"dead", "--json"}, {"events"}, {"events", "--json"}, {"status"}, {"workflows"}, {"workflows", "--json"}, {"show", "\u202e<b>bad"},
		{"show", "\u202e<b>bad", "--json"}, {"show", "\u202e<b>good"}, {"show", "\u202e<b>asks"}, {"show", escapes}, {"sessions", "ls"}, {"sessions", "show", "kept"}, {"sessions", "show", "kept", "--json"},
		{"sessions", "show", escapes}, {"providers"}, {"providers", "show", "up"}, {"providers", "show", "up", "--json"}, {"providers", "show", escapes}, {"providers", "drain", escapes},
		{"run", escapes}, {"run", "bad", "--input", escapes}, {"run", "bad", "--key", escapes}, {"cancel", escapes}, {"retry", "\u202e<b>bad"}, {"config", "show", "--config", s.File}, {"config", "show", "--json", "--config", s.File},
	} {
		all.Go(func() {
			o := s.RunCommand(args...)
			plainText(t, fmt.Sprintf("%.40q", args), o.Out+o.Stderr)
		})
	}
}

// Escape sequences are planted in configuration files and arguments. The errors about them do not
// contain the sequences.
func TestMistakesWithEscapesDoNothingToATerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all sync.WaitGroup
	defer all.Wait()
	try := func(args ...string) {
		all.Go(func() {
			o := clitest.Run(t, args...)
			plainText(t, fmt.Sprintf("%.60q", args), o.Out+o.Stderr)
			if o.Code == 0 {
				t.Errorf("%.60q: exit code 0", args)
			}
		})
	}
	for i, text := range []string{
		"version: 1\n\"\\e[31m\\u202e\": 1\n",
		"version: 1\n" + escapes + ": 1\n",
		"version: 1\npolicies: {a: \"fixed(\\e]0;x\\a)\"}\n",
		"version: 1\npolicies: {a: 'fixed(" + strings.ReplaceAll(escapes, "'", "") + ")'}\n",
		"version: 1\nworkflows: {\"\\u202e\\e[31m\": {steps: []}}\n",
		"version: 1\nproviders: {\"\\e[31m\": {base-url: \"http://\\e[31m\"}}\n",
		"version: 1\nworkflows: {w: {steps: [{id: \"\\e\", run: [\"{{ \\e }}\"]}]}}\n",
		"version: \"\\e[31m\"\n",
		"# a comment \u202e\nversion: 1\nbad: [\u202e\n",
	} {
		file := filepath.Join(dir, fmt.Sprint(i, ".yaml"))
		clitest.WriteFile(t, file, text)
		try("config", "check", file)
		try("serve", "--config", file, "--data", dir)
	}
	for _, args := range [][]string{
		{"plan", "fixed(" + escapes + ")"}, {"plan", escapes}, {"exec", "--policy", escapes, "--", "true"}, {escapes}, {"--" + escapes}, {"runs", "--server", escapes}, {"runs", "--state", escapes, "--server", "unix:" + dir + "/none"},
		{"config", "check", escapes}, {"serve", "--config", escapes}, {"detect", escapes}, {"sim", escapes}, {"notify", "test", escapes, "--config", filepath.Join(dir, "0.yaml")}, {"gateway", escapes}, {"watch", "--policy", escapes, "--", "true"},
	} {
		try(args...)
	}
}
