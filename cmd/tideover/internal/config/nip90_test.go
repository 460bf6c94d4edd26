package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/internal/secret"
)

// job is the input of a job, as its templates see it.
var job = map[string]any{
	"id": "e1", "kind": 5900, "customer": customer, "task": "--help; rm -rf /", "output": "text/plain", "timeout": 45,
	"inputs": []any{map[string]any{"data": "one", "type": "text", "relay": "", "marker": ""}, map[string]any{"data": "two", "type": "url", "relay": "", "marker": ""}},
	"params": map[string]any{"model": []any{"small"}},
}

func TestJobsAreReadAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	cfg := full(t)
	n := cfg.NIP90
	key, err := nip90.ResolveKey(n.Key, cfg.Secrets())
	if err != nil {
		t.Fatal(err)
	}
	run, flow, http := n.Kinds[0], n.Kinds[1], n.Kinds[2]
	d := steps.Data{Input: job, Run: steps.RunInfo{Attempt: 2}, Secrets: cfg.Secrets()}
	for _, c := range []struct{ what, got, want string }{
		{"key", fmt.Sprint(n.Key, key.Reveal() == nostrSecret), "${env:NOSTR_KEY} true"},
		{"relays", fmt.Sprint(n.Relays), "[wss://relay.example.com wss://other.example.com ws://127.0.0.1:7777 ws://relay.lan/inbox]"},
		{"customers", fmt.Sprint(n.Customers), fmt.Sprint([]string{customer, another})},
		{"open", fmt.Sprint(n.Open), "true"},
		{"announcement", fmt.Sprint(n.Announce, " ", n.Name, ": ", n.About), "true Translator: Translates texts, the first 100 words free of charge."},
		{"prices", fmt.Sprint(run.Price, http.Price), "21000 0"},
		{"limits", fmt.Sprint(n.PerMinute, n.Burst, n.Workers, n.Queue, n.MaxAge), "20 3 8 100 5m0s"},
		{"names", fmt.Sprint(len(n.Kinds), run.Name(), " ", flow.Name(), " ", http.Name()), "3nip90.5900 nip90.5905 nip90.5999"},
		{"times", fmt.Sprint(run.Timeout, run.MaxTimeout, run.MaxTotal, run.Total), "45s 20m0s 2h0m0s false"},
		{"times of a workflow", fmt.Sprint(flow.Timeout, flow.MaxTimeout, flow.MaxTotal, flow.Total), "1m0s 10m0s 10m0s true"},
		{"times that are not said", fmt.Sprint(http.Timeout, http.MaxTimeout, http.MaxTotal, http.Total), "20s 20s 1h0m0s false"},
		{"workflow", fmt.Sprintln(flow.Workflow, flow.Step == nil, run.Workflow == ""), "by-hand true true\n"},
		{"step", fmt.Sprint(run.Step.ID, run.Step.OutputLimit, run.Step.Concurrency, run.Step.Retryable(75), run.Step.Retryable(64)), "job131072 2 true false"},
		{"policy", run.Step.Policy.String(), "exponential(1s..30s) attempts=3"},
		{"default policy", http.Step.Policy.String(), "exponential(1s..30s) attempts=4"},
		{"command", shown(t, run.Step, d), shown(t, stored(t, run.Step), d)},
		{"request", shown(t, http.Step, d), shown(t, stored(t, http.Step), d)},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
	argv, err := run.Step.Argv(d)
	if want := []string{"agent", "--", "--help; rm -rf /", `{"model":["small"]}`}; err != nil || !slices.Equal(argv, want) {
		t.Errorf("Argv = %q, %v, want %q", argv, err, want)
	}
	if stdin, err := run.Step.Stdin(d); err != nil || stdin != "onetwo" {
		t.Errorf("Stdin = %q, %v", stdin, err)
	}
}

// stored returns a step after it is encoded for storage and decoded again.
func stored(t *testing.T, s *steps.Step) *steps.Step {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again := new(steps.Step)
	if err := json.Unmarshal(data, again); err != nil {
		t.Fatal(err)
	}
	return again
}

// jobsFile is a file with a section nip90 that has only the required keys.
const jobsFile = "version: 1\nnip90:\n  key: ${env:NOSTR_KEY}\n  relays: [wss://a.example]\n  kinds: {5900: {run: [x]}}\n"

