//go:build unix

package cli

import (
	"path/filepath"
	"testing"
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
		write(t, file, text)
		o := tideover(t, "config", "check", file)
		wantCode(t, o, 0)
		if want = file + ": valid; " + want; o.out != want {
			t.Errorf("config check of\n%s\nprints %q, want %q", text, o.out, want)
		}
	}
}

func TestConfigShowHasNoSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tideover.yaml")
	write(t, file, "version: 1\nworkflows: {w: {description: of ghp_PLANTEDaBcDeFgHiJkL, steps: [{id: a, run: [x]}]}}\n")
	for _, args := range [][]string{{"config", "show", "-c", file}, {"config", "show", "--json", "-c", file}} {
		o := tideover(t, args...)
		wantCode(t, o, 0)
		wantIn(t, "the description", o.out, "of ***")
	}
	write(t, file, "version: 1\nsessions: {s: {start: [x, sk-ant-api03-PLANTEDaBcDeFgHi]}}\n")
	o := tideover(t, "config", "show", "-c", file)
	wantCode(t, o, 125)
	wantIn(t, "the error", o.stderr, "a secret must not be in the file")
	wantIn(t, "the error", o.stderr, "[x, ***]")
}
