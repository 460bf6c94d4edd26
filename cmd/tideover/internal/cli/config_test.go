//go:build unix

package cli

import (
	"path/filepath"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestConfigCheckCountsWhatThereIs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tideover.yaml")
	for text, want := range map[string]string{
		"version: 1\n": "0 workflows, 0 policies\n",
		"version: 1\nengine: {nats: a.example, name: shop}\n":                                                                  "0 workflows, 0 policies, runs are stored in the cluster shop\n",
		"version: 1\nworkflows: {w: {steps: [{id: a, run: [x]}]}}\npolicies: {p: fixed(1s)}\n":                                 "1 workflow, 1 policy\n",
		"version: 1\nproviders: {openai: , gemini: }\nsessions: {s: {start: [x]}}\n":                                           "0 workflows, 0 policies, 1 session, 2 providers\n",
		"version: 1\nsessions: {s: {start: [x]}, t: {start: [x]}}\nnotify: {n: {run: [x]}}\ndetect: {d: {rules: []}, e: {}}\n": "0 workflows, 0 policies, 2 sessions, 1 notifier, 2 packs\n",
	} {
		clitest.WriteFile(t, file, text)
		o := clitest.Run(t, "config", "check", file)
		clitest.WantCode(t, o, 0)
		if want = file + ": valid; " + want; o.Out != want {
			t.Errorf("config check of\n%s\nprints %q, want %q", text, o.Out, want)
		}
	}
}

func TestConfigShowHasNoSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tideover.yaml")
	clitest.WriteFile(t, file, "version: 1\nworkflows: {w: {description: of ghp_PLANTEDaBcDeFgHiJkL, steps: [{id: a, run: [x]}]}}\n")
	for _, args := range [][]string{{"config", "show", "-c", file}, {"config", "show", "--json", "-c", file}} {
		o := clitest.Run(t, args...)
		clitest.WantCode(t, o, 0)
		clitest.WantIn(t, "the description", o.Out, "of ***")
	}
	clitest.WriteFile(t, file, "version: 1\nsessions: {s: {start: [x, sk-ant-api03-PLANTEDaBcDeFgHi]}}\n")
	o := clitest.Run(t, "config", "show", "-c", file)
	clitest.WantCode(t, o, 125)
	clitest.WantIn(t, "the error", o.Stderr, "a secret must not be in the file")
	clitest.WantIn(t, "the error", o.Stderr, "[x, ***]")
}