func TestValuesOfJobsHaveOrigins(t *testing.T) {
	t.Parallel()
	got := origins(t, config.Source{Path: "/etc/tideover.yaml", Data: []byte(jobsFile), Environ: environ})
	for path, text := range got {
		if !strings.HasPrefix(path, "nip90.") {
			delete(got, path)
		}
		if planted(text) {
			t.Errorf("%s shows a secret: %s", path, text)
		}
	}
	want := map[string]string{
		"nip90.key":                      "${env:NOSTR_KEY} from /etc/tideover.yaml:3",
		"nip90.relays":                   "wss://a.example from /etc/tideover.yaml:4",
		"nip90.open":                     "false from default",
		"nip90.announce":                 "true from default",
		"nip90.limits.per-minute":        "10 from default",
		"nip90.limits.burst":             "5 from default",
		"nip90.limits.workers":           "4 from default",
		"nip90.limits.queue":             "64 from default",
		"nip90.limits.max-age":           "10m from default",
		"nip90.kinds.5900.run":           `["x"] from /etc/tideover.yaml:5`,
		"nip90.kinds.5900.policy":        "exponential(1s..30s) attempts=4 from default",
		"nip90.kinds.5900.concurrency":   "0 from default",
		"nip90.kinds.5900.output-limit":  "64KiB from default",
		"nip90.kinds.5900.timeout":       "30s from default",
		"nip90.kinds.5900.max-timeout":   "10m from default",
		"nip90.kinds.5900.max-total":     "1h from default",
		"nip90.kinds.5900.timeout-scope": "attempt from default",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("values are\n%v\nwant\n%v", got, want)
	}
}

// TestEveryChangeOfJobsIsSeen changes one setting at a time. Each change must show in
// Config.Values, which a reload compares.
func TestEveryChangeOfJobsIsSeen(t *testing.T) {
	t.Parallel()
	rest := "workflows: {w: {steps: [{id: a, run: [x]}]}}\n"
	before := origins(t, config.Source{Path: "x.yaml", Data: []byte(jobsFile + rest), Environ: environ})
	for _, change := range [][2]string{
		{"${env:NOSTR_KEY}", "${file:" + keyFile(t, nostrKey) + "}"},
		{"[wss://a.example]", "[wss://a.example, wss://b.example]"},
		{"{run: [x]}", "{run: [x, y]}"},
		{"{run: [x]}", "{run: [x], stdin: y}"},
		{"{run: [x]}", "{run: [x], env: {A: b}}"},
		{"{run: [x]}", "{run: [x], permanent-exit: [1]}"},
		{"{run: [x]}", "{run: [x], policy: task attempts=2}"},
		{"{run: [x]}", "{run: [x], timeout: 31s}"},
		{"{run: [x]}", "{run: [x], max-timeout: 31s}"},
		{"{run: [x]}", "{run: [x], max-total: 31m}"},
		{"{run: [x]}", "{run: [x], timeout-scope: total}"},
		{"{run: [x]}", "{workflow: w}"},
		{"{run: [x]}", "{http: {get: 'https://a.example'}}"},
		{"5900:", "5901:"},
		{"nip90:\n", "nip90:\n  open: true\n"},
		{"nip90:\n", "nip90:\n  customers: [" + npub + "]\n"},
		{"nip90:\n", "nip90:\n  limits: {queue: 65}\n"},
		{"nip90:\n", "nip90:\n  limits: {max-age: 11m}\n"},
	} {
		text := strings.Replace(jobsFile+rest, change[0], change[1], 1)
		after := origins(t, config.Source{Path: "x.yaml", Data: []byte(text), Environ: environ})
		for _, m := range []map[string]string{before, after} {
			for path, v := range m {
				m[path], _, _ = strings.Cut(v, " from ")
			}
		}
		if fmt.Sprint(before) == fmt.Sprint(after) {
			t.Errorf("%q instead of %q is not seen", change[1], change[0])
		}
	}
}

func keyFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestWithoutASectionNoJobsAreTaken(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load(config.Source{Path: "x.yaml", Data: []byte("version: 1\n"), Environ: environ})
	if err != nil || cfg.NIP90 != nil {
		t.Fatalf("NIP90 = %+v, %v", cfg.NIP90, err)
	}
	for _, v := range cfg.Values() {
		if strings.HasPrefix(v.Path, "nip90") {
			t.Errorf("there is a value %+v", v)
		}
	}
}

func TestJobsGoTogetherWithACluster(t *testing.T) {
	t.Parallel()
	if _, err := config.Load(config.Source{Path: "x.yaml", Data: []byte(jobsFile + "engine: {nats: a.example}\n"), Environ: environ}); err != nil {
		t.Error(err)
	}
}

