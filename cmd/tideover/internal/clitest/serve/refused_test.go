//go:build unix

package serve_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/testwait"
)

// A browser is logged in, and a page of another site sends requests through it. The test sends
// every request that changes something in this way, and all are rejected.
func TestPagesOfOtherSitesGetNowhere(t *testing.T) {
	t.Parallel()
	f := newAttackedServer(t)
	waiting := strings.TrimSpace(f.RunCommand("run", "w").Out)
	testwait.Until(t, "it waits", func() bool { return f.Show(waiting).State == "waiting" })
	requests := f.changing(waiting)
	if len(requests) < 30 {
		t.Fatalf("there are only %q", requests)
	}
	other := "http://" + f.host[:strings.LastIndex(f.host, ":")] + ":1"
	for _, c := range []struct {
		name   string
		header []string
		want   []int
	}{
		{"a page of another site", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, []int{403}},
		{"one that says nothing of where it is", []string{"Sec-Fetch-Site", "cross-site"}, []int{403}},
		{"another port of this machine", []string{"Sec-Fetch-Site", "same-site", "Origin", other}, []int{403}},
		{"an old browser", []string{"Origin", "http://evil.example"}, []int{403}},
		{"a page without an origin", []string{"Origin", "null"}, []int{403}},
		{"a form that needs no preflight", []string{"Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain"}, []int{403}},
		{"a name that leads here", []string{"Host", "evil.example", "Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin"}, []int{421}},
		{"such a name with our port", []string{"Host", "evil.example" + f.host[strings.LastIndex(f.host, ":"):], "Sec-Fetch-Site", "same-origin"}, []int{421}},
		{"a name that looks like ours", []string{"Host", "127.0.0.1.evil.example", "Sec-Fetch-Site", "same-origin"}, []int{421}},
		{"a cookie that is not ours", []string{"Cookie", "tideover=1", "Sec-Fetch-Site", "same-origin"}, []int{401, 404, 405}},
	} {
		for _, request := range requests {
			method, path, _ := strings.Cut(request, " ")
			if c.want[0] == 401 && strings.HasPrefix(path, "/p/") {
				continue // the gateway does not use browser sessions
			}
			if c.want[0] == 401 && strings.HasPrefix(path, "/callbacks/") {
				continue // callback URLs have a signature instead
			}
			resp := f.send(method, path, `{"workflow":"w"}`, append([]string{"Cookie", f.cookie, "Content-Type", "application/json"}, c.header...)...)
			if !strings.Contains(fmt.Sprint(c.want), fmt.Sprint(resp.StatusCode)) {
				t.Errorf("%s: %s: %s, want %v", c.name, request, resp.Status, c.want)
			}
		}
	}
	for _, request := range requests { // the preflight requests of a browser
		_, path, _ := strings.Cut(request, " ")
		resp := f.send(http.MethodOptions, path, "", "Cookie", f.cookie, "Origin", "https://evil.example", "Access-Control-Request-Method", "POST", "Sec-Fetch-Site", "cross-site")
		for name := range resp.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("OPTIONS %s: %s, %s: %s", path, resp.Status, name, resp.Header.Get(name))
			}
		}
	}
	if st := f.Provider("up"); st.State != gateway.Up || f.asked.Load() != 0 {
		t.Errorf("the provider is %s, and was asked %d times", st.State, f.asked.Load())
	}
	if i := f.Show(waiting); i.State != "waiting" || i.Attempts != 1 {
		t.Errorf("the run is %s after %d attempts", i.State, i.Attempts)
	}
	if o := f.RunCommand("runs", "--json"); strings.Count(o.Out, `"workflow":"w"`) != 1 {
		t.Errorf("there are other runs: %s", o.Out)
	}
	if o := f.RunCommand("sessions", "show", "kept", "--json"); !strings.Contains(o.Out, `"running"`) {
		t.Errorf("the session: %s", o.Out)
	}
	// The same request by the server's own page succeeds, which shows that the test works.
	if resp := f.send("POST", "/providers/up/drain", "", "Cookie", f.cookie, "Sec-Fetch-Site", "same-origin", "Content-Type", "application/x-www-form-urlencoded"); resp.StatusCode != http.StatusSeeOther || f.Provider("up").State != gateway.Draining {
		t.Errorf("our own page: %s", resp.Status)
	}
}

