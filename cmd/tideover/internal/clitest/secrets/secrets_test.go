//go:build unix

package secrets_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// The test plants secrets in every place that can hold one: in the configuration and the files that
// it refers to, in addresses, headers and variables. All programs that the server runs and all
// servers that it calls repeat them, in every spelling and with every kind of failure. Then the
// test looks for them in everything that is shown, sent or stored.
func TestSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	w, relay := newLeakyPeer(t), nostrtest.New(t)
	p := newPlantedSecrets(strings.TrimPrefix(w.URL, "http://"))
	w.spill, w.plain = strings.Split(strings.TrimSpace(p.allSpellings()), "\n"), slices.Collect(maps.Values(p))
	v := &fullServer{secretServer: secretServer{t: t, dir: clitest.ShortDir(t), env: p.env(), marks: p.marks(t), token: p["SERVER_TOKEN"]}, plants: p, world: w, relay: relay}
	for _, name := range []string{"key-b", "mail", "step"} {
		clitest.WriteFile(t, filepath.Join(v.dir, name), p[name]+"\n")
	}
	clitest.WriteFile(t, filepath.Join(v.dir, "spilled"), p.allSpellings())
	clitest.WriteFile(t, filepath.Join(v.dir, "said"), p.oneSpelling())
	v.s = clitest.BeginServeWith(t, []string{"--log-level", "debug", "--log-json"}, v.file(), v.dir, v.env...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server said:\n%.20000s", v.s.Log.String())
		}
	})
	v.s.AwaitReady()
	v.runEverything()
	v.checkAllOutputs()
	v.loadBadFiles()
	v.s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, v.s.End(), 0)
	v.wantRedacted("the log", v.s.Log.String())
	v.wantRedacted("spans", strings.Join(w.received("spans"), "\n"))
	v.files(v.s.Data)
	v.files(filepath.Join(v.dir, "backup"))

	v.s = clitest.BeginServeWith(t, []string{"--log-level", "debug"}, v.file(), v.dir, v.env...)
	v.s.AwaitReady()
	v.pages("/runs", "/dead", "/overview", "/notifications", "/metrics", "/api/v1/events?after=0&follow=false")
	v.tryWrongTokens()
	v.s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, v.s.End(), 0)
	v.wantNoSecret("the log of another start", v.s.Log.String())
	v.files(v.s.Data)
}

// fullServer is a server with every kind of section in its configuration.
type fullServer struct {
	secretServer
	plants plantedSecrets
	world  *leakyPeer
	relay  *nostrtest.Relay
}

// runEverything starts all work and waits until it is over.
func (v *fullServer) runEverything() {
	v.t.Helper()
	for name := range v.workflows() {
		v.start(name)
	}
	v.start("alarmed")
	v.start("tells")
	v.callGateway()
	testwait.Until(v.t, "the relay is subscribed to", func() bool { return v.relay.Connections() > 0 })
	customer := clitest.NewCustomer(v.t)
	job := customer.Event(5900, "do it", nostr.Tag{"p", clitest.NostrKey(v.t, v.plants["DVM_KEY"]).PublicKey()})
	v.relay.Inject(job)
	v.relay.Await(v.t, func(all []*nostr.Event) bool { return len(clitest.Results(clitest.AnswersTo(all, job))) > 0 })
	events, err := json.Marshal(clitest.AnswersTo(v.relay.Events(), job))
	if err != nil {
		v.t.Fatal(err)
	}
	v.wantRedacted("answers to a job", string(events))
	testwait.Until(v.t, "all runs are over", v.isIdle)
	v.checkMessages()
}

// isIdle reports whether all runs have ended and lists are up to date.
func (v *fullServer) isIdle() bool {
	v.t.Helper()
	var s admin.Status
	if text := v.pages("/api/v1/status"); json.Unmarshal([]byte(text), &s) != nil {
		v.t.Fatalf("status: %s", text)
	}
	open := s.ViewBehind
	for _, w := range s.Workflows {
		for state, n := range w.States {
			if state != "dead" {
				open += n
			}
		}
	}
	return open == 0
}

// checkMessages checks that the messages of all notifiers are redacted.
func (v *fullServer) checkMessages() {
	v.t.Helper()
	for _, where := range []string{"ntfy", "slack", "hook", "lost", "mail"} {
		told := strings.Join(v.world.received(where), "\n")
		v.wantRedacted("messages by "+where, strings.ReplaceAll(told, v.plants["HOOK_BODY"], "its own")) // hook is configured to send this secret
	}
	v.wantRedacted("messages by script", v.s.AwaitSign("told"))
	testwait.Until(v.t, "spans are sent", func() bool { return len(v.world.received("spans")) > 1 })
}

