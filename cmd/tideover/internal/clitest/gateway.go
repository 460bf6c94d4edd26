//go:build unix

package clitest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/internal/testwait"
)

// SendRequest sends a request and returns the status, the content type and the body of the
// response. header has pairs of name and value.
func SendRequest(t *testing.T, method, url string, header ...string) (status int, kind, text string) {
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

// GatewayFile starts a `tideover gateway` with the configuration text, and waits until it serves.
func GatewayFile(t *testing.T, text string, env ...string) *Server {
	t.Helper()
	dir := ShortDir(t)
	s := &Server{Background: &Background{T: t, Folder: dir}, File: filepath.Join(dir, "tideover.yaml"), Data: filepath.Join(dir, "data"), Log: new(SyncBuffer)}
	WriteFile(t, s.File, text)
	s.Cmd, s.Mark = Command(t, "gateway", "--config", s.File, "--data", s.Data, "--listen", "127.0.0.1:0")
	s.Env = append(s.Env, env...)
	s.Stdout, s.Stderr = s.Log, s.Log
	s.Begin()
	testwait.Until(t, "the gateway serves", func() bool { return strings.Contains(s.Log.String(), "the page is at") })
	return s
}

// Address returns the URL of the server.
func (s *Server) Address() string {
	page, _, _ := strings.Cut(s.PageURL(), "?")
	return page
}

// Provider returns the status of a provider, as the command shows it.
func (s *Server) Provider(name string) (st gateway.Status) {
	s.T.Helper()
	o := s.RunCommand("providers", "show", name, "--json")
	if err := json.Unmarshal([]byte(o.Out), &st); err != nil {
		s.T.Fatalf("providers show: %v in %q; %q", err, o.Out, o.Stderr)
	}
	return st
}

// Upstream starts a server that answers with the statuses in order, and then repeats the last. It
// counts requests in asked, and returns its URL.
func Upstream(t *testing.T, asked *atomic.Int32, statuses ...int) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(asked.Add(1))
		b, _ := io.ReadAll(r.Body)
		w.WriteHeader(statuses[min(n, len(statuses))-1])
		fmt.Fprintf(w, "%s %s %s", r.Header.Get("Authorization"), r.URL, b)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Fetch sends a request, and returns the response and its body.
func Fetch(t *testing.T, method, url, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}