// Requests have the token and paths that try to escape their prefix. None of them reaches a file,
// another provider or another server.
func TestPathsLeadNowhereElse(t *testing.T) {
	t.Parallel()
	f := newAttackedServer(t)
	for _, path := range []string{
		"/../../../../etc/passwd", "/static/../../../../etc/passwd", "/static/../site.go", "/static/%2e%2e/site.go", "/static/..%2f..%2f..%2fetc%2fpasswd", "/static/..%5c..%5cetc", `/static/..\..\etc`,
		"/docs/../../../etc/passwd", "/docs/..%2f..%2fetc%2fpasswd", "/docs/static/../README.md", "/docs//evil.example", "/docs/%00", "/static//etc/passwd", "/static/%00", "/static/.%00./x", "//evil.example/", "///evil.example", "/%2f%2fevil.example/", "/%5cevil.example", `/\evil.example`, "/runs/../../etc/passwd", "/runs/%00", "/runs/..%2f..%2fx",
		"/runs/%2e%2e/%2e%2e/x", "/live/../../etc/passwd", "/api/v1/../../../etc/passwd", "/api//v1/status", "/api/v1//status", "/api/v1/runs/%2e%2e%2f%2e%2e", "/api/v1/runs/%00", "/api/v1/status/", "/api/v1/status/..", "/API/v1/status",
		"/p/up/../peer/x", "/p/up/../../api/v1/status", "/p/up/%2e%2e/peer/x", "/p/up/..%2fpeer/x", "/p/up/..%252fpeer/../x", `/p/up/..\peer\x`, "/p/up/..%5cpeer", "/p/up/..;/peer", "/p/up/%2e%2e;a=b/peer", "/p/up/./x", "/p/../p/up/x", "/p//up/x",
		"/p/%2e%2e/up", "/p/up%2f..%2fpeer/x", "/p/UP/x", "/p/up%00/x", "/p/", "/p/..", "/" + strings.Repeat("a", 100<<10), "/runs/" + strings.Repeat("%61", 10<<10), "http://evil.example/runs", "http://evil.example/p/up/x", "*", "runs", "",
	} {
		for _, method := range []string{"GET", "POST"} {
			f.checkResponse(method, path, "Accept: text/html\r\n")
		}
	}
	for _, method := range []string{"TRACE", "CONNECT", "OPTIONS", "PROPFIND", "get", "G\x00T", "DELETE"} {
		f.checkResponse(method, "/runs", "")
		f.checkResponse(method, "/api/v1/runs", "")
	}
	if n := f.asked.Load(); n != 0 {
		t.Errorf("the provider was asked %d times", n)
	}
	if status, _ := f.raw("GET", "/p/up/x", ""); !strings.Contains(status, " 200 ") || f.asked.Load() != 1 {
		t.Errorf("a path that is one: %s, asked %d times", status, f.asked.Load())
	}
}

// Many clients send their requests one letter at a time. The server closes their connections, and
// serves other clients meanwhile.
func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	f := newAttackedServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	for i := range 200 {
		c := f.dial()
		start := []string{"GET /overview HTTP/1.1\r\nHost: ", "POST /api/v1/runs HTTP/1.1\r\nX-A: ", "POST /p/up/x HTTP/1.1\r\nHost: " + f.host + "\r\nX-B: ", ""}[i%4]
		all.Go(func() {
			defer c.Close()
			_, _ = io.WriteString(c, start)
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			all.Go(func() {
				for start != "" && ctx.Err() == nil { // until the server closes the connection
					if _, err := io.WriteString(c, "a"); err != nil {
						return
					}
					time.Sleep(100 * time.Millisecond) // real clock: however slow the client is, the server ends it
				}
			})
			_, err := bufio.NewReader(c).ReadString('\n')
			if ctx.Err() == nil && err != nil && !strings.Contains(err.Error(), "EOF") && !strings.Contains(err.Error(), "reset") {
				t.Errorf("%q: %v, want the end", start, err)
			}
		})
	}
	for _, path := range []string{"/healthz", "/p/up/x"} {
		if resp := f.send("GET", path, ""); resp.StatusCode != http.StatusOK {
			t.Errorf("meanwhile %s: %s", path, resp.Status)
		}
	}
	all.Wait()
}
