//go:build unix

package serve_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// attackedServer is a server that a test attacks, and the address, the token and the cookie of a
// logged-in browser.
type attackedServer struct {
	*clitest.Server
	host, token, cookie string
	asked               *atomic.Int32
}

func newAttackedServer(t *testing.T) *attackedServer {
	t.Helper()
	f := &attackedServer{asked: new(atomic.Int32)}
	up := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { f.asked.Add(1) }))
	t.Cleanup(up.Close)
	f.Server = clitest.Serve(t, `version: 1
providers: {up: {base-url: `+up.URL+`/base, max-body: 1KiB}, peer: {base-url: `+up.URL+`}}
notify: {told: {webhook: `+up.URL+`}}
sessions: {kept: {start: [sleep, "600"]}}
workflows: {w: {steps: [{id: a, run: ["false"], policy: fixed(1h) attempts=2}]}, d: {steps: [{id: a, run: ["false"], policy: fixed(1ms) attempts=1}]}}
`, "")
	data, err := os.ReadFile(filepath.Join(f.Data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	f.token, f.host = strings.TrimSpace(string(data)), strings.Trim(strings.TrimPrefix(f.Address(), "http://"), "/")
	resp := f.send(http.MethodGet, "/overview?token="+f.token, "")
	f.cookie, _, _ = strings.Cut(resp.Header.Get("Set-Cookie"), ";")
	if f.cookie == "" {
		t.Fatalf("no session: %s", resp.Status)
	}
	return f
}

// send sends a request and returns the response with its body read. The headers are pairs of name
// and value. It follows no redirects.
func (f *attackedServer) send(method, path, body string, header ...string) *http.Response {
	f.T.Helper()
	req, err := http.NewRequestWithContext(f.T.Context(), method, "http://"+f.host+path, strings.NewReader(body))
	if err != nil {
		f.T.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		f.T.Fatalf("%s %s: %v", method, path, err)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		f.T.Fatal(err)
	}
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(strings.NewReader(string(text)))
	return resp
}

// changing returns every request that changes something, as "POST /path": those of the API from its
// description, those of the web page from its source, and those of the gateway.
func (f *attackedServer) changing(run string) (requests []string) {
	f.T.Helper()
	var d struct{ Paths map[string]map[string]any }
	text, err := io.ReadAll(f.send(http.MethodGet, "/api/openapi.yaml", "", "Authorization", "Bearer "+f.token).Body)
	if err == nil {
		err = yaml.Unmarshal(text, &d)
	}
	if err != nil || len(d.Paths) < 20 {
		f.T.Fatalf("%d paths, %v", len(d.Paths), err)
	}
	values := func(path string) map[string][]string {
		v := map[string][]string{"id": {run}, "session": {"kept"}, "provider": {"up"}, "notifier": {"told"}, "action": clitest.Actions[strings.Split(path, "/")[1]]}
		for _, name := range []string{"name", "workflow", "schedule", "key", "question", "token"} {
			v[name] = []string{"x"}
		}
		if strings.Contains(path, "/sessions/{id}") {
			v["id"] = v["session"]
		} else if strings.Contains(path, "/providers/{id}") {
			v["id"] = v["provider"]
		} else if strings.Contains(path, "/schedules/{id}") {
			v["id"] = v["schedule"]
		}
		return v
	}
	add := func(method, route string) {
		for _, path := range clitest.FillIn(f.T, route, values(route)) {
			requests = append(requests, strings.ToUpper(method)+" "+path)
		}
	}
	for path, methods := range d.Paths {
		for method := range methods {
			if method != "get" {
				add(method, path)
			}
		}
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		for _, path := range clitest.PageRoutes(f.T, method) {
			add(method, path)
		}
		add(method, "/p/up/v1/x")
	}
	return requests
}

// leakedFile matches the contents of files that no request may return.
var leakedFile = regexp.MustCompile(`root:.*:0:0:|package (web|pages)`)

// checkResponse sends a request and fails the test if the response contains something that must not
// be visible.
func (f *attackedServer) checkResponse(method, path, header string) {
	f.T.Helper()
	status, text := f.raw(method, path, header)
	code := strings.TrimPrefix(status, "HTTP/1.1 ")
	to := ""
	if _, rest, ok := strings.Cut(text, "\nLocation: "); ok {
		to, _, _ = strings.Cut(rest, "\r")
	}
	switch {
	case strings.HasPrefix(code, "4"):
	case strings.HasPrefix(code, "3") && strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") && !strings.HasPrefix(to, `/\`):
	default:
		f.T.Errorf("%s %.80q: %q to %q", method, path, status, to)
	}
	if leakedFile.MatchString(text) {
		f.T.Errorf("%s %.80q: there is a file in %.300q", method, path, text)
	}
}

// raw sends a request byte for byte, and returns the status line and the whole response.
func (f *attackedServer) raw(method, path, header string) (status, text string) {
	f.T.Helper()
	c := f.dial()
	defer c.Close()
	go func() {
		_, _ = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n%s\r\n", method, path, f.host, f.token, header)
	}()
	all, err := io.ReadAll(c)
	if err != nil && len(all) == 0 {
		f.T.Errorf("%s %.80q: %v", method, path, err)
	}
	status, _, _ = strings.Cut(string(all), "\r\n")
	return status, string(all)
}

func (f *attackedServer) dial() net.Conn {
	f.T.Helper()
	c, err := new(net.Dialer).DialContext(f.T.Context(), "tcp", f.host)
	if err != nil {
		f.T.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}
