//go:build unix

package serve_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/audit"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// trail returns the lines of the audit log about the access to the server and its configuration, and
// the text of the whole log.
func trail(s *clitest.Server) (list []audit.Entry, text string) {
	s.T.Helper()
	data, err := os.ReadFile(filepath.Join(s.Data, "audit.jsonl"))
	if err != nil {
		s.T.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var e audit.Entry
		if json.Unmarshal([]byte(line), &e) == nil {
			list = append(list, e)
		}
	}
	return list, string(data)
}

func TestTheAuditLogHasAccessAndConfiguration(t *testing.T) {
	t.Parallel()
	const planted, wrong = "hush-PLANTED-of-a-reader", "a-wrong-token-0123456789"
	file := "version: 1\nserver: {users: {reader: {token: '${env:READER_TOKEN}', read-only: true}}}\n" +
		"providers: {up: {base-url: 'http://127.0.0.1:9'}}\ngateway: {token: '${env:READER_TOKEN}'}\nworkflows:\n  first: {steps: [{id: a, run: [echo]}]}\n"
	s := clitest.Serve(t, file, clitest.ShortDir(t), "READER_TOKEN="+planted)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ask := func(want int, method, path, token string, header ...string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+tcp(s)+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
			if header[i] == "Host" {
				req.Host = header[i+1]
			}
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s %s: %s, want %d", method, path, resp.Status, want)
		}
	}
	ask(401, "GET", "/api/v1/runs", "")
	ask(401, "GET", "/api/v1/runs", wrong)
	ask(401, "GET", "/?token="+wrong, "", "Accept", "text/html")
	ask(303, "GET", "/?token="+planted, "", "Accept", "text/html")
	ask(403, "POST", "/api/v1/runs", planted)
	ask(403, "POST", "/api/v1/runs", s.Token(), "Sec-Fetch-Site", "cross-site")
	ask(421, "GET", "/api/v1/runs", planted, "Host", "rebound.example")
	ask(401, "GET", "/p/up/v1/models", wrong)
	ask(403, "POST", "/callbacks/a-signature", "")
	ask(200, "GET", "/api/v1/runs", planted)
	clitest.WantCode(t, s.RunCommand("providers", "drain", "up"), 0)

	clitest.WriteFile(t, s.File, file+"  second: {steps: [{id: a, run: [echo], env: {A: '${env:READER_TOKEN}'}}]}\n")
	testwait.Until(t, "the new workflow runs", func() bool { return s.RunCommand("run", "second", "--wait").Code == 0 })
	clitest.WriteFile(t, s.File, "version: 2\n")
	testwait.Until(t, "the reload fails", func() bool { return strings.Contains(s.Log.String(), "was not reloaded") })

	want := []string{
		"config-loaded  start []",
		"request-refused 127.0.0.1 GET /api/v1/runs 401 no valid token []",
		"request-refused 127.0.0.1 GET /api/v1/runs 401 wrong token []",
		"request-refused 127.0.0.1 GET / 401 login with a wrong token []",
		"logged-in reader 127.0.0.1 GET / 303 []",
		"request-refused reader 127.0.0.1 POST /api/v1/runs 403 the token of reader may only read []",
		"request-refused api 127.0.0.1 POST /api/v1/runs 403 the request comes from the page of another site []",
		"request-refused 127.0.0.1 GET /api/v1/runs 421 unknown host []",
		"request-refused 127.0.0.1 GET /p/up/v1/models 401 gateway: unauthorized []",
		"request-refused 127.0.0.1 POST /callbacks/… 403 forbidden []",
		"provider-changed drain up []",
		"config-loaded reload [workflows.second]",
		"config-refused",
	}
	var list []audit.Entry
	var text string
	find := func(words string) bool {
		return strings.Contains(text, words)
	}
	testwait.Until(t, "the failed reload is in the audit log", func() bool { list, text = trail(s); return find("config-refused") })
	for _, line := range want {
		if !hasEntry(list, strings.Fields(line)) {
			t.Errorf("the audit log lacks %q", line)
		}
	}
	for _, e := range list {
		if e.Kind == audit.ConfigLoaded && len(e.Digest) != 64 {
			t.Errorf("the digest is %q", e.Digest)
		}
	}
	for _, secret := range []string{planted, wrong, s.Token(), "a-signature"} {
		if find(secret) {
			t.Errorf("the audit log has %s", secret)
		}
	}

	// A flood is cut and counted: in the file, in the metrics, and by doctor.
	for range 150 {
		ask(401, "GET", "/api/v1/runs", "")
	}
	testwait.Until(t, "the drops are in the file", func() bool { _, text = trail(s); return find(`"kind":"entries-dropped"`) })
	clitest.WantIn(t, "metrics", s.Read("/metrics"), `tideover_audit_dropped_total{reason="limited"}`)
	o := s.RunCommand("doctor")
	clitest.WantIn(t, "doctor", o.Out+o.Stderr, "refused requests or logins since the start")
	clitest.WantIn(t, "the page Health", s.Read("/health"), "refused requests or logins since the start")
}

// hasEntry reports whether an entry has all the words.
func hasEntry(list []audit.Entry, words []string) bool {
	for _, e := range list {
		text := fmt.Sprintf(" %s %s %s %s %s %d %s %s %v ", e.Kind, e.By, e.From, e.Method, e.Path, e.Status, e.Note, e.Name, e.Changed)
		all := true
		for _, w := range words {
			all = all && strings.Contains(text, " "+w+" ")
		}
		if all {
			return true
		}
	}
	return false
}
