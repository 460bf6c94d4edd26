package config_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/secret"
)

// specs returns the providers by name, with their secrets.
func specs(t *testing.T, cfg *config.Config) map[string]gateway.Spec {
	t.Helper()
	list, err := cfg.ProviderSpecs()
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]gateway.Spec{}
	for _, s := range list {
		m[s.Name] = s
	}
	return m
}

func keysOf(s gateway.Spec) (list []string) {
	for _, k := range s.Keys {
		list = append(list, k.Name+"="+k.Value.Reveal())
	}
	return list
}

func TestProvidersAreReadAsTheyAreMeant(t *testing.T) {
	cfg := full(t)
	s := specs(t, cfg)
	main, backup, local, search, openai := s["anthropic"], s["anthropic-backup"], s["local"], s["search"], s["openai"]
	var headers []string
	for _, h := range main.Headers {
		headers = append(headers, h.Name+": "+h.Value.Reveal())
	}
	for _, c := range []struct{ what, got, want string }{
		{"names", fmt.Sprint(cfg.ProviderNames()), "[anthropic anthropic-backup local search openai]"},
		{"presets", fmt.Sprintln(main.Preset, local.Preset, search.Preset, openai.Preset), "anthropic anthropic generic openai\n"},
		{"base URLs", fmt.Sprint(main.BaseURL, backup.BaseURL, local.BaseURL, search.BaseURL), "https://api.anthropic.com https://backup.example.com/anthropic http://127.0.0.1:8080 https://search.example.com/api/"},
		{"HTTP/2 without TLS", fmt.Sprint(main.H2C, local.H2C), "false true"},
		{"formats", fmt.Sprintln(main.Format, backup.Format, search.Format), "anthropic anthropic my-search\n"},
		{"keys", fmt.Sprint(keysOf(main)), "[key-1=provider-PLANTED-5 work=token-from-the-file-PLANTED key-3=fetch-PLANTED-1]"},
		{"one key", fmt.Sprint(keysOf(backup)), "[key-1=spare-PLANTED-6]"},
		{"no keys", fmt.Sprint(keysOf(openai), openai.Keyless, keysOf(local), local.Keyless), "[] false [] true"},
		{"what the preset fills in", fmt.Sprint(openai.BaseURL, " ", openai.AuthHeader, " ", openai.RetryPosts), "https://api.openai.com Authorization answered"},
		{"where a key goes", search.AuthHeader + " " + search.AuthScheme, "X-Key Token"},
		{"policy", main.Policy.String(), cfg.Policies["api"].String()},
		{"policy as a map", backup.Policy.String(), "exponential(1s..10s) factor=2 max-doublings=9 jitter=full attempts=3 attempt-timeout=1m total-timeout=5m throttle-base=2s server-wait=1m server-slack=1s"},
		{"posts", main.RetryPosts, gateway.PostsAnswered},
		{"repeatable", fmt.Sprint(main.Repeatable), "[{POST /v1/search} {POST /v1/embeddings/}]"},
		{"idempotency keys", fmt.Sprint(main.IdempotencyKeys, backup.IdempotencyKeys), "true false"},
		{"headers", strings.Join(headers, ", "), "X-Team: blue, X-Trace: trace hook-PLANTED-2"},
		{"rate", fmt.Sprint(main.Rate, main.Burst, main.Concurrent, main.Queue, main.Adaptive), "50/min 5 8 200 true"},
		{"priority", fmt.Sprint(main.Priority, backup.Priority), "high normal"},
		{"breaker in a window", fmt.Sprint(main.Breaker.FailureRate, main.Breaker.Window, main.Breaker.WindowCalls, main.Breaker.MinCalls, main.Breaker.ConsecutiveFailures), "0.5 10s 0 20 5"},
		{"slow calls", fmt.Sprint(main.Breaker.SlowCall, main.Breaker.SlowRate), "20s 0.125"},
		{"open for", fmt.Sprint(main.OpenFor, backup.OpenFor), "30s 0s"},
		{"breaker of the last calls", fmt.Sprint(backup.Breaker.Window, backup.Breaker.WindowCalls, backup.Breaker.ConsecutiveFailures), "0s 50 5"},
		{"fallback", fmt.Sprint(main.Fallback, main.FallbackAfter, len(backup.Fallback)), "[anthropic-backup local] 2 0"},
		{"stream", fmt.Sprint(main.StreamHold, main.StreamIdle), "10s 5m0s"},
		{"largest body", fmt.Sprint(main.MaxBody), "67108864"},
		{"gateway", fmt.Sprint(cfg.Gateway.Token, cfg.Gateway.Listen), "${env:PROVIDER_KEY}127.0.0.1:7879"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
}

func TestASpecBelongsToWhoeverAskedForIt(t *testing.T) {
	cfg := full(t)
	first := specs(t, cfg)["anthropic"]
	first.BaseURL.Host, first.Fallback[0], first.Repeatable[0].Path, first.Keys[0].Name = "other", "other", "/other", "other"
	again := specs(t, cfg)["anthropic"]
	if again.BaseURL.Host == "other" || again.Fallback[0] == "other" || again.Repeatable[0].Path == "/other" || again.Keys[0].Name == "other" {
		t.Errorf("a change of one spec is in the next: %+v", again)
	}
}

// TestSecretsOfProvidersStayWhereTheyAre checks that no printed form of a configuration
// contains the secrets of its providers, and that the redactor masks them.
func TestSecretsOfProvidersStayWhereTheyAre(t *testing.T) {
	redactor := new(secret.Redactor)
	cfg, err := config.Load(config.Source{Path: "testdata/full.yaml", Environ: environ, Redactor: redactor})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range cfg.Values() {
		if strings.Contains(v.Text, "PLANTED") {
			t.Errorf("%s is shown as %q", v.Path, v.Text)
		}
	}
	list, err := cfg.ProviderSpecs()
	if err != nil {
		t.Fatal(err)
	}
	asJSON, _ := json.Marshal(list)
	for _, text := range []string{fmt.Sprintf("%+v %#v", list, list), string(asJSON), fmt.Sprintf("%+v", cfg.Providers["anthropic"])} {
		if strings.Contains(text, "PLANTED") {
			t.Errorf("a secret is in %s", text)
		}
	}
	for _, s := range list {
		for _, k := range s.Keys {
			if got := redactor.String("the key " + k.Value.Reveal()); got != "the key ***" {
				t.Errorf("the redactor leaves %q", got)
			}
		}
	}
}

// TestResolveSaysWhatIsMissing removes a key after the configuration was loaded.
func TestResolveSaysWhatIsMissing(t *testing.T) {
	cfg := full(t)
	gone := secret.Resolver{LookupEnv: func(name string) (string, bool) {
		return "two\nlines-PLANTED", name == "HOOK"
	}}
	_, err := cfg.Providers["anthropic"].Resolve(gone)
	for _, want := range []string{
		`provider "anthropic": auth: key-1: template: ${env:PROVIDER_KEY}: the variable PROVIDER_KEY is not set`,
		`provider "anthropic": auth: key-3: `,
		`provider "anthropic": headers: X-Trace: the value of "trace ${env:HOOK}" can't be sent in a header`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Resolve = %v, want %q in it", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "PLANTED") {
		t.Errorf("the error has a secret: %v", err)
	}
}

func TestOriginsOfProviders(t *testing.T) {
	const file = "testdata/full.yaml:"
	got := origins(t, config.Source{Path: "testdata/full.yaml", Environ: environ})
	for _, c := range []struct{ path, text, origin string }{
		{"gateway.token", "${env:PROVIDER_KEY}", file},
		{"gateway.listen", "127.0.0.1:7879", file},
		{"providers.anthropic.auth[0]", "${env:PROVIDER_KEY}", file},
		{"providers.anthropic.auth[1].name", "work", file},
		{"providers.anthropic.auth[1].key", "${file:./token}", file},
		{"providers.anthropic.headers.X-Trace", "trace ${env:HOOK}", file},
		{"providers.anthropic.repeatable", "POST /v1/search,POST /v1/embeddings/", file},
		{"providers.anthropic.rate.requests", "50/min", file},
		{"providers.anthropic.breaker.of-last", "20", file},
		{"providers.anthropic.fallback", "anthropic-backup,local", file},
		{"providers.anthropic.format", "anthropic", "default"},
		{"providers.anthropic.auth-header", "X-Api-Key", "default"},
		{"providers.local.auth", "none", file},
		{"providers.search.preset", "generic", "default"},
		{"providers.search.retry-posts", "never", "default"},
		{"providers.openai.preset", "openai", "default"},
		{"providers.openai.base-url", "https://api.openai.com", "default"},
		{"providers.openai.rate.queue", "1000", "default"},
		{"providers.openai.priority", "normal", "default"},
		{"providers.openai.breaker.failures", "50%", "default"},
		{"providers.openai.breaker.window", "10s", "default"},
		{"providers.openai.breaker.consecutive", "5", "default"},
		{"providers.openai.stream.hold", "10s", "default"},
		{"providers.openai.max-body", "64MiB", "default"},
		{"workflows.by-hand.steps[1].http.provider", "anthropic", file},
		{"workflows.by-hand.steps[1].http.post", "/v1/messages?trace={{ .run.id }}", file},
	} {
		if want := c.text + " from " + c.origin; !strings.HasPrefix(got[c.path], want) {
			t.Errorf("%s = %s, want %s", c.path, got[c.path], want)
		}
	}
	for _, path := range []string{"providers.openai.auth-scheme", "providers.openai.fallback-after", "providers.local.auth-header", "providers.anthropic-backup.breaker.window"} {
		if text, ok := got[path]; ok {
			t.Errorf("%s = %s, which is not in effect", path, text)
		}
	}
}

func TestAStepOfAProvider(t *testing.T) {
	cfg := full(t)
	ask := stepOf(cfg.Workflows["by-hand"], "ask")
	d := steps.Data{Run: steps.RunInfo{ID: "r1"}, Steps: map[string]steps.StepResult{"only": {Stdout: "a"}}, Secrets: cfg.Secrets()}
	stored, err := json.Marshal(ask)
	if err != nil {
		t.Fatal(err)
	}
	again := new(steps.Step)
	if err := json.Unmarshal(stored, again); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*steps.Step{ask, again} {
		req, err := s.Request(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(req.Body)
		if got := fmt.Sprint(s.Provider, " ", req.Method, " ", req.URL, " ", req.URL.Host, req.Host, " ", string(body)); got != `anthropic POST /v1/messages?trace=r1  "a"` {
			t.Errorf("the step is %s", got)
		}
	}
	if s := stepOf(cfg.Workflows["nightly-report"], "a-get"); s.Provider != "" {
		t.Errorf("a step without provider has %q", s.Provider)
	}
}

// TestAPathStaysBelowItsProvider renders templates to paths that would leave the base URL
// of the provider.
func TestAPathStaysBelowItsProvider(t *testing.T) {
	text := "version: 1\nproviders: {openai: {auth: '${env:HOOK}'}}\nworkflows: {w: {steps: [{id: a, http: {provider: openai, get: '/{{ .input.x }}'}}]}}\n"
	cfg, err := config.Load(config.Source{Path: "/etc/tideover.yaml", Data: []byte(text), Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	for x, want := range map[string]string{ // the URL, or a part of the error
		"v1":            "/v1",
		"v1/models?a=b": "/v1%2Fmodels%3Fa=b",
		"a..b/c":        "/a..b%2Fc",
		"":              "/",
		"/evil.example": "/%2Fevil.example",
		"v1/%2e%2e/x":   "/v1%2F%252e%252e%2Fx",
		"v1/%zz":        "/v1%2F%25zz",
		"..":            "could lead to another path",
		"../x":          "could lead to another path",
		"v1/..":         "could lead to another path",
		`v1\..\x`:       "could lead to another path",
	} {
		req, err := stepOf(cfg.Workflows["w"], "a").Request(t.Context(), steps.Data{Input: map[string]any{"x": x}})
		switch {
		case err == nil && req.URL.String() == want:
		case err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"/{{ .input.x }}"`):
			t.Errorf("%q: %v, %v, want %q", x, req, err, want)
		}
	}
}

func TestHTTPIsForThisMachineOrWithoutSecrets(t *testing.T) {
	for text, good := range map[string]bool{
		"base-url: 'http://127.0.0.1:1', auth: '${env:HOOK}'":                                              true,
		"base-url: 'http://localhost:1', auth: '${env:HOOK}'":                                              true,
		"base-url: 'http://[::1]:1', headers: {A: '${env:HOOK}'}":                                          true,
		"base-url: 'http://a.example', auth: none":                                                         true,
		"base-url: 'http://a.example', auth: none, headers: {A: b}":                                        true,
		"base-url: 'http://a.example', headers: {A: b}":                                                    false, // clients send their own keys
		"base-url: 'http://a.example', plain-http: true":                                                   true,
		"base-url: 'http://a.example', plain-http: false":                                                  false,
		"base-url: 'http://a.example', plain-http: true, auth: '${env:HOOK}', headers: {A: '${env:HOOK}'}": true,
		"base-url: 'http://a.example'":                                                                     false,
		"base-url: 'http://127.0.0.1'":                                                                     true,
		"base-url: 'https://a.example'":                                                                    true,
		"base-url: 'http://a.example', auth: '${env:HOOK}'":                                                false,
		"base-url: 'http://a.example', headers: {A: '${env:HOOK}'}":                                        false,
		"base-url: 'http://localhost.example', auth: '${env:HOOK}'":                                        false,
		"base-url: 'http://0.0.0.0', auth: '${env:HOOK}'":                                                  false,
		"base-url: 'http://127.0.0.1.example', auth: '${env:HOOK}'":                                        false,
		"base-url: 'https://a.example', headers: {A: '${env:HOOK}'}":                                       true,
		"base-url: 'HTTP://a.example', auth: ['${env:SPARE_KEY}']":                                         false,
		"base-url: 'https://a.example:8443/x/', auth: '${env:HOOK}'":                                       true,
		"base-url: 'http://user@127.0.0.1', auth: '${env:HOOK}'":                                           false,
		"base-url: 'http://127.0.0.1?x', auth: '${env:HOOK}'":                                              false,
		"base-url: 'http://[::ffff:127.0.0.1]', auth: '${env:HOOK}'":                                       true,
		"base-url: 'http://[fe80::1%25eth0]:80', auth: '${env:HOOK}'":                                      false,
	} {
		data := []byte("version: 1\nproviders: {p: {" + text + "}}\n")
		if _, err := config.Load(config.Source{Path: "/etc/tideover.yaml", Data: data, Environ: environ}); (err == nil) != good {
			t.Errorf("%s: %v, want good: %v", text, err, good)
		}
	}
}

func TestAProviderAlwaysHasABudget(t *testing.T) {
	for policy, good := range map[string]bool{
		"http": true,
		"'http attempts=4 budget=bucket(1000000,1)'":             true,
		"http attempts=4 budget=none":                            false,
		"spender":                                                false,
		"spender attempts=3":                                     false,
		"spender attempts=3 budget=ratio(0.2)":                   true,
		"{kind: fixed, base: 1s, attempts: 2, budget: none}":     false,
		"{kind: fixed, base: 1s, attempts: 2, budget: ratio(1)}": true,
	} {
		data := []byte("version: 1\npolicies: {spender: http attempts=6 budget=none}\nproviders: {p: {base-url: 'http://127.0.0.1', policy: " + policy + "}}\n")
		_, err := config.Load(config.Source{Path: "/etc/tideover.yaml", Data: data})
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "leave it out for the default, refund(14,1,500,5)") {
			t.Errorf("%s: %v, want good: %v", policy, err, good)
		}
	}
}

// TestAFallbackOfAnotherFormatNamesItsLine checks a statement of the documentation: the
// error about a fallback with another format names the line.
func TestAFallbackOfAnotherFormatNamesItsLine(t *testing.T) {
	text := `version: 1
providers:
  anthropic:
    auth: ${env:HOOK}
    fallback:
      - anthropic-backup
      - openai
  anthropic-backup: {preset: anthropic, base-url: https://b.example, auth: "${env:SPARE_KEY}"}
  openai: {auth: "${env:SPARE_KEY}"}
`
	_, err := config.Load(config.Source{Path: "tideover.yaml", Data: []byte(text), Environ: environ})
	problems, ok := err.(strictyaml.FieldErrors)
	if !ok || len(problems) != 1 || problems[0].Line != 7 || problems[0].Path != "providers.anthropic.fallback[1]" {
		t.Fatalf("Check = %v", err)
	}
	for _, want := range []string{`"anthropic"`, `"openai"`, "formats are not translated"} {
		if !strings.Contains(problems[0].Message, want) {
			t.Errorf("%q has no %s", problems[0].Message, want)
		}
	}
}

func TestProvidersMayTakeOverFromEachOther(t *testing.T) {
	text := "version: 1\nproviders:\n  a: {base-url: 'https://a.example', format: x, auth: none, fallback: [b]}\n  b: {base-url: 'https://b.example', format: x, auth: '${env:HOOK}', fallback: [a]}\n"
	cfg, err := config.Load(config.Source{Path: "tideover.yaml", Data: []byte(text), Environ: environ})
	if err != nil || !slices.Equal(cfg.Providers["b"].Fallback, []string{"a"}) {
		t.Errorf("Load = %v", err)
	}
}

func TestSectionsOfTheGatewayMayBeEmpty(t *testing.T) {
	for _, text := range []string{"", "providers:\n", "providers: {}\n", "gateway:\n", "gateway: {}\n"} {
		cfg, err := config.Load(config.Source{Path: "x.yaml", Data: []byte("version: 1\n" + text), Environ: environ})
		if err != nil || len(cfg.Providers) != 0 || cfg.Gateway.Token != nil || cfg.Gateway.Listen != "127.0.0.1:7878" {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if list, err := cfg.ProviderSpecs(); err != nil || len(list) != 0 {
			t.Errorf("%q: ProviderSpecs = %v, %v", text, list, err)
		}
	}
}

// TestAChangeOfAProviderIsSeen watches a file in which only a provider changes.
func TestAChangeOfAProviderIsSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tideover.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("version: 1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("providers: {openai: {rate: {requests: 50/min}}}\n")
	src := config.Source{Path: path, Environ: environ}
	cfg, err := config.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan watched, 1)
		done := make(chan error)
		go func() {
			done <- config.NewWatcher(src, cfg).Run(ctx, func(c *config.Config, err error) error { got <- watched{c, err}; return err })
		}()
		for _, step := range []struct{ text, want string }{
			{"providers: {openai: {rate: {requests: 60/min}}}\n", "60/min 127.0.0.1:7878 <nil>"},
			{"providers: {openai: {rate: {requests: 60/min}}}\ngateway: {listen: '127.0.0.1:1'}\n", "60/min 127.0.0.1:1 <nil>"},
			{"providers: {openai: {rate: {requests: 60/min}, fallback: [other]}}\n", `unknown provider "other"`},
		} {
			write(step.text)
			g := <-got
			text := fmt.Sprint(g.err)
			if g.err == nil {
				text = fmt.Sprint(g.cfg.Providers["openai"].Rate, " ", g.cfg.Gateway.Listen, " ", g.err)
			}
			if !strings.Contains(text, step.want) {
				t.Errorf("after %q: %s, want %s", step.text, text, step.want)
			}
		}
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("Watch = %v", err)
		}
	})
}
