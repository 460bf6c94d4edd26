package config_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/internal/secret"
)

// load loads a file with one workflow and returns the workflow. The text is the YAML of
// the workflow's keys, indented by four spaces.
func load(t *testing.T, steps string) *steps.Workflow {
	t.Helper()
	cfg, err := config.Load(config.Source{Path: "testdata/x.yaml", Data: []byte("version: 1\nworkflows:\n  w:\n" + steps), Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Workflows["w"]
}

// stepOf returns the step with the id, nil if there is none.
func stepOf(w *steps.Workflow, id string) *steps.Step {
	for _, s := range w.Steps {
		if s.ID == id {
			return s
		}
	}
	return nil
}

func data(cfg *config.Config) steps.Data {
	d := steps.Data{
		Input: map[string]any{"day": "2026-10-03", "n": json.Number("1000000"), "f": 0.5, "big": 1e6, "list": []any{"a", 1.0}, "null": nil, "html": "<&>"},
		Steps: map[string]steps.StepResult{
			"fetch":    {Stdout: "fetched", Exit: 3, Output: map[string]any{"rows": 7.0}},
			"re-fetch": {Stdout: " again\n"},
			"render":   {Stdout: "page", Stderr: "warnings"},
			"send":     {Status: 202},
		},
		Run: steps.RunInfo{ID: "r1", Workflow: "nightly-report", Key: "k", Attempt: 2, Started: time.Date(2026, 10, 3, 1, 0, 0, 0, time.UTC)},
	}
	if cfg != nil {
		d.Secrets = cfg.Secrets()
	}
	return d
}

// shown returns everything that a step renders, with its secrets.
func shown(t *testing.T, s *steps.Step, d steps.Data) string {
	t.Helper()
	var b strings.Builder
	if s.IsHTTP() {
		req, err := s.Request(t.Context(), d)
		if err != nil {
			return "error: " + err.Error()
		}
		body, _ := io.ReadAll(req.Body)
		fmt.Fprintf(&b, "%s %s\n", req.Method, req.URL)
		var names []string
		for name := range req.Header {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			fmt.Fprintf(&b, "%s: %s\n", name, req.Header.Get(name))
		}
		fmt.Fprintf(&b, "%s", body)
		return b.String()
	}
	argv, err := s.Argv(d)
	if err != nil {
		return "error: " + err.Error()
	}
	env, err := s.Env(d)
	if err != nil {
		return "error: " + err.Error()
	}
	stdin, err := s.Stdin(d)
	if err != nil {
		return "error: " + err.Error()
	}
	fmt.Fprintf(&b, "%q", argv)
	for _, e := range env {
		fmt.Fprintf(&b, " %s", e.Pair())
	}
	if stdin != "" {
		fmt.Fprintf(&b, " < %s", stdin)
	}
	return b.String()
}

func TestTheSampleRenders(t *testing.T) {
	cfg := full(t)
	w := cfg.Workflows["nightly-report"]
	for id, want := range map[string]string{
		"fetch":  `["./fetch.sh" "2026-10-03" "5"] LANG=C PRICE=${5} RUN=r1 TOKEN=fetch-PLANTED-1 < {"big":1000000,"day":"2026-10-03","f":0.5,"html":"<&>","list":["a",1],"n":1000000,"null":null}`,
		"render": `["./render.sh" "again"] LANG=C RUN=r1`,
		"send":   "POST https://hooks.example.com/in?key=hook-PLANTED-2\nAuthorization: Bearer hook-PLANTED-2\nX-Run: r1\npage\nand 7 bytes\n",
		"a-get":  "GET https://example.com/2026-10-03\n",
		"a-put":  "PUT https://example.com\n",
	} {
		if got := shown(t, stepOf(w, id), data(cfg)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", id, got, want)
		}
	}
	d := data(cfg)
	delete(d.Steps, "fetch")
	if got, want := shown(t, w.OnGiveUp, d), `["./alarm.sh" "r1" "-1"] LANG=C RUN=r1 WHO=ops < warnings`; got != want {
		t.Errorf("on-give-up:\n%s\nwant\n%s", got, want)
	}
	if got, want := shown(t, stepOf(w, "render"), d), `error: step "render": there is no result of step "fetch", which it needs`; got != want {
		t.Errorf("without a result: %s, want %s", got, want)
	}
}

func TestTemplates(t *testing.T) {
	for _, c := range []struct{ template, want string }{
		{"{{ .input.n }} {{ .input.big }} {{ .input.f }}", "1000000 1000000 0.5"},
		{"{{ if eq .input.n 1000000 }}yes{{ end }}", "yes"},
		{"{{ .steps.fetch.output.rows }} {{ .steps.fetch.exit }}", "7 3"},
		{"{{ index .steps.fetch.output `rows` }}", "7"},
		{"{{ (step `re-fetch`).stdout | trim | upper }}", "AGAIN"},
		{"{{ with step `re-fetch` }}{{ trim .stdout }}{{ end }}", "again"},
		{"{{ range .input.list }}[{{ . }}]{{ end }}", "[a][1]"},
		{"{{ range $i, $e := .input.list }}{{ $i }}={{ $e }} {{ end }}", "0=a 1=1 "},
		{"{{ b64 .input.day }} {{ lower `ABC` }} {{ urlquery `a b&c` }}", "MjAyNi0xMC0wMw== abc a+b%26c"},
		{"{{ json .input.list }} {{ json .input.html }}", `["a",1] "<&>"`},
		{"{{ default `none` (index .input `missing`) }} {{ default `x` .input.null }} {{ default `x` .input.day }}", "none x 2026-10-03"},
		{"{{ .run.id }}/{{ .run.workflow }}/{{ .run.key }}/{{ .run.attempt }}", "r1/nightly-report/k/2"},
		{"[{{ .schedule.time }}]", "[]"},
		{"{{/* don't */}}x", "x"},
		{"a ${HOME} $${HOME} $${env:X} $x", "a ${HOME} $${HOME} ${env:X} $x"},
		{"{{ `{{` }} }}", "{{ }}"},
		{"{{ .input.missing }}", `error: <.input.missing>: map has no entry for key "missing"`},
		{"{{ .input.null }}", "error: template: .input.null is null or missing; give a value"},
		{"{{ index .input `missing` }}", "error: template: index .input `missing` is null or missing; give a value"},
		{"{{ .input }}", "error: template: .input is a map or a list; write it with json"},
		{"{{ (step .input.day).stdout }}", `error: step "2026-10-03" is not in needs`},
		{"{{ index .steps .input.day }}", "error: template: index .steps .input.day is null or missing; give a value"},
		{"{{ printf `%c` 0 }}", "error: the rendered text has a character that is not allowed here"},
		{"{{ .input.long }}", "error: template: the text is longer than 16777216 bytes"},
	} {
		t.Run(c.template, func(t *testing.T) {
			q, _ := json.Marshal(c.template)
			w := load(t, "    steps:\n      - {id: fetch, run: [x]}\n      - {id: re-fetch, run: [x]}\n      - {id: send, run: [x]}\n"+
				"      - {id: a, needs: [fetch, re-fetch], run: [x, "+string(q)+"]}\n")
			d := data(nil)
			if strings.Contains(c.template, ".long") {
				d.Input.(map[string]any)["long"] = strings.Repeat("x", 16<<20+1)
			}
			argv, err := stepOf(w, "a").Argv(d)
			got := fmt.Sprint(err)
			if err == nil {
				got = argv[1]
			}
			part, failing := strings.CutPrefix(c.want, "error: ")
			if failing && (err == nil || !strings.Contains(got, part)) || !failing && got != c.want {
				t.Errorf("%s = %s, want %s", c.template, got, c.want)
			}
		})
	}
}

func TestAReferenceThatLeadsNowhereIsNamedAsItIsWritten(t *testing.T) {
	w := load(t, "    steps:\n      - {id: a, run: [x], env: {A: \"a\\n${env:HOOK}\"}}\n")
	_, err := stepOf(w, "a").Env(steps.Data{Secrets: secret.Resolver{LookupEnv: func(string) (string, bool) { return "", false }}})
	if want := `step "a": env.A: template: line 2: ${env:HOOK}: the variable HOOK is not set`; fmt.Sprint(err) != want {
		t.Errorf("Env: %v, want %s", err, want)
	}
}

func TestInputs(t *testing.T) {
	cfg := full(t)
	w := cfg.Workflows["nightly-report"]
	late := data(nil)
	late.Run.Started = time.Date(2026, 10, 3, 23, 0, 0, 0, time.UTC) // the next day in Berlin
	scheduled := data(nil)
	scheduled.Schedule = time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		d     steps.Data
		given any
		want  string
	}{
		{"by default", data(nil), nil, `{"day":"2026-10-03","limit":1000000,"nothing":null,"tags":["a","b"],"verbose":false}`},
		{"in the schedule's zone", late, nil, `{"day":"2026-10-04","limit":1000000,"nothing":null,"tags":["a","b"],"verbose":false}`},
		{"of a scheduled run", scheduled, nil, `{"day":"2026-03-01","limit":1000000,"nothing":null,"tags":["a","b"],"verbose":false}`},
		{"overridden by keys", data(nil), map[string]any{"day": "x", "new": 1}, `{"day":"x","limit":1000000,"new":1,"nothing":null,"tags":["a","b"],"verbose":false}`},
		{"replaced", data(nil), []any{1}, `[1]`},
	} {
		got, err := w.Input(c.d, c.given)
		if j, _ := json.Marshal(got); err != nil || string(j) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.name, j, err, c.want)
		}
	}
	if got, err := cfg.Workflows["by-hand"].Input(data(nil), nil); got != nil || err != nil {
		t.Errorf("no input: %v, %v", got, err)
	}
}