// TestTheKeyIsLookedUpLate changes the key file after the configuration was loaded.
func TestTheKeyIsLookedUpLate(t *testing.T) {
	t.Parallel()
	name := keyFile(t, nostrKey)
	var r secret.Redactor
	cfg, err := config.Load(config.Source{
		Path: "x.yaml", Data: []byte(strings.Replace(jobsFile, "${env:NOSTR_KEY}", "${file:"+name+"}", 1)), Environ: environ, Redactor: &r,
	})
	if err != nil {
		t.Fatal(err)
	}
	first, err := nip90.ResolveKey(cfg.NIP90.Key, cfg.Secrets())
	if err != nil || first.Reveal() != nostrSecret {
		t.Fatalf("ResolveKey: %v", err)
	}
	if text := r.String("hex " + nostrKey + ", nsec " + nostrSecret); planted(text) {
		t.Errorf("the redactor leaves %s", text)
	}
	for content, want := range map[string]string{customer: "", "PLANTED": `the value of "${file:` + name + `}" is not usable: secret key: want `} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := nip90.ResolveKey(cfg.NIP90.Key, cfg.Secrets())
		switch {
		case want == "" && (err != nil || k.PublicKey() == first.PublicKey()):
			t.Errorf("with another key: %v, %v", k.PublicKey(), err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || planted(err.Error())):
			t.Errorf("with no key: %v, want %s", err, want)
		}
	}
}

// TestTheRedactorKnowsEverySpellingOfTheKey loads the key in one form, and checks that the
// redactor masks it in all forms.
func TestTheRedactorKnowsEverySpellingOfTheKey(t *testing.T) {
	t.Parallel()
	all := []string{nostrKey, strings.ToUpper(nostrKey), nostrSecret, strings.ToUpper(nostrSecret)}
	for _, spelled := range all {
		var r secret.Redactor
		_, err := config.Load(config.Source{Path: "x.yaml", Data: []byte(jobsFile), Environ: []string{"HOME=/home/me", "NOSTR_KEY=" + spelled}, Redactor: &r})
		if err != nil {
			t.Fatal(err)
		}
		for _, leak := range all {
			if got := r.String("a " + leak + " b"); strings.Contains(got, leak) {
				t.Errorf("of a key that is spelled %.5s… the redactor leaves %.5s…", spelled, leak)
			}
		}
	}
}

func TestCommandsDoNotSeeTheKey(t *testing.T) {
	t.Parallel()
	file := strings.Replace(jobsFile, "${env:NOSTR_KEY}", "${file:"+keyFile(t, nostrKey)+"}", 1)
	for data, want := range map[string]string{jobsFile: "[NOSTR_KEY]", file: "[]", "version: 1\n": "[]"} {
		cfg, err := config.Load(config.Source{Path: "x.yaml", Data: []byte(data), Environ: environ})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(cfg.HiddenVariables()); got != want {
			t.Errorf("HiddenVariables() = %s, want %s, of\n%s", got, want, data)
		}
	}
}

func TestSecretKeysAreKnownEverywhere(t *testing.T) {
	t.Parallel()
	text := "version: 1\nworkflows: {w: {description: 'signs with " + nostrSecret + ".', steps: [{id: a, run: [x]}]}}\n"
	got := origins(t, config.Source{Path: "x.yaml", Data: []byte(text), Environ: environ})
	if want := "signs with ***. from x.yaml:2"; got["workflows.w.description"] != want {
		t.Errorf("the description is shown as %s, want %s", got["workflows.w.description"], want)
	}
}

func TestFieldsOfJobsAreSorted(t *testing.T) {
	t.Parallel()
	fields := nip90.JobFields()
	if !slices.IsSorted(fields) || len(fields) != len(job) {
		t.Errorf("JobFields() = %v", fields)
	}
	fields[0] = "changed"
	if nip90.JobFields()[0] == "changed" {
		t.Error("callers can change the returned fields")
	}
}

func Example_nip90() {
	cfg, err := config.Load(config.Source{
		Path: "/etc/tideover.yaml",
		Data: []byte(`version: 1
nip90:
  key: ${env:NOSTR_KEY}
  relays: [wss://relay.example.com]
  kinds:
    5900: {run: [agent, --, "{{ .input.task }}"], timeout: 1m}
`),
		Environ: []string{"HOME=/home/me", "NOSTR_KEY=67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, kind := range cfg.NIP90.Kinds {
		argv, err := kind.Step.Argv(steps.Data{Input: map[string]any{"task": "water the plants"}})
		fmt.Printf("%s %v %v\n%q %v\n", kind.Name(), kind.Timeout, kind.Step.Policy, argv, err)
	}
	// Output:
	// nip90.5900 1m0s exponential(1s..30s) attempts=4
	// ["agent" "--" "water the plants"] <nil>
}