// start starts a run of the workflow through the API.
func (v *fullServer) start(workflow string) {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), "POST", v.s.Address()+"api/v1/runs", strings.NewReader(fmt.Sprintf(`{"workflow": %q}`, workflow)))
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+v.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		v.t.Fatalf("start %s: %s", workflow, resp.Status)
	}
}

// list returns the runs that match the query of the API.
func (v *fullServer) list(query string) []engine.Info {
	v.t.Helper()
	var page engine.Page
	if text := v.pages("/api/v1/runs?limit=500&" + query); json.Unmarshal([]byte(text), &page) != nil {
		v.t.Fatalf("runs: %s", text)
	}
	return page.Runs
}

// callGateway sends requests through the gateway that fail in every way, with the gateway's keys
// and with those of a client. It checks the gateway's own errors, not the answers of providers that
// it passes through.
func (v *fullServer) callGateway() {
	v.t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	for _, mode := range modes {
		for _, path := range []string{"p/up/v1/" + v.plants["WORD"], "p/open/v1/x", "p/gone/v1/x"} {
			all.Go(func() { v.call(path, mode) })
		}
	}
}

// call sends one request through the gateway. mode selects how the provider fails.
func (v *fullServer) call(path, mode string) {
	const own = "c" + planted + "aller"
	req, err := http.NewRequestWithContext(v.t.Context(), "POST", v.s.Address()+path+"?mode="+mode+"&key="+own, strings.NewReader("x"))
	if err != nil {
		v.t.Error(err)
		return
	}
	for name, value := range map[string]string{
		"X-Tideover-Token": v.plants["GATE_TOKEN"], "Authorization": "Bearer " + own, "Cookie": "session=" + own, "X-Api-Key": own, "X-Request-Timeout-Ms": "5000",
	} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return // the provider has cut off its answer, so the gateway has, too
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); strings.Contains(string(text), "tideover_error") {
		v.wantNoSecret(fmt.Sprintf("our answer to %s %s", path, mode), string(text))
	}
}

// tryWrongTokens sends requests with invalid credentials.
func (v *fullServer) tryWrongTokens() {
	v.t.Helper()
	wrong := v.plants["SERVER_TOKEN"] + "x"
	for _, path := range []string{"api/v1/status", "api/v1/status?token=" + planted, "runs?token=" + planted, "metrics?token=" + planted, "p/up/x?token=" + planted, "nothing?token=" + planted} {
		for _, header := range [][]string{nil, {"Authorization", "Bearer " + wrong}, {"Authorization", "Basic " + planted}, {"X-Tideover-Token", wrong}, {"Cookie", "tideover=" + wrong}} {
			status, _, text := clitest.SendRequest(v.t, "GET", v.s.Address()+path, header...)
			if status < 400 {
				v.t.Errorf("GET %s with %q: %d", path, header, status)
			}
			v.wantNoSecret("what is said to a stranger", text)
		}
	}
}

// loadBadFiles makes the server load invalid configurations that contain secrets in plain text.
func (v *fullServer) loadBadFiles() {
	v.t.Helper()
	literal := "hunter" + planted
	for i, text := range []string{
		"version: 1\nproviders: {up: {auth: " + literal + "}}\n",
		"version: 1\nproviders: {up: {base-url: \"https://me:" + literal + "@example.com\"}}\n",
		"version: 1\nserver: {token: " + literal + "}\n",
		"version: 1\nnotify: {a: {slack: \"https://hooks.slack.com/services/T0/B0/" + literal + "\"}}\n",
		"version: 1\nnotify: {a: {email: {password: [" + literal + "\n",
		"version: 1\nworkflows: {w: {steps: [{id: a, run: [x], env: {API_TOKEN: " + literal + "}}]}}\n",
		"version: 1\nworkflows: {w: {steps: [{id: a, http: {get: \"http://example.com/?api_key=" + literal + "\"}}]}}\n",
		"version: 1\ntracing: {endpoint: \"http://me:" + literal + "@example.com\", headers: {Authorization: Bearer " + literal + "}}\n",
		"version: 1\nnip90: {key: " + literal + "}\n",
	} {
		clitest.WriteFile(v.t, v.s.File, text)
		before := strings.Count(v.s.Log.String(), "the configuration was not reloaded")
		v.s.Signal(syscall.SIGHUP)
		testwait.Until(v.t, fmt.Sprintf("file %d is refused", i), func() bool { return strings.Count(v.s.Log.String(), "the configuration was not reloaded") > before })
		v.pages("/health", "/overview")
		bad := filepath.Join(v.dir, "bad.yaml")
		clitest.WriteFile(v.t, bad, text)
		clitest.WantCode(v.t, v.run("config", "check", bad), 1)
	}
	v.run("serve", "--config", filepath.Join(v.dir, "bad.yaml"), "--data", filepath.Join(v.dir, "other"))
	clitest.WriteFile(v.t, v.s.File, v.file())
}
