package config_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/nostr"
)

// FuzzLoad loads random files. The loader must not panic or take long, and its errors must
// not contain secrets. The steps of an accepted file must be the same after they are
// stored and decoded.
func FuzzLoad(f *testing.F) {
	files := samples
	if f := flag.Lookup("test.fuzz"); f.Value.String() != "" { // else TestBadFiles loads them
		bad, _ := filepath.Glob("testdata/bad/*.yaml")
		files = append(bad, samples...)
	}
	for _, name := range files {
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
				comesBack(t, s)
			}
		}
		checkJobs(t, cfg)
	})
}

// comesBack encodes and decodes a step, and checks that it is the same.
func comesBack(t *testing.T, s *steps.Step) {
	t.Helper()
	stored, err := json.Marshal(s)
	if err != nil {
		t.Fatalf("%s: %v", s.ID, err)
	}
	again := new(steps.Step)
	if err := json.Unmarshal(stored, again); err != nil {
		t.Fatalf("%s: %v", stored, err)
	}
	if second, _ := json.Marshal(again); string(second) != string(stored) {
		t.Fatalf("%s came back as %s", stored, second)
	}
}

// checkJobs checks invariants of the section nip90 of an accepted configuration.
func checkJobs(t *testing.T, cfg *config.Config) {
	t.Helper()
	n := cfg.NIP90
	if n == nil {
		return
	}
	if _, err := nip90.ResolveKey(n.Key, cfg.Secrets()); err != nil || len(n.Relays) == 0 || len(n.Kinds) == 0 || n.Workers < 1 || n.MaxAge <= 0 {
		t.Errorf("accepted, and yet: %+v, %v", n, err)
	}
	if _, err := nostr.NewClient(nostr.ClientConfig{Relays: n.Relays, Handle: func(string, *nostr.Event) error { return nil }}); err != nil {
		t.Errorf("accepted %q, and yet: %v", n.Relays, err)
	}
	for _, j := range n.Kinds {
		if (j.Step == nil) == (j.Workflow == "") || j.Kind < 5000 || j.Kind > 5999 || j.Timeout < time.Second || j.Timeout%time.Second != 0 ||
			j.Timeout > j.MaxTimeout || j.MaxTimeout > j.MaxTotal || j.Workflow != "" && !j.Total {
			t.Errorf("accepted: %+v", j)
		}
		if j.Step != nil {
			if a := j.Step.Policy.Attempts; a < 0 || a > 20 {
				t.Errorf("%s: %d attempts", j.Name(), a)
			}
			comesBack(t, j.Step)
		}
	}
}

// quoted returns the text in quotes.
func quoted(text string) string {
	q, _ := json.Marshal(text)
	return string(q)
}

// FuzzSecretsInErrors loads a file with a written-out secret and with another problem. The
// error must not contain the secret.
func FuzzSecretsInErrors(f *testing.F) {
	f.Add("hunter22")
	f.Add("a: b")
	f.Add("é\"x'")
	f.Add("a/b,c@d#e?f%")
	f.Add(",123")
	f.Add("\x7f ")
	f.Add("?0")
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
			"version: 1\nnip90: {key: " + string(q) + ", zz: 1}\n",
			"version: 1\nnip90:\n  key: " + string(q) + "\n  relays: [\n",
			"version: 1\nnip90: {relays: [" + quoted("wss://me:"+planted+"@a.example") + ", " + quoted("wss://a.example/?token="+planted) + "]}\n",
		} {
			_, err := config.Load(config.Source{Path: "x.yaml", Data: []byte(text), Environ: environ})
			if err != nil && strings.Contains(err.Error(), "PLANTED") && !strings.Contains(s, "${") && !strings.Contains(s, "{{") {
				t.Fatalf("%q: %v", text, err)
			}
		}
	})
}
