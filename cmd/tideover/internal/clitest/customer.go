//go:build unix

package clitest

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/nostr"
)

// NostrKey parses a secret key.
func NostrKey(t *testing.T, text string) nostr.SecretKey {
	t.Helper()
	k, err := nostr.ParseSecretKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Customer signs events with its own key.
type Customer struct {
	T   *testing.T
	Key nostr.SecretKey
}

// NewCustomer returns a customer with a new key.
func NewCustomer(t *testing.T) Customer {
	t.Helper()
	k, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return Customer{t, k}
}

// Event returns a signed event of the customer.
func (a Customer) Event(kind int, content string, tags ...nostr.Tag) *nostr.Event {
	a.T.Helper()
	e := &nostr.Event{Kind: kind, CreatedAt: time.Now().Unix(), Content: content, Tags: tags}
	if err := e.Sign(a.Key); err != nil {
		a.T.Fatal(err)
	}
	return e
}

// AnswersTo returns the provider's events about a request, in order of arrival.
func AnswersTo(events []*nostr.Event, request *nostr.Event) (list []*nostr.Event) {
	for _, e := range events {
		if e.Tags.Has("e", request.ID) && (e.Kind == 7000 || e.Kind == 6900) {
			list = append(list, e)
		}
	}
	return list
}

// Results returns the events that are results.
func Results(list []*nostr.Event) []*nostr.Event {
	return slices.DeleteFunc(slices.Clone(list), func(e *nostr.Event) bool { return e.Kind != 6900 })
}

// Metrics returns the metrics page.
func (s *Server) Metrics() string {
	s.T.Helper()
	return s.Read("/metrics")
}

// Read sends a GET request with the token, and returns the body of the response.
func (s *Server) Read(path string) string {
	s.T.Helper()
	page, err := url.Parse(s.PageURL())
	if err != nil {
		s.T.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(s.Data, "token"))
	if err != nil {
		s.T.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.T.Context(), http.MethodGet, "http://"+page.Host+path, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.T.Fatal(err)
	}
	return string(text)
}
