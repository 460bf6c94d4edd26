//go:build unix

package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
)

// keyedProvider is a provider that records the key of each request.
type keyedProvider struct {
	*httptest.Server
	mu     sync.Mutex
	answer http.HandlerFunc
	keys   []string
}

func newKeyedProvider(t *testing.T, answer http.HandlerFunc) *keyedProvider {
	t.Helper()
	p := &keyedProvider{answer: answer}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		answer := p.answer
		p.keys = append(p.keys, r.Header.Get("X-Api-Key"))
		p.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// setAnswer changes the answer of the provider.
func (p *keyedProvider) setAnswer(answer http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

// seenKeys returns the keys of all requests so far.
func (p *keyedProvider) seenKeys() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.keys...)
}

func replies(text string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		fmt.Fprint(w, text)
	}
}

// refuses returns a handler that answers 429 with the headers, which are pairs of name and value.
func refuses(headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"type":"error","error":{"type":"rate_limit_error","message":"no more"}}`)
	}
}

// post sends a request for a model to a provider of the server.
func post(s *clitest.Server, provider, model string) (code int, text string) {
	s.T.Helper()
	body := strings.NewReader(`{"model":"` + model + `","messages":[]}`)
	req, err := http.NewRequestWithContext(s.T.Context(), http.MethodPost, s.Address()+"p/"+provider+"/v1/messages", body)
	if err != nil {
		s.T.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.T.Fatal(err)
	}
	defer resp.Body.Close()
	read, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(read)
}

// sessionOf returns the status of a session.
func sessionOf(s *clitest.Server, name string) (st session.Status) {
	s.T.Helper()
	o := s.RunCommand("sessions", "show", name, "--json")
	if err := json.Unmarshal([]byte(o.Out), &st); err != nil {
		return session.Status{} // the session does not exist yet
	}
	return st
}

// calls returns how often the command that fakeTool has created in the folder was called.
func calls(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// restartAfterKill kills the server and starts another one in the same folder, with the
// configuration text.
func restartAfterKill(s *clitest.Server, text string, env ...string) *clitest.Server {
	s.T.Helper()
	s.Signal(syscall.SIGKILL)
	s.End()
	return clitest.Serve(s.T, text, s.Folder, env...)
}

// A provider states when the limit of a key ends. Sessions of the key's account start nothing until
// then, also after the server was killed. A success with the key ends the limit.
func TestALimitOfAKeyHoldsTheSessionsOfItsAccount(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	end := time.Now().Add(2 * time.Hour)
	reset := fmt.Sprint(end.Unix())
	for name, headers := range map[string][]string{
		"Retry-After": {"Retry-After", "7200"},
		"a subscription": {
			"Anthropic-Ratelimit-Unified-Status", "rejected", "Anthropic-Ratelimit-Unified-Representative-Claim", "five_hour",
			"Anthropic-Ratelimit-Unified-Reset", reset,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := clitest.ShortDir(t)
			tool := clitest.FakeTool(t, dir, "claude", "exit 0")
			up := newKeyedProvider(t, refuses(headers...))
			env := []string{"KEY=hush-hush-key"}
			file := fmt.Sprintf("version: 1\nproviders:\n  anthropic: {base-url: %s, auth: [{key: \"${env:KEY}\", account: claude-code}], policy: fixed(1ms) attempts=2}\n", up.URL)
			s := clitest.Serve(t, file, dir, env...)
			if code, text := post(s, "anthropic", "big"); code != http.StatusTooManyRequests {
				t.Fatalf("the request: %d %s", code, text)
			}
			file += fmt.Sprintf("sessions:\n  todo: {start: [%s, -p, x], account-spread: 1s}\n", tool)
			held := func(s *clitest.Server) {
				t.Helper()
				testwait.Until(t, "the session is held, or ends", func() bool { st := sessionOf(s, "todo"); return st.State == "waiting" || st.Over() })
				st := sessionOf(s, "todo")
				if st.State != "waiting" || st.WaitBy != "account" || !strings.Contains(st.WaitFor, "reported by key key-1 of provider anthropic: 429") ||
					st.Next == nil || st.Next.Before(end.Add(-time.Minute)) || st.Spent != 0 || st.Windows != 0 {
					t.Errorf("the session is %s by %q until %v: %q", st.State, st.WaitBy, st.Next, st.WaitFor)
				}
				if n := calls(t, dir); n != 0 {
					t.Errorf("the assistant was begun %d times", n)
				}
			}
			// The limit is recorded asynchronously.
			testwait.Until(t, "the limit is recorded", func() bool {
				_, err := os.Stat(filepath.Join(clitest.StateHome(t), "tideover", "accounts", "claude-code.json"))
				return err == nil
			})
			s.Reload(file)
			held(s)
			s = restartAfterKill(s, file, env...)
			held(s)
			before := len(up.seenKeys())
			if code, text := post(s, "anthropic", "small"); code != http.StatusTooManyRequests || !strings.Contains(text, "account claude-code is limited") {
				t.Errorf("a request after the restart: %d %s", code, text)
			}
			if n := len(up.seenKeys()); n != before {
				t.Errorf("%d requests were sent with the key after the restart", n-before)
			}
			up.setAnswer(replies("done"))
			if o := s.RunCommand("providers", "reset", "anthropic"); o.Code != 0 {
				t.Fatalf("reset: %+v", o)
			}
			if code, text := post(s, "anthropic", "small"); text != "done" {
				t.Errorf("a request after the reset: %d %s", code, text)
			}
			testwait.Until(t, "the session goes on", func() bool { st := sessionOf(s, "todo"); return st.Over() })
			if st := sessionOf(s, "todo"); st.State != "completed" {
				t.Errorf("the session is %s: %s", st.State, st.Error)
			}
			s.Signal(syscall.SIGTERM)
			clitest.WantCode(t, s.End(), 0)
		})
	}
}

// A session learns when its limit ends. Until then, keys of its account are not used: requests go
// to another key or to a fallback; if there is neither, the client gets the time to retry.
func TestALimitOfASessionHoldsTheKeysOfItsAccount(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	dir := clitest.ShortDir(t)
	reset := time.Now().Add(2 * time.Hour).Unix()
	tool := clitest.FakeTool(t, dir, "claude", fmt.Sprintf("echo 'Claude AI usage limit reached|%d'; exit 1", reset))
	up, spare := newKeyedProvider(t, replies("done")), newKeyedProvider(t, replies("spare"))
	env := []string{"ONE=the-first-key", "TWO=the-second-key"}
	file := fmt.Sprintf(`version: 1
