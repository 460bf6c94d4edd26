//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
)

// sendRequest sends a request and returns the status, the content type and the body of the
// response. header has pairs of name and value.
func sendRequest(t *testing.T, method, url string, header ...string) (status int, kind, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.Host = req.Header.Get("Host")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(b)
}

const bothProviders = "version: 1\nproviders: {openai: {auth: none}, anthropic: {auth: none}}\n"

// A client whose base URL lacks the provider gets a JSON error that says what to change. A browser
// gets a text that says how to log in.
func TestABaseURLWithoutAProviderIsTold(t *testing.T) {
	t.Parallel()
	for command, s := range map[string]*serverProcess{
		"tideover gateway": gatewayFile(t, bothProviders),
		"tideover serve":   serveFile(t, bothProviders, ""),
	} {
		const own = "Bearer sk-what-an-SDK-has"
		for _, tt := range []struct {
			name, method, path string
			header             []string
			status             int
			kind, says         string
		}{
			{"an SDK", "POST", "v1/chat/completions", []string{"Authorization", own, "Accept", "application/json"}, 404, "application/json", "bad_path"},
			{"a provider without /p/", "POST", "openai/v1/x", []string{"Authorization", own}, 404, "application/json", "bad_path"},
			{"/p alone", "GET", "p", nil, 404, "application/json", "bad_path"},
			{"no path at all", "POST", "", []string{"X-Api-Key", "x"}, 404, "application/json", "bad_path"},
			{"a list of models", "GET", "v1/models", []string{"Accept", "*/*"}, 404, "application/json", "bad_path"},
			{"a browser that posts", "POST", "v1/x", []string{"Accept", "text/html,*/*"}, 404, "application/json", "bad_path"},
			{"a page of another site", "POST", "v1/x", []string{"Sec-Fetch-Site", "cross-site"}, 403, "application/json", "cross_site"},
			{"a provider that there is not", "POST", "p/mistral/v1/x", nil, 404, "application/json", "unknown_provider"},
			{"a browser", "GET", "v1/models", []string{"Accept", "text/html"}, 401, "text/html; charset=utf-8", "Follow the link that <code>" + command + "</code> has printed"},
			{"a page without a browser", "GET", "providers", nil, 401, "text/plain; charset=utf-8", "'" + command + "'"},
			{"the metrics", "GET", "metrics", nil, 401, "text/plain; charset=utf-8", "send Authorization: Bearer TOKEN. The token is in the file 'token' of the data folder"},
			{"the documentation", "GET", "docs", nil, 200, "text/html; charset=utf-8", "<article>"},
			{"a search of it", "GET", "docs/search?q=install", nil, 200, "text/html; charset=utf-8", "/docs/install#install"},
			{"a change of it", "POST", "docs", nil, 405, "text/plain; charset=utf-8", "can only be read"},
			{"the documentation under another name", "GET", "docs", []string{"Host", "evil.example"}, 421, "application/problem+json", "not a name of this server"},
			{"a path like that of the documentation", "GET", "docsx", []string{"Accept", "text/html"}, 401, "text/html; charset=utf-8", "token"},
			{"the documentation with a wrong token", "GET", "docs?token=x", nil, 401, "text/plain; charset=utf-8", "token"},
			{"the metrics in a browser", "GET", "metrics", []string{"Accept", "text/html"}, 401, "text/plain; charset=utf-8", "Authorization: Bearer TOKEN"},
		} {
			status, kind, text := sendRequest(t, tt.method, s.address()+tt.path, tt.header...)
			if status != tt.status || kind != tt.kind || !strings.Contains(text, tt.says) {
				t.Errorf("%s: %s: %s /%s: %d %s %q, want %d %s %q", command, tt.name, tt.method, tt.path, status, kind, text, tt.status, tt.kind, tt.says)
			}
			if tt.says != "bad_path" {
				continue
			}
			var body struct {
				Error struct{ Type, Message string }
			}
			err := json.Unmarshal([]byte(text), &body)
			if err != nil || body.Error.Type != "tideover_error" || !strings.Contains(body.Error.Message, "/p/<provider>/") || !strings.Contains(body.Error.Message, "anthropic, openai") {
				t.Errorf("%s: %s: %q (%v) does not say where the providers are", command, tt.name, text, err)
			}
		}
	}
}

// A second gateway or serve can't use the same data folder, even with another address and socket.
func TestOneProcessServesFromAFolder(t *testing.T) {
	t.Parallel()
	first := gatewayFile(t, bothProviders)
	for _, args := range [][]string{
		{"gateway", "openai"},
		{"gateway", "openai", "--socket", filepath.Join(first.dir, "other.sock")},
		{"serve", "--config", first.file, "--socket", filepath.Join(first.dir, "other.sock")},
	} {
		o := tideover(t, append(args, "--data", first.data, "--listen", "127.0.0.1:0")...)
		wantCode(t, o, 125)
		wantIn(t, "error", o.stderr, fmt.Sprintf("the folder %s is in use by another tideover (pid %d): stop that one, or name another folder with --data or server.data", first.data, first.Process.Pid))
	}
	if st := first.provider("openai"); st.Name != "openai" {
		t.Errorf("the first is not there any more: %+v", st)
	}
	first.signal(syscall.SIGKILL)
	first.wait()
	again := serveFile(t, bothProviders, first.dir)
	o := tideover(t, "gateway", "openai", "--data", again.data, "--listen", "127.0.0.1:0", "--socket", filepath.Join(again.dir, "other.sock"))
	wantCode(t, o, 125)
	wantIn(t, "error", o.stderr, "is in use by another tideover (pid ")
	again.signal(syscall.SIGTERM)
	wantCode(t, again.wait(), 0)
}

