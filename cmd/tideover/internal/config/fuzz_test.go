package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

// FuzzLoad feeds the loader anything. It must not panic or take long, must not
// repeat secrets, and what it accepts must be stored and come back the same.
func FuzzLoad(f *testing.F) {
	files, _ := filepath.Glob("testdata/bad/*.yaml")
	for _, name := range append(files, samples...) {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := config.Load(config.Source{Path: "testdata/x.yaml", Data: append([]byte{}, data...), Environ: environ})
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		for _, v := range cfg.Values() {
			if v.Origin == "" || v.Path == "" {
				t.Errorf("a value without origin: %+v", v)
			}
		}
		if _, err := cfg.ProviderSpecs(); err != nil {
			t.Errorf("accepted, and yet: %v", err)
		}
		for _, w := range cfg.Workflows {
			for _, s := range w.Steps {
				stored, err := json.Marshal(s)
				if err != nil {
					t.Fatalf("%s: %v", s.ID, err)
				}
				again := new(config.Step)
				if err := json.Unmarshal(stored, again); err != nil {
					t.Fatalf("%s: %v", stored, err)
				}
				if second, _ := json.Marshal(again); string(second) != string(stored) {
					t.Fatalf("%s came back as %s", stored, second)
				}
			}
		}
	})
}

// quoted returns the text in quotes.
func quoted(text string) string {
	q, _ := json.Marshal(text)
	return string(q)
}

// FuzzSecretsInErrors plants a secret where a secret belongs, in a file with
// something wrong elsewhere, and looks for it in the error.
func FuzzSecretsInErrors(f *testing.F) {
	f.Add("hunter22")
	f.Add("a: b")
	f.Add("é\"x'")
	f.Add("a/b,c@d#e?f%")
	f.Add(",123")
	f.Fuzz(func(t *testing.T, s string) {
		planted := "PLANTED" + s
		q, _ := json.Marshal(planted)
		for _, text := range []string{
			"version: 1\nserver: {token: " + string(q) + ", lisen: x}\n",
			"version: 1\nworkflows: {w: {steps: [{id: a, run: [x], zz: 1, env: {API_KEY: " + string(q) + "}}]}}\n",
			"version: 1\nserver:\n  token: " + string(q) + "\n  listen: [\n",
			"version: 1\nproviders: {openai: {auth: " + string(q) + ", zz: 1}}\n",
			"version: 1\nproviders: {openai: {zz: 1, auth: ['${env:HOOK}', {name: b, key: " + string(q) + "}, " + string(q) + "]}}\n",
			"version: 1\nproviders: {openai: {zz: 1, headers: {X-Api-Key: " + string(q) + "}}}\n",
			"version: 1\nproviders:\n  openai:\n    auth: " + string(q) + " [\n",
			"version: 1\nengine: {nats: " + quoted("nats://me:"+planted+"@a.example:4222") + ", zz: 1}\n",
			"version: 1\nengine: {nats: [a.example, " + quoted("nats://me:"+planted+"@a.example") + "], zz: 1}\n",
			"version: 1\nengine: {nats: " + quoted(planted+"@a.example") + ", zz: 1}\n",
			"version: 1\nengine: {nats: a.example, user: me, password: " + string(q) + ", system-password: " + string(q) + ", zz: 1}\n",
			"version: 1\nengine: {nats: a.example, token: " + string(q) + ", tls: {zz: 1}}\n",
			"version: 1\nproviders:\n  openai:\n    auth:\n      - " + string(q) + " [\n",
		} {
			err := config.Check(config.Source{Path: "x.yaml", Data: []byte(text), Environ: environ})
			if err != nil && strings.Contains(err.Error(), "PLANTED") && !strings.Contains(s, "${") && !strings.Contains(s, "{{") {
				t.Fatalf("%q: %v", text, err)
			}
		}
	})
}