sessions:
  todo: {start: [%s, -p, x]}
providers:
  two-keys: {preset: anthropic, base-url: %[2]s, auth: [{name: shared, key: "${env:ONE}", account: claude-code}, "${env:TWO}"]}
  with-fallback: {preset: anthropic, base-url: %[2]s, auth: [{name: shared, key: "${env:ONE}", account: claude-code}], fallback: [spare]}
  alone: {preset: anthropic, base-url: %[2]s, auth: [{name: shared, key: "${env:ONE}", account: claude-code}]}
  spare: {preset: anthropic, base-url: %[3]s, auth: "${env:TWO}"}
`, tool, up.URL, spare.URL)
	s := clitest.Serve(t, file, dir, env...)
	check := func(s *clitest.Server) {
		t.Helper()
		testwait.Until(t, "the key is held", func() bool {
			return strings.Contains(s.Read("/api/v1/providers/alone"), `"account":"claude-code","route":""`)
		})
		for range 10 {
			if code, text := post(s, "two-keys", "m"); text != "done" {
				t.Errorf("with another key: %d %s", code, text)
			}
		}
		if code, text := post(s, "with-fallback", "m"); text != "spare" {
			t.Errorf("with a fallback: %d %s", code, text)
		}
		if code, text := post(s, "alone", "m"); code != http.StatusTooManyRequests || !strings.Contains(text, "account claude-code is limited") {
			t.Errorf("without either: %d %s", code, text)
		}
		for _, key := range up.seenKeys() {
			if key != "the-second-key" {
				t.Errorf("the provider was asked with %s", key)
			}
		}
		for what, text := range map[string]string{
			"the API": s.Read("/api/v1/providers/alone"), "the page": s.Read("/providers/alone"), "the list": s.Read("/providers"),
			"the verb": s.RunCommand("providers", "show", "alone").Out,
		} {
			for _, part := range []string{"account claude-code is limited until ", "reported by session todo"} {
				if !strings.Contains(text, part) {
					t.Errorf("%s does not say %q:\n%s", what, part, text)
				}
			}
		}
		if st := s.Provider("alone"); st.State != "throttled" {
			t.Errorf("the provider is %s: %s", st.State, st.Why)
		}
		if text := s.Metrics(); !strings.Contains(text, `tideover_gateway_key_cooling{key="shared",provider="alone"} 1`) {
			t.Error("the metrics do not show that the key is not used")
		}
	}
	check(s)
	s = restartAfterKill(s, file, env...)
	check(s)
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
}

// A limit of one model does not count as a limit of the account while the key works for another
// model.
func TestALimitOfAModelIsNoneOfTheAccount(t *testing.T) {
	t.Parallel()
	up := newKeyedProvider(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"big"`) {
			refuses("Retry-After", "7200")(w, r)
			return
		}
		replies("done")(w, r)
	})
	s := clitest.Serve(t, fmt.Sprintf(`version: 1
providers:
  anthropic: {base-url: %s, auth: [{key: "${env:KEY}", account: shop}], policy: fixed(1ms) attempts=2}
workflows:
  held: {steps: [{id: a, run: [echo, done], account: shop}]}
`, up.URL), "", "KEY=hush-hush-key")
	if code, _ := post(s, "anthropic", "big"); code != http.StatusTooManyRequests {
		t.Errorf("the first model: %d", code)
	}
	// The step is held back: the key got a limit, and no other request has shown that it still works.
	run := strings.TrimSpace(s.RunCommand("run", "held").Out)
	testwait.Until(t, "the step waits, or ends", func() bool { i := s.Show(run); return i.State == "waiting" || i.Finished() })
	testwait.Until(t, "the account is free", func() bool {
		if code, text := post(s, "anthropic", "small"); text != "done" {
			t.Fatalf("the other model: %d %s", code, text)
		}
		run := strings.TrimSpace(s.RunCommand("run", "held").Out)
		testwait.Until(t, "the step waits, or ends", func() bool { i := s.Show(run); return i.State == "waiting" || i.Finished() })
		return s.Show(run).State == "succeeded"
	})
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
}

