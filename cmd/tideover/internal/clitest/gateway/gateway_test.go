//go:build unix

package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/andybalholm/brotli"

	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestGatewayGetsRequestsThrough(t *testing.T) {
	t.Parallel()
	var get, post, plain atomic.Int32
	s := clitest.GatewayFile(t, fmt.Sprintf(`version: 1
providers:
  get: {base-url: %s, auth: "${env:KEY}", policy: fixed(1ms) attempts=3}
  openai: {base-url: %s, auth: "${env:KEY}", policy: fixed(1ms) attempts=3}
  plain: {base-url: %s, auth: "${env:KEY}", policy: fixed(1ms) attempts=3}
`, clitest.Upstream(t, &get, 503, 503, 200), clitest.Upstream(t, &post, 503, 503, 200), clitest.Upstream(t, &plain, 503, 200)), "KEY=hush-hush-key")
	resp, text := clitest.Fetch(t, "GET", s.Address()+"p/get/a/b?c=d", "")
	if resp.StatusCode != 200 || text != "Bearer hush-hush-key /a/b?c=d " || get.Load() != 3 {
		t.Errorf("GET: %s %q after %d", resp.Status, text, get.Load())
	}
	resp, text = clitest.Fetch(t, "POST", s.Address()+"p/openai/v1/chat/completions", "{}")
	if resp.StatusCode != 200 || text != "Bearer hush-hush-key /v1/chat/completions {}" || post.Load() != 3 {
		t.Errorf("POST to a preset: %s %q after %d", resp.Status, text, post.Load())
	}
	resp, _ = clitest.Fetch(t, "POST", s.Address()+"p/plain/x", "{}")
	if resp.StatusCode != 503 || plain.Load() != 1 || resp.Header.Get("X-Should-Retry") != "false" {
		t.Errorf("POST: %s after %d, should retry %q", resp.Status, plain.Load(), resp.Header.Get("X-Should-Retry"))
	}
	if st := s.Provider("get"); st.Totals.Retries != 2 || st.Totals.Succeeded != 1 || st.State != gateway.Up {
		t.Errorf("status %+v, want two retries and a success", st.Totals)
	}
	for _, args := range [][]string{{"providers"}, {"providers", "--json"}, {"providers", "show", "get"}} {
		if o := s.RunCommand(args...); o.Code != 0 || !strings.Contains(o.Out, "get") || strings.Contains(o.Out, "hush-hush") {
			t.Errorf("%v: exit %d, %s%s", args, o.Code, o.Out, o.Stderr)
		}
	}
	if o := s.RunCommand("runs"); o.Code == 0 || !strings.Contains(o.Stderr, "this server has no engine") {
		t.Errorf("runs: exit %d, %q", o.Code, o.Stderr)
	}
	if strings.Contains(s.Log.String(), "hush-hush") {
		t.Errorf("a key is in the log: %s", s.Log)
	}
}

// A provider says in a compressed body that its quota is used up. It gets no further request.
func TestGatewayReadsFailuresInBrotli(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Encoding", "br")
		w.WriteHeader(http.StatusTooManyRequests)
		c := brotli.NewWriter(w)
		fmt.Fprint(c, `{"error":{"code":"insufficient_quota"}}`)
		_ = c.Close()
	}))
	t.Cleanup(up.Close)
	s := clitest.GatewayFile(t, fmt.Sprintf("version: 1\nproviders: {up: {preset: openai, base-url: %s, policy: fixed(1ms) attempts=3, auth: ['${env:KEY}']}}\n", up.URL), "KEY=k")
	resp, _ := clitest.Fetch(t, http.MethodPost, s.Address()+"p/up/v1/chat/completions", "{}")
	if resp.StatusCode != http.StatusTooManyRequests || asked.Load() != 1 {
		t.Errorf("the answer is %d after %d requests, want 429 after one", resp.StatusCode, asked.Load())
	}
}