func TestWhatIsRenderedIsNotReadAgain(t *testing.T) {
	env := append(slices.Clone(environ), "TRICKY={{ .run.id }}${env:HOOK}")
	cfg, err := config.Load(config.Source{Path: "testdata/x.yaml", Environ: env, Data: []byte(
		"version: 1\nworkflows: {w: {steps: [{id: a, run: [x, '{{ .input.x }}'], env: {A: '${env:TRICKY}', B: '{{ .input.x }}'}}]}}\n")})
	if err != nil {
		t.Fatal(err)
	}
	d := steps.Data{Input: map[string]any{"x": "${file:/etc/passwd}{{ .run.id }}"}, Secrets: cfg.Secrets()}
	want := `["x" "${file:/etc/passwd}{{ .run.id }}"] A={{ .run.id }}${env:HOOK} B=${file:/etc/passwd}{{ .run.id }}`
	if got := shown(t, cfg.Workflows["w"].Steps[0], d); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAValueThatEndsAHeaderIsRefused(t *testing.T) {
	w := load(t, `    steps: [{id: a, http: {get: "https://{{ .input.host }}/", headers: {X-A: "{{ .input.a }}"}}}]`)
	for input, want := range map[string]string{
		"host=h,a=b":           "GET https://h/\nX-A: b\n",
		"host=h,a=b\r\nX-B: c": `error: step "a": http.headers.X-A: the rendered text has a character that is not allowed here, such as a NUL byte or a line break`,
		"host=,a=b":            `error: step "a": http.get: the value of "https://{{ .input.host }}/" is a URL without a host`,
		"host=a b,a=b":         `error: step "a": http.get: the value of "https://{{ .input.host }}/" is not a URL`,
		"host=other,a=b":       `error: step "a": http.get: the value of "https://{{ .input.host }}/": ` + template.ErrOtherHost.Error(),
	} {
		host, a, _ := strings.Cut(strings.TrimPrefix(input, "host="), ",a=")
		if got := shown(t, w.Steps[0], steps.Data{Input: map[string]any{"host": host, "a": a}, AllowHosts: hosts.New([]string{"h"})}); got != want {
			t.Errorf("%q: %s, want %s", input, got, want)
		}
	}
}

func TestStoredStepsRenderTheSame(t *testing.T) {
	cfg := full(t)
	for _, name := range cfg.WorkflowNames() {
		w := cfg.Workflows[name]
		for _, s := range append(slices.Clone(w.Steps), w.OnGiveUp) {
			if s == nil {
				continue
			}
			stored, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(stored), "PLANTED") {
				t.Errorf("%s: a secret is stored: %s", s.ID, stored)
			}
			again := new(steps.Step)
			if err := json.Unmarshal(stored, again); err != nil {
				t.Fatal(err)
			}
			if second, err := json.Marshal(again); err != nil || string(second) != string(stored) {
				t.Errorf("%s: stored as\n%s\nand again as\n%s, %v", s.ID, stored, second, err)
			}
			if got, want := shown(t, again, data(cfg)), shown(t, s, data(cfg)); got != want {
				t.Errorf("%s: renders\n%s\nwant\n%s", s.ID, got, want)
			}
			if again.Policy != s.Policy || again.Retryable(64) != s.Retryable(64) || again.Expected(201) != s.Expected(201) || again.Dir != s.Dir {
				t.Errorf("%s: came back as %+v", s.ID, again)
			}
		}
	}
	for _, bad := range []string{`{}`, `{"id":"a","new":1}`, `{"id":"a","run":["{{"],"policy":"fixed(1s)"}`, `{"id":"a","run":["${env:X}"],"policy":"fixed(1s)"}`, `[]`, `{"id":"a","run":["x"],"method":"GET","url":"https://x","policy":"fixed(1s)"}`} {
		if err := new(steps.Step).UnmarshalJSON([]byte(bad)); err == nil {
			t.Errorf("UnmarshalJSON(%s) returned no error", bad)
		}
	}
}