// The gateway reads the used quota of the account from response headers. A session with pause-at
// starts nothing.
func TestASessionPausesForAQuotaThatTheGatewayHasSeen(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	dir := clitest.ShortDir(t)
	tool := clitest.FakeTool(t, dir, "claude", "exit 0")
	reset := time.Now().Add(3 * time.Hour)
	up := newKeyedProvider(t, replies("done",
		"Anthropic-Ratelimit-Unified-5h-Utilization", "0.91", "Anthropic-Ratelimit-Unified-5h-Reset", fmt.Sprint(reset.Unix()), "Anthropic-Ratelimit-Unified-5h-Status", "allowed_warning",
		"Anthropic-Ratelimit-Unified-7d-Utilization", "0.2", "Anthropic-Ratelimit-Unified-7d-Reset", fmt.Sprint(time.Now().Add(90*time.Hour).Unix()),
	))
	env := []string{"KEY=hush-hush-key"}
	file := fmt.Sprintf("version: 1\nproviders:\n  anthropic: {base-url: %s, auth: [{key: \"${env:KEY}\", account: claude-code}]}\n", up.URL)
	s := clitest.Serve(t, file, dir, env...)
	if code, text := post(s, "anthropic", "m"); text != "done" {
		t.Fatalf("the request: %d %s", code, text)
	}
	testwait.Until(t, "the quota is recorded", func() bool {
		_, err := os.Stat(filepath.Join(clitest.StateHome(t), "tideover", "quota", "claude-code.json"))
		return err == nil
	})
	file += fmt.Sprintf("sessions:\n  todo: {start: [%s, -p, x], pause-at: 90%%}\n", tool)
	s.Reload(file)
	for range 2 {
		testwait.Until(t, "the session waits, or ends", func() bool { st := sessionOf(s, "todo"); return st.State == "waiting" || st.Over() })
		st := sessionOf(s, "todo")
		if !strings.Contains(st.WaitFor, "91% of the 5-hour quota is used; the session pauses at 90%") || st.Next == nil || st.Next.Sub(reset).Abs() > time.Minute {
			t.Errorf("the session is %s until %v: %q", st.State, st.Next, st.WaitFor)
		}
		if n := calls(t, dir); n != 0 {
			t.Errorf("the assistant was begun %d times", n)
		}
		s = restartAfterKill(s, file, env...)
	}
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
}

// A standalone gateway and a watch of the same user share an account.
func TestAGatewayAloneHoldsAWatch(t *testing.T) {
	t.Parallel()
	up := newKeyedProvider(t, refuses("Retry-After", "7200"))
	s := clitest.GatewayFile(t, fmt.Sprintf("version: 1\nproviders:\n  anthropic: {base-url: %s, auth: [{key: \"${env:KEY}\", account: claude-code}], policy: fixed(1ms) attempts=1}\n", up.URL), "KEY=hush-hush-key")
	if code, text := post(s, "anthropic", "m"); code != http.StatusTooManyRequests {
		t.Fatalf("the request: %d %s", code, text)
	}
	s.Signal(syscall.SIGTERM) // the gateway stores the limit before it ends
	clitest.WantCode(t, s.End(), 0)
	dir := clitest.ShortDir(t)
	cmd, _ := clitest.Command(t, "watch", "--data", filepath.Join(dir, "state"), "--", clitest.FakeTool(t, dir, "claude", "exit 0"), "-p", "x")
	out := new(clitest.SyncBuffer)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the watch is held, or ends", func() bool {
		return strings.Contains(out.String(), "reported by key key-1 of provider anthropic: 429") || calls(t, dir) > 0
	})
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	if n := calls(t, dir); n != 0 {
		t.Errorf("the assistant was begun %d times: %s", n, out.String())
	}
}

func TestTheAccountOfAKeyIsChecked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.yaml")
	check := func(account string) clitest.Outcome {
		clitest.WriteFile(t, file, "version: 1\nproviders:\n  anthropic:\n    auth:\n      - {name: a, key: \"${env:PATH}\", account: "+account+"}\n")
		return clitest.InProcess(t, "config", "check", "--config", file)
	}
	got := check("../x")
	clitest.WantCode(t, got, 1)
	for _, part := range []string{":5:", `providers.anthropic.auth[0].account: "../x" is not a valid account name`} {
		clitest.WantIn(t, "stderr", got.Stderr+got.Out, part)
	}
	for _, account := range []string{"company", "none"} {
		clitest.WantCode(t, check(account), 0)
		got := clitest.InProcess(t, "config", "show", "--config", file)
		clitest.WantIn(t, "stdout", got.Out, account)
	}
}