func TestGatewayMetricsWantTheToken(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	s := clitest.GatewayFile(t, "version: 1\nproviders: {up: {base-url: "+clitest.Upstream(t, &n, 200)+"}}\n")
	clitest.Fetch(t, "GET", s.Address()+"p/up/", "")
	if resp, _ := clitest.Fetch(t, "GET", s.Address()+"metrics", ""); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the token: %s", resp.Status)
	}
	token, err := os.ReadFile(filepath.Join(s.Data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), "GET", s.Address()+"metrics", nil)
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	for _, want := range []string{`tideover_gateway_requests_total{outcome="succeeded",provider="up"} 1`, `tideover_gateway_provider_state{provider="up",state="up"} 1`, "go_goroutines"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("metrics have no %q", want)
		}
	}
}

func TestGatewayRefusesToStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		file string
		args []string
		want string
	}{
		{"without anything", "", nil, "name a file with --config, or name presets"},
		{"a preset that is none", "", []string{"mistral"}, `"mistral" is not a preset that works without a configuration`},
		{"a preset twice", "", []string{"openai", "openai"}, `"openai" is given twice`},
		{"a fallback of another format", "version: 1\nproviders:\n  openai: {auth: \"${env:PATH}\", fallback: [anthropic]}\n  anthropic: {auth: \"${env:PATH}\"}\n", nil, ":3:"},
		{"open to others without a token", "version: 1\ngateway: {listen: 0.0.0.0:0}\nproviders: {openai: }\n", nil, "gateway.token"},
		{"without providers", "version: 1\nproviders:\n", nil, "gateway: there are no providers: name some under providers: in "},
		{"with a token that is short", "version: 1\ngateway: {token: \"${env:SHORT}\"}\nproviders: {openai: }\n", nil, "characters, at least 16 are needed"},
		{"to a host that hears callers' keys", "version: 1\nproviders: {up: {base-url: \"http://a.example\"}}\n", nil, "unencrypted"},
		{"a key in the file", "version: 1\nproviders: {openai: {auth: sk-1234567890abcdef1234567890}}\n", nil, "must not be in the file"},
	} {
		dir := clitest.ShortDir(t)
		args := append([]string{"gateway", "--data", dir}, tt.args...)
		if tt.file != "" {
			clitest.WriteFile(t, filepath.Join(dir, "t.yaml"), tt.file)
			args = append(args, "--config", filepath.Join(dir, "t.yaml"))
		}
		cmd, _ := clitest.Command(t, args...)
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, "TIDEOVER_CONFIG=", "XDG_CONFIG_HOME="+dir, "SHORT=tideover")
		if o := clitest.Finish(t, cmd); o.Code == 0 || !strings.Contains(o.Stderr, tt.want) {
			t.Errorf("%s: exit %d, %q, want %q", tt.name, o.Code, o.Stderr, tt.want)
		}
	}
}

func TestGatewayReloadsUnderLoadAndDrains(t *testing.T) {
	t.Parallel()
	var n, served atomic.Int32
	up := clitest.Upstream(t, &n, 200)
	file := func(attempts int) string {
		return fmt.Sprintf("version: 1\nproviders: {up: {base-url: %s, policy: fixed(1ms) attempts=%d}}\n", up, attempts)
	}
	s := clitest.GatewayFile(t, file(2))
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := http.Get(s.Address() + "p/up/x")
				if err != nil {
					t.Errorf("a request was lost: %v", err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Errorf("a request was answered with %s", resp.Status)
					return
				}
				served.Add(1)
			}
		})
	}
	for i := 3; i < 8; i++ {
		clitest.WriteFile(t, s.File, file(i))
		_ = s.Process.Signal(syscall.SIGHUP)
		testwait.Until(t, "the file is loaded", func() bool { return strings.Contains(s.Provider("up").Policy, fmt.Sprintf("attempts=%d", i)) })
	}
	clitest.WriteFile(t, s.File, "version: 1\nproviders: {up: {base-url: nowhere}}\n")
	_ = s.Process.Signal(syscall.SIGHUP)
	testwait.Until(t, "the file is refused", func() bool { return strings.Contains(s.Log.String(), "the configuration was not reloaded") })
	if p := s.Provider("up").Policy; !strings.Contains(p, "attempts=7") {
		t.Errorf("policy %q after a file that is wrong", p)
	}
	o := s.RunCommand("providers")
	clitest.WantIn(t, "providers", o.Out, "up")
	clitest.WantIn(t, "stderr", o.Stderr, "tideover: the configuration was not reloaded at ")
	clitest.WantIn(t, "stderr", o.Stderr, "base-url")
	close(stop)
	callers.Wait()
	if served.Load() == 0 {
		t.Error("nothing was served")
	}
}