func TestAnAddressThatIsTakenNamesTheFlag(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := shortDir(t)
	file := filepath.Join(dir, "tideover.yaml")
	write(t, file, bothProviders)
	for command, key := range map[string]string{"serve": "server.listen", "gateway": "gateway.listen"} {
		o := tideover(t, command, "--config", file, "--data", filepath.Join(dir, command), "--listen", l.Addr().String())
		wantCode(t, o, 125)
		wantIn(t, "error", o.stderr, key+": listen tcp "+l.Addr().String()+": bind: address already in use: name another address with --listen or "+key)
	}
}

// The lines at the start name the source of each key.
func TestGatewaySaysWhoseKeysItSends(t *testing.T) {
	t.Parallel()
	s := &serverProcess{backgroundProcess: &backgroundProcess{t: t, dir: shortDir(t)}, out: new(syncBuffer)}
	s.Cmd, s.mark = command(t, "gateway", "openai", "anthropic", "gemini", "--data", s.dir, "--listen", "127.0.0.1:0")
	s.Env = append(s.Env, "OPENAI_API_KEY=hush-hush-key", "ANTHROPIC_API_KEY=")
	s.Stdout, s.Stderr = s.out, s.out
	s.begin()
	testwait.Until(t, "the gateway serves", func() bool { return strings.Contains(s.out.String(), "the page is at") })
	at := s.address() + "p/"
	for _, want := range []string{
		"tideover: openai is at " + at + "openai/ (key from OPENAI_API_KEY)\n",
		"tideover: anthropic is at " + at + "anthropic/ (clients send their own key; ANTHROPIC_API_KEY is empty)\n",
		"tideover: gemini is at " + at + "gemini/ (clients send their own key)\n",
		"?token=$(cat " + filepath.Join(s.dir, "token") + ")\n",
	} {
		wantIn(t, "output", s.out.String(), want)
	}

	two := filepath.Join(s.dir, "two.key")
	write(t, two, "hush-hush-too")
	f := gatewayFile(t, `version: 1
providers:
  openai: {auth: ["${env:ONE}", {name: two, key: "${file:`+two+`}"}]}
  gemini: {auth: none}
  anthropic:
`, "ONE=hush-hush-key", "ANTHROPIC_API_KEY=") // with a file, the gateway does not use ANTHROPIC_API_KEY
	for _, want := range []string{"p/openai/ (keys from ONE, " + two + ")\n", "p/gemini/ (no credentials are sent)\n", "p/anthropic/ (clients send their own key)\n"} {
		wantIn(t, "output", f.out.String(), want)
	}
	if strings.Contains(s.out.String()+f.out.String(), "hush-hush") {
		t.Error("a key is printed")
	}
}

func TestAKeyThatBreaksAHeaderNamesItsVariable(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"hush-hush\nkey", "hush-hush-key\n", " "} {
		cmd, _ := command(t, "gateway", "openai", "--data", shortDir(t), "--listen", "127.0.0.1:0")
		cmd.Env = append(cmd.Env, "OPENAI_API_KEY="+key)
		o := finish(t, cmd)
		wantCode(t, o, 125)
		wantIn(t, "error", o.stderr, "gateway: the value of OPENAI_API_KEY can't be sent in a header: it has a line break, or a space at the beginning or the end")
		if strings.Contains(o.stderr, "config:") || strings.Contains(o.stderr, "hush-hush") {
			t.Errorf("with %q: %q", key, o.stderr)
		}
	}
}

// A configuration with three errors gives one log line.
func TestARefusedFileIsOneLineOfTheLog(t *testing.T) {
	t.Parallel()
	s := gatewayFile(t, bothProviders)
	refused := func(text, want string) {
		t.Helper()
		write(t, s.file, text)
		s.signal(syscall.SIGHUP)
		testwait.Until(t, "the file is refused: "+want, func() bool { return strings.Contains(s.out.String(), want) })
		for line := range strings.Lines(s.out.String()) {
			if strings.Contains(line, want) && (!strings.Contains(line, "level=ERROR") || strings.Contains(line, `hint="tideover config check `+s.file+`"`) == strings.Contains(line, "no providers") || strings.Contains(line, `\n`)) {
				t.Errorf("logged %q", line)
			}
		}
		if strings.Contains(s.out.String(), "^") {
			t.Errorf("there is an excerpt in %q", s.out)
		}
	}
	refused("version: 1\nproviders: {openai: {rate: 50/min, priority: urgent, max-body: much}}\n", "write rate: {requests: 50/min}\" more=2")
	refused("version: 1\nproviders: {openai: {priority: urgent}}\n", "lowest, low, normal, high, highest\" hint")
	refused("version: 1\nproviders:\n", "there are no providers: name some under providers: in "+s.file)
	if st := s.provider("anthropic"); st.Name != "anthropic" {
		t.Errorf("what was served is gone: %+v", st)
	}
}
