//go:build unix

package gateway_test

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

const bothProviders = "version: 1\nproviders: {openai: {auth: none}, anthropic: {auth: none}}\n"

// A client whose base URL lacks the provider gets a JSON error that says what to change. A browser
// gets a text that says how to log in.
func TestABaseURLWithoutAProviderIsTold(t *testing.T) {
	t.Parallel()
	for command, s := range map[string]*clitest.Server{
		"tideover gateway": clitest.GatewayFile(t, bothProviders),
		"tideover serve":   clitest.Serve(t, bothProviders, ""),
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
			status, kind, text := clitest.SendRequest(t, tt.method, s.Address()+tt.path, tt.header...)
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
	first := clitest.GatewayFile(t, bothProviders)
	for _, args := range [][]string{
		{"gateway", "openai"},
		{"gateway", "openai", "--socket", filepath.Join(first.Folder, "other.sock")},
		{"serve", "--config", first.File, "--socket", filepath.Join(first.Folder, "other.sock")},
	} {
		o := clitest.Run(t, append(args, "--data", first.Data, "--listen", "127.0.0.1:0")...)
		clitest.WantCode(t, o, 125)
		clitest.WantIn(t, "error", o.Stderr, fmt.Sprintf("the folder %s is in use by another tideover (pid %d): stop that one, or name another folder with --data or server.data", first.Data, first.Process.Pid))
	}
	if st := first.Provider("openai"); st.Name != "openai" {
		t.Errorf("the first is not there any more: %+v", st)
	}
	first.Signal(syscall.SIGKILL)
	first.End()
	again := clitest.Serve(t, bothProviders, first.Folder)
	o := clitest.Run(t, "gateway", "openai", "--data", again.Data, "--listen", "127.0.0.1:0", "--socket", filepath.Join(again.Folder, "other.sock"))
	clitest.WantCode(t, o, 125)
	clitest.WantIn(t, "error", o.Stderr, "is in use by another tideover (pid ")
	again.Signal(syscall.SIGTERM)
	clitest.WantCode(t, again.End(), 0)
}

func TestAnAddressThatIsTakenNamesTheFlag(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := clitest.ShortDir(t)
	file := filepath.Join(dir, "tideover.yaml")
	clitest.WriteFile(t, file, bothProviders)
	for command, key := range map[string]string{"serve": "server.listen", "gateway": "gateway.listen"} {
		o := clitest.Run(t, command, "--config", file, "--data", filepath.Join(dir, command), "--listen", l.Addr().String())
		clitest.WantCode(t, o, 125)
		clitest.WantIn(t, "error", o.Stderr, key+": listen tcp "+l.Addr().String()+": bind: address already in use: name another address with --listen or "+key)
	}
}

// The lines at the start name the source of each key.
func TestGatewaySaysWhoseKeysItSends(t *testing.T) {
	t.Parallel()
	s := &clitest.Server{Background: &clitest.Background{T: t, Folder: clitest.ShortDir(t)}, Log: new(clitest.SyncBuffer)}
	s.Cmd, s.Mark = clitest.Command(t, "gateway", "openai", "anthropic", "gemini", "--data", s.Folder, "--listen", "127.0.0.1:0")
	s.Env = append(s.Env, "OPENAI_API_KEY=hush-hush-key", "ANTHROPIC_API_KEY=")
	s.Stdout, s.Stderr = s.Log, s.Log
	s.Begin()
	testwait.Until(t, "the gateway serves", func() bool { return strings.Contains(s.Log.String(), "the page is at") })
	at := s.Address() + "p/"
	for _, want := range []string{
		"tideover: openai is at " + at + "openai/ (key from OPENAI_API_KEY)\n",
		"tideover: anthropic is at " + at + "anthropic/ (clients send their own key; ANTHROPIC_API_KEY is empty)\n",
		"tideover: gemini is at " + at + "gemini/ (clients send their own key)\n",
		"?token=$(cat " + filepath.Join(s.Folder, "token") + ")\n",
	} {
		clitest.WantIn(t, "output", s.Log.String(), want)
	}

	two := filepath.Join(s.Folder, "two.key")
	clitest.WriteFile(t, two, "hush-hush-too")
	f := clitest.GatewayFile(t, `version: 1
providers:
  openai: {auth: ["${env:ONE}", {name: two, key: "${file:`+two+`}"}]}
  gemini: {auth: none}
  anthropic:
`, "ONE=hush-hush-key", "ANTHROPIC_API_KEY=") // with a file, the gateway does not use ANTHROPIC_API_KEY
	for _, want := range []string{"p/openai/ (keys from ONE, " + two + ")\n", "p/gemini/ (no credentials are sent)\n", "p/anthropic/ (clients send their own key)\n"} {
		clitest.WantIn(t, "output", f.Log.String(), want)
	}
	if strings.Contains(s.Log.String()+f.Log.String(), "hush-hush") {
		t.Error("a key is printed")
	}
}

func TestAKeyThatBreaksAHeaderNamesItsVariable(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"hush-hush\nkey", "hush-hush-key\n", " "} {
		cmd, _ := clitest.Command(t, "gateway", "openai", "--data", clitest.ShortDir(t), "--listen", "127.0.0.1:0")
		cmd.Env = append(cmd.Env, "OPENAI_API_KEY="+key)
		o := clitest.Finish(t, cmd)
		clitest.WantCode(t, o, 125)
		clitest.WantIn(t, "error", o.Stderr, "gateway: the value of OPENAI_API_KEY can't be sent in a header: it has a line break, or a space at the beginning or the end")
		if strings.Contains(o.Stderr, "config:") || strings.Contains(o.Stderr, "hush-hush") {
			t.Errorf("with %q: %q", key, o.Stderr)
		}
	}
}

// A configuration with three errors gives one log line.
func TestARefusedFileIsOneLineOfTheLog(t *testing.T) {
	t.Parallel()
	s := clitest.GatewayFile(t, bothProviders)
	refused := func(text, want string) {
		t.Helper()
		clitest.WriteFile(t, s.File, text)
		s.Signal(syscall.SIGHUP)
		testwait.Until(t, "the file is refused: "+want, func() bool { return strings.Contains(s.Log.String(), want) })
		for line := range strings.Lines(s.Log.String()) {
			if strings.Contains(line, want) && (!strings.Contains(line, "level=ERROR") || strings.Contains(line, `hint="tideover config check `+s.File+`"`) == strings.Contains(line, "no providers") || strings.Contains(line, `\n`)) {
				t.Errorf("logged %q", line)
			}
		}
		if strings.Contains(s.Log.String(), "^") {
			t.Errorf("there is an excerpt in %q", s.Log)
		}
	}
	refused("version: 1\nproviders: {openai: {rate: 50/min, priority: urgent, max-body: much}}\n", "write rate: {requests: 50/min}\" more=2")
	refused("version: 1\nproviders: {openai: {priority: urgent}}\n", "lowest, low, normal, high, highest\" hint")
	refused("version: 1\nproviders:\n", "there are no providers: name some under providers: in "+s.File)
	if st := s.Provider("anthropic"); st.Name != "anthropic" {
		t.Errorf("what was served is gone: %+v", st)
	}
}
