package config_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/certtest"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/testfile"
)

// samples are files that together have every key. One file can't have all keys, because
// sessions can't be combined with a cluster, nor can two ways to authenticate.
var samples = []string{
	"testdata/full.yaml", "testdata/forms.yaml", "testdata/cluster.yaml", "testdata/cluster-token.yaml", "testdata/cluster-nkey.yaml", "testdata/cluster-credentials.yaml", "testdata/cluster-address.yaml",
}

// allSamples returns the samples, and one with server.tls, which needs a key file with
// mode 600; git does not keep that mode.
func allSamples(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	cert, key := certtest.New(t).Issue(t, time.Now().Add(time.Hour), "localhost").Write(t, dir)
	name := filepath.Join(dir, "tideover.yaml")
	text := fmt.Sprintf("version: 1\nserver: {tls: {cert: %q, key: %q}}\n", cert, key)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return append(slices.Clip(samples), name)
}

var loadFull = sync.OnceValues(func() (*config.Config, error) {
	return config.Load(config.Source{Path: "testdata/full.yaml", Environ: environ})
})

// full returns the configuration of the first sample. Tests share it and must not change
// it.
func full(t *testing.T) *config.Config {
	t.Helper()
	cfg, err := loadFull()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// decoded converts a YAML text to JSON, and returns the decoded value.
func decoded(t *testing.T, data []byte) (v any) {
	t.Helper()
	j, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(j, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

var loadSchema = sync.OnceValues(func() (*jsonschema.Resolved, error) {
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(config.Schema(), s); err != nil {
		return nil, err
	}
	return s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
})

// schema returns the schema of the configuration file. Tests share it.
func schema(t *testing.T) (*jsonschema.Schema, *jsonschema.Resolved) {
	t.Helper()
	r, err := loadSchema()
	if err != nil {
		t.Fatal(err)
	}
	return r.Schema(), r
}

func TestTheSchemaIsTheGoldenOne(t *testing.T) {
	testfile.Golden(t, "testdata/schema.json", string(config.Schema()))
}

func TestTheSamplesAreValid(t *testing.T) {
	_, resolved := schema(t)
	for _, name := range allSamples(t) {
		if _, err := config.Load(config.Source{Path: name, Environ: environ}); err != nil {
			t.Error(err)
		}
		if err := resolved.Validate(sample(t, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sample returns one of the samples as a decoded JSON value.
func sample(t *testing.T, name string) any {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return decoded(t, data)
}

// TestLoaderAndSchemaKnowTheSameKeys checks that the samples and the schema have the same
// keys. Then it puts an unknown key into a map of each kind, which the loader and the
// schema must refuse.
func TestLoaderAndSchemaKnowTheSameKeys(t *testing.T) {
	s, resolved := schema(t)
	used := map[string]bool{}
	files := allSamples(t)
	for _, name := range files {
		collect(s, sample(t, name), "", used)
	}
	want := map[string]bool{}
	described(t, s, "", want)
	for path := range want {
		if !used[path] {
			t.Errorf("no sample has %s", path)
		}
	}
	for path := range used {
		if !want[path] {
			t.Errorf("the schema has no %s", path)
		}
	}
	tampered := map[string]bool{} // kinds of maps that have been tested
	for _, name := range files {
		whole := sample(t, name)
		var maps []map[string]any
		objects(s, whole, "", tampered, &maps)
		for i, m := range maps {
			key := fmt.Sprintf("zz-unknown-%d", i)
			m[key] = 1
			if resolved.Validate(whole) == nil {
				t.Errorf("the schema accepts an unknown key beside %v", m)
			}
			delete(m, key)
		}
		for i, m := range maps {
			m[fmt.Sprintf("zz-unknown-%d", i)] = 1
		}
		text, _ := json.Marshal(whole) // JSON is YAML
		_, err := config.Load(config.Source{Path: "testdata/x.yaml", Data: text, Environ: environ})
		problems, _ := err.(strictyaml.FieldErrors)
		for i, m := range maps {
			want := fmt.Sprintf(`key "zz-unknown-%d" is unknown`, i)
			if !slices.ContainsFunc(problems, func(p *strictyaml.FieldError) bool { return strings.HasPrefix(p.Message, want) }) {
				t.Errorf("Load with an unknown key beside %v: %v", m, err)
			}
		}
	}
	if len(tampered) < 15 {
		t.Errorf("only %d kinds of maps were tried", len(tampered))
	}
}

// objects appends to out the maps inside a value that have fixed keys, one of each kind
// that is not in seen.
func objects(s *jsonschema.Schema, v any, path string, seen map[string]bool, out *[]map[string]any) {
	for _, alt := range s.AnyOf {
		objects(alt, v, path, seen, out)
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if s.Items != nil {
				objects(s.Items, e, path+"[]", seen, out)
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			p := property(s, name)
			if p == nil {
				continue
			}
			below := path + "." + name
			if s.Properties[name] == nil {
				below = path + ".*"
			}
			objects(p, v[name], below, seen, out)
		}
		if kind := table.Replace(path + "."); len(s.Properties) > 0 && !seen[kind] {
			seen[kind] = true
			*out = append(*out, v)
		}
	}
}

// property returns the schema of the key name in a map with the schema s.
func property(s *jsonschema.Schema, name string) *jsonschema.Schema {
	if p := s.Properties[name]; p != nil {
		return p
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not == nil {
		return s.AdditionalProperties
	}
	return nil
}

// table replaces the path of a map by the path of another map that uses the same table of
// keys, so that each table is tested once.
var table = strings.NewReplacer(
	".workflows.*.steps[].policy.", ".policies.*.", ".workflows.*.on-give-up.policy.", ".policies.*.",
	".nip90.kinds.*.policy.", ".policies.*.", ".nip90.kinds.*.http.", ".workflows.*.steps[].http.",
	".notify.*.policy.", ".policies.*.", ".sessions.*.policy.", ".policies.*.", ".providers.*.policy.", ".policies.*.",
	".workflows.*.on-give-up.http.", ".workflows.*.steps[].http.",
	".workflows.*.steps[].undo.policy.", ".policies.*.", ".workflows.*.steps[].undo.http.", ".workflows.*.steps[].http.",
	".on.rate-limit.", ".on.unknown.", ".on.overloaded.", ".on.unknown.", ".on.context-full.", ".on.unknown.",
	".on.user-exit.", ".on.unknown.", ".on.crashed.", ".on.unknown.",
)

// described collects the keys of a schema in out, and checks that each has a description.
func described(t *testing.T, s *jsonschema.Schema, path string, out map[string]bool) {
	t.Helper()
	for name, p := range s.Properties {
		here := path + "." + name
		out[table.Replace(here)] = true
		if len(p.Description) < 10 {
			t.Errorf("%s is not described", here)
		}
		described(t, p, here, out)
	}
	for _, alt := range s.AnyOf {
		described(t, alt, path, out)
	}
	if s.Items != nil {
		described(t, s.Items, path+"[]", out)
	}
	if a := s.AdditionalProperties; a != nil && a.Not == nil {
		described(t, a, path+".*", out)
	}
}

// collect collects the fixed keys of a value in out.
func collect(s *jsonschema.Schema, v any, path string, out map[string]bool) {
	for _, alt := range s.AnyOf {
		collect(alt, v, path, out)
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if s.Items != nil {
				collect(s.Items, e, path+"[]", out)
			}
		}
	case map[string]any:
		for name, e := range v {
			switch p := property(s, name); {
			case len(s.Properties) > 0:
				out[table.Replace(path+"."+name)] = true
				if p != nil {
					collect(p, e, path+"."+name, out)
				}
			case p != nil:
				collect(p, e, path+".*", out)
			}
		}
	}
}

func TestTheSchemaRefusesWhatTheLoaderRefuses(t *testing.T) {
	_, resolved := schema(t)
	for _, name := range []string{
		"no-version", "version-2", "unknown-section", "policy-map", "name", "workflow-without-steps", "workflow-no-steps",
		"timeout", "concurrency", "schedule-missed", "schedule-no-cron", "step-run-text", "step-run-and-http", "step-neither",
		"step-no-id", "step-id", "step-unknown-key", "needs-twice", "needs-text", "output-limit", "output-limit-large", "output-limit-negative", "exit-codes", "http-expect", "name-reserved", "server-hosts", "env-is-a-list", "http-no-method",
		"http-two-methods", "http-url-key", "literal-token", "give-up-neither", "session-keys", "server-values", "server-list",
		"session-reserved", "give-up-notify-empty", "notify-limits", "step-run-empty",
		"provider-values", "provider-unknown-keys", "provider-auth", "provider-literals", "gateway-list", "gateway-values", "http-provider",
		"engine-values", "engine-no-address", "engine-list", "engine-keys",
		"nip90-empty", "nip90-null", "nip90-list", "nip90-values", "nip90-nothing", "nip90-unknown-keys", "nip90-kinds", "nip90-relays", "nip90-customers",
		"nip90-literal-nsec", "nip90-literal-hex", "nip90-key-more", "nip90-no-kind",
	} {
		data, err := os.ReadFile("testdata/bad/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if resolved.Validate(decoded(t, data)) == nil {
			t.Errorf("the schema accepts %s", name)
		}
	}
}

func TestTheSampleIsReadAsItIsMeant(t *testing.T) {
	cfg := full(t)
	w := cfg.Workflows["nightly-report"]
	fetch := stepOf(w, "fetch")
	for _, c := range []struct{ what, got, want string }{
		{"names", fmt.Sprint(cfg.WorkflowNames()), "[nightly-report by-hand alarmed]"},
		{"policy", cfg.Policies["patient"].String(), "exponential(1s..2m) jitter=full attempts=unlimited attempt-timeout=30s total-timeout=2d"},
		{"step's policy", fetch.Policy.String(), cfg.Policies["api"].String()},
		{"default of a command", stepOf(w, "render").Policy.String(), "fixed(1s..5m) attempts=3"},
		{"default of a request", stepOf(w, "a-get").Policy.String(), "exponential(1s..1m) jitter=50% attempts=5"},
		{"timeout", w.Timeout.String(), "2h0m0s"},
		{"codes", fmt.Sprint(fetch.Retryable(75), fetch.Retryable(105), fetch.Retryable(1), fetch.Retryable(64)), "true true false false"},
		{"all codes", fmt.Sprint(stepOf(w, "render").Retryable(1), stepOf(w, "render").Retryable(255)), "true true"},
		{"statuses", fmt.Sprint(stepOf(w, "send").Expected(207), stepOf(w, "send").Expected(201), stepOf(w, "a-get").Expected(204), stepOf(w, "a-get").Expected(404)), "true false true false"},
		{"schedule", w.Schedule.Cron + w.Schedule.TimeZone + w.Schedule.Missed, "0 3 * * *Europe/Berlinonce"},
		{"output limit", fmt.Sprint(fetch.OutputLimit, w.OnGiveUp.OutputLimit), "196608 1024"},
		{"server", fmt.Sprint(cfg.Server.Concurrency, cfg.Server.MaxBody, cfg.Server.Durability, cfg.Server.Retention, cfg.Server.DeadRetention, cfg.Server.OutputStorage, cfg.Server.OutputRetention), "64 1048576full336h0m0s 2160h0m0s 2147483648 168h0m0s"},
		{"default output limit", fmt.Sprint(stepOf(w, "render").OutputLimit), "65536"},
		{"hosts", fmt.Sprint(cfg.Server.Hosts), "[tideover.example.com 192.0.2.7 2001:db8::7]"},
		{"token", cfg.Server.Token.String(), "${file:./token}"},
		{"references", fmt.Sprint(stepOf(w, "send").Texts.URL.Refs(), stepOf(w, "send").Texts.Headers[0].Text.Refs()), "[${env:HOOK}] [${env:HOOK}]"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
	token, err := cfg.Server.Token.Resolve(cfg.Secrets())
	if err != nil || token.Reveal() != "token-from-the-file-PLANTED" {
		t.Errorf("token: %v, %v", token.Reveal(), err)
	}
}