func TestAStoredEmptyListIsNotAnAbsentOne(t *testing.T) {
	w := load(t, `    steps: [{id: a, run: [x], retry-exit: []}]`)
	stored, _ := json.Marshal(w.Steps[0])
	again := new(steps.Step)
	if err := json.Unmarshal(stored, again); err != nil {
		t.Fatal(err)
	}
	if w.Steps[0].Retryable(1) || again.Retryable(1) {
		t.Error("a step with an empty retry-exit is retried")
	}
}

type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

func TestSecretsAreNowhere(t *testing.T) {
	cfg := full(t)
	red := new(secret.Redactor)
	res := cfg.Secrets()
	res.Redactor = red
	d := data(cfg)
	d.Secrets = res
	stored, err := json.Marshal(cfg.Workflows)
	if err != nil {
		t.Fatal(err)
	}
	env, err := stepOf(cfg.Workflows["nightly-report"], "fetch").Env(d)
	if err != nil {
		t.Fatal(err)
	}
	req, err := stepOf(cfg.Workflows["nightly-report"], "send").Request(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	envJSON, _ := json.Marshal(env)
	resp, doErr := (&http.Client{Transport: refusing{}}).Do(req.Clone(t.Context()))
	if doErr == nil {
		resp.Body.Close()
		t.Fatal("the request was sent")
	}
	for what, text := range map[string]string{
		"%v": fmt.Sprint(cfg.Workflows, cfg.Server, cfg.Values(), cfg.Server.Token), "%+v": fmt.Sprintf("%+v %+v", cfg.Server, cfg.Workflows["by-hand"].OnGiveUp),
		"%#v": fmt.Sprintf("%#v %#v", cfg.Server, cfg.Workflows["by-hand"].OnGiveUp), "values": fmt.Sprintf("%+q", cfg.Values()),
		"JSON": string(stored), "variables": fmt.Sprintf("%v %+v %#v %s", env, env, env, envJSON), "schema": string(config.Schema()),
		"request, redacted": red.String(fmt.Sprintf("%v %v %v", req.URL, req.Header, doErr)),
	} {
		if strings.Contains(text, "PLANTED") {
			t.Errorf("%s has a secret: %s", what, text)
		}
	}
}

func TestAReferenceThatHasGoneIsAnError(t *testing.T) {
	w := load(t, `    steps: [{id: a, run: [x], env: {TOKEN: "${env:HOOK}"}}]`)
	d := steps.Data{Secrets: secret.Resolver{LookupEnv: func(string) (string, bool) { return "", false }}}
	if _, err := w.Steps[0].Env(d); err == nil || !strings.Contains(err.Error(), `step "a": env.TOKEN:`) || !strings.Contains(err.Error(), "the variable HOOK is not set") {
		t.Errorf("Env = %v", err)
	}
}