func TestGatewayLetsRequestsEnd(t *testing.T) {
	t.Parallel()
	began, let := make(chan struct{}), make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: first\n\n")
		w.(http.Flusher).Flush()
		close(began)
		<-let
		_, _ = io.WriteString(w, "data: last\n\n")
	}))
	t.Cleanup(up.Close)
	s := clitest.GatewayFile(t, "version: 1\nproviders: {up: {base-url: "+up.URL+"}}\n")
	resp, err := http.Get(s.Address() + "p/up/x")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-began
	_ = s.Process.Signal(syscall.SIGTERM)
	testwait.Until(t, "it is ending", func() bool { return strings.Contains(s.Log.String(), "msg=stopping") })
	close(let)
	text, err := io.ReadAll(resp.Body)
	if err != nil || string(text) != "data: first\n\ndata: last\n\n" {
		t.Errorf("read %q, %v, want the whole stream", text, err)
	}
	if err := s.Wait(); err != nil {
		t.Errorf("the gateway ended with %v: %s", err, s.Log)
	}
}

// The gateway rejects malformed requests, and does not send them to the provider.
func TestGatewayRefusesWhatIsNotHTTP(t *testing.T) {
	t.Parallel()
	var seen sync.Map // how often each case was seen
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := seen.LoadOrStore(r.URL.RawQuery, new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(up.Close)
	s := clitest.GatewayFile(t, "version: 1\nproviders: {up: {base-url: "+up.URL+", max-body: 1KiB}}\n")
	host := strings.TrimSuffix(strings.TrimPrefix(s.Address(), "http://"), "/")
	head := "POST /p/up/x?CASE HTTP/1.1\r\nHost: " + host + "\r\n"
	for i, tt := range []struct {
		name, send string
		want       string // the beginning of the status line; "" means that the connection is closed
		reaches    int32  // how often the provider is asked
	}{
		{"a length and chunks", head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\nGET /p/up/smuggled?smuggled HTTP/1.1\r\nHost: " + host + "\r\n\r\n", "HTTP/1.1 200", 1},
		{"two lengths", head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", "HTTP/1.1 400", 0},
		{"a length that is no number", head + "Content-Length: +5\r\n\r\nhello", "HTTP/1.1 400", 0},
		{"an unknown coding", head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 501", 0},
		{"chunked said oddly", head + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 4", 0},
		{"a chunk whose size is no number", head + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\nhello\r\n0\r\n\r\n", "HTTP/1.1 400", 0},
		{"a chunk that is longer than it says", head + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nhello\r\n0\r\n\r\n", "HTTP/1.1 400", 0},
		{"a space before the colon", head + "X-A : b\r\n\r\n", "HTTP/1.1 400", 0},
		{"a line that goes on", head + "X-A: b\r\n c\r\nConnection: close\r\n\r\n", "HTTP/1.1 200", 1},
		{"a line break in a header", head + "X-A: b\rX-B: c\r\n\r\n", "HTTP/1.1 400", 0},
		{"two hosts", head + "Host: other\r\n\r\n", "HTTP/1.1 400", 0},
		{"another host", "GET /p/up/x?CASE HTTP/1.1\r\nHost: evil.example\r\n\r\n", "HTTP/1.1 421", 0},
		{"an absolute URL", "GET http://evil.example/p/up/x?CASE HTTP/1.1\r\nHost: " + host + "\r\n\r\n", "HTTP/1.1 421", 0},
		{"CONNECT", "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", "HTTP/1.1 4", 0},
		{"headers without end", head + "X-A: " + strings.Repeat("a", 80<<10) + "\r\n\r\n", "HTTP/1.1 431", 0},
		{"many headers", head + strings.Repeat("X-Aaaaaaaaaaaaaaaa: b\r\n", 5000) + "\r\n", "HTTP/1.1 431", 0},
		{"a body that is too long", head + "Content-Length: 2000\r\nConnection: close\r\n\r\n" + strings.Repeat("a", 2000), "HTTP/1.1 413", 0},
		{"chunks that are too long", head + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + strings.Repeat("100\r\n"+strings.Repeat("a", 256)+"\r\n", 8) + "0\r\n\r\n", "HTTP/1.1 413", 0},
		{"a path that leads upwards", "GET /p/up/../../api/v1/status HTTP/1.1\r\nHost: " + host + "\r\n\r\n", "HTTP/1.1 4", 0},
		{"one that is encoded", "GET /p/up/%2e%2e/%2e%2e/x HTTP/1.1\r\nHost: " + host + "\r\n\r\n", "HTTP/1.1 400", 0},
		{"no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "HTTP/1.1 400", 0},
	} {
		own := fmt.Sprint("case=", i)
		if got := raw(t, host, strings.Replace(tt.send, "CASE", own, 1)); !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: answered %q, want %q", tt.name, got, tt.want)
		}
		most := tt.reaches
		if strings.Contains(tt.name, "chunk") {
			most = 1 // the error is in the middle of the body, so the request may have been sent already
		}
		if n, ok := seen.Load(own); ok && n.(*atomic.Int32).Load() > most {
			t.Errorf("%s: the provider was asked %d times, want %d", tt.name, n.(*atomic.Int32).Load(), most)
		}
	}
	if _, ok := seen.Load("smuggled"); ok {
		t.Error("a request was smuggled in")
	}
}

// raw sends bytes and returns the status line of the response.
func raw(t *testing.T, host, send string) string {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	go func() { _, _ = io.Copy(c, strings.NewReader(send)) }() // the server may close the connection before it has read all
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil && line == "" {
		return ""
	}
	return strings.TrimSpace(line)
}

func TestServeHasTheGatewayBesideTheRest(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	up := clitest.Upstream(t, &n, 503, 200)
	s := clitest.Serve(t, `version: 1
providers:
  up: {base-url: `+up+`, auth: "${env:KEY}", policy: fixed(1ms) attempts=1}
workflows:
  ask:
    steps:
      - {id: ask, http: {provider: up, post: "/v1/ask?who={{ .input.who }}", body: hello}, policy: fixed(1ms) attempts=3}
`, "", "KEY=hush-hush-key")
	o := s.RunCommand("run", "ask", "--input", `{"who":"me"}`, "--wait")
	if o.Code != 0 {
		t.Fatalf("run: exit %d, %s%s", o.Code, o.Out, o.Stderr)
	}
	st := s.Provider("up")
	if n.Load() != 2 || st.Totals.Attempts != 2 || st.Totals.Requests != 2 {
		t.Errorf("asked %d times, status %+v, want one attempt for each of the engine's", n.Load(), st.Totals)
	}
	resp, text := clitest.Fetch(t, "GET", s.Address()+"p/up/direct", "")
	if resp.StatusCode != 200 || !strings.Contains(text, "Bearer hush-hush-key /direct") {
		t.Errorf("through the gateway of serve: %s %q", resp.Status, text)
	}
	for _, action := range []string{"block", "reset", "drain", "reset", "force", "reset"} {
		if o := s.RunCommand("providers", action, "up"); o.Code != 0 {
			t.Errorf("providers %s: exit %d, %s", action, o.Code, o.Stderr)
		}
		resp, _ := clitest.Fetch(t, "GET", s.Address()+"p/up/x", "")
		want := http.StatusOK
		if action == "block" || action == "drain" {
			want = http.StatusServiceUnavailable
		}
		if resp.StatusCode != want {
			t.Errorf("after %s: %s, want %d", action, resp.Status, want)
		}
	}
}

func TestServeTellsOfAProviderAndNotOfItsCallers(t *testing.T) {
	t.Parallel()
	var well atomic.Bool
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !well.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(up.Close)
	s := clitest.Serve(t, `version: 1
providers: {up: {base-url: `+up.URL+`, policy: fixed(1ms) attempts=2}}
notify:
  ops: {run: [sh, -c, 'echo "$1: $2" >> $DIR/told', sh, "{{ .event }}", "{{ .title }}"], on: [gave-up, waiting, resumed, recovered, breaker-open], dedupe: 0}
`, "")
	for range 2 { // two requests that fail, with two failures each
		if resp, _ := clitest.Fetch(t, "GET", s.Address()+"p/up/x", ""); resp.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("%s", resp.Status)
		}
	}
	done := make(chan struct{})
	go func() { // after the fifth failure, this request waits until the provider is back
		defer close(done)
		clitest.Fetch(t, "GET", s.Address()+"p/up/x", "")
	}()
	testwait.Until(t, "it is down", func() bool { return s.Provider("up").State == gateway.Down })
	well.Store(true)
	<-done
	testwait.Until(t, "both messages are sent", func() bool { return clitest.CountLines(filepath.Join(s.Folder, "told")) >= 2 })
	o := s.RunCommand("runs", "--internal", "--json")
	text, err := os.ReadFile(filepath.Join(s.Folder, "told"))
	if want := "breaker-open: provider up is failing\nrecovered: provider up works again\n"; err != nil || string(text) != want {
		t.Errorf("told %q, %v, want %q; runs: %s", text, err, want, o.Out)
	}
	if o := s.RunCommand("events"); !strings.Contains(o.Out, "gateway/up") || !strings.Contains(o.Out, "gave up") {
		t.Errorf("events has nothing of the gateway: %s%s", o.Out, o.Stderr)
	}
}

// Commands find the gateway with --config and the configuration that it was started with.
func TestGatewayIsFoundByItsFile(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	dir := clitest.ShortDir(t)
	s := clitest.GatewayFile(t, fmt.Sprintf("version: 1\nserver: {socket: %s/own.sock}\nproviders: {up: {base-url: %s}}\n", dir, clitest.Upstream(t, &n, 200)), "WHO=0123456789abcdef0123")
	for _, flag := range []string{"--config", "-c"} {
		got := clitest.Run(t, "providers", flag, s.File)
		clitest.WantCode(t, got, 0)
		clitest.WantIn(t, "stdout", got.Out, "up ")
	}
	clitest.WriteFile(t, s.File, fmt.Sprintf("version: 1\ngateway: {token: '${env:WHO}'}\nserver: {socket: %s/own.sock}\nproviders: {up: {base-url: %s}}\n", dir, clitest.Upstream(t, &n, 200)))
	_ = s.Process.Signal(syscall.SIGHUP)
	testwait.Until(t, "it is said what is not in effect", func() bool {
		return strings.Contains(s.Log.String(), `msg="configuration loaded" workflows=0 sessions=0 providers=1 except=gateway.token`)
	})
	clitest.WriteFile(t, s.File, "version: 1\n")
	_ = s.Process.Signal(syscall.SIGHUP)
	testwait.Until(t, "the file is refused", func() bool { return strings.Contains(s.Log.String(), "the configuration was not reloaded") })
	if _, line, _ := strings.Cut(s.Log.String(), "the configuration was not reloaded"); strings.Contains(line, "config check") {
		t.Errorf("a hint at a check that finds nothing: %s", line)
	}
}
