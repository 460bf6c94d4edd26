package tracing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// receiver is an OTLP receiver that rejects the first requests and accepts the others.
type receiver struct {
	mu     sync.Mutex
	refuse int // number of requests that it still rejects
	bodies []string
	auth   string
	path   string
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse > 0 {
		r.refuse--
		http.Error(w, "later", http.StatusServiceUnavailable)
		return
	}
	r.bodies, r.auth, r.path = append(r.bodies, string(body)), req.Header.Get("Authorization"), req.URL.Path
}

// roundTrip is an [http.RoundTripper] that is a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// handledBy returns a transport that calls the handler without a socket.
func handledBy(h http.Handler) roundTrip {
	return func(req *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		return w.Result(), nil
	}
}

func secretText(t *testing.T, src string) *template.SecretText {
	t.Helper()
	text, err := template.Parse(src, template.WithRefs, template.Fields{})
	if err != nil {
		t.Fatal(err)
	}
	return template.NewSecretText(text, "/")
}

// exporter returns an exporter that sends its requests through the transport receiver.
func exporter(t *testing.T, receiver roundTrip, log *slog.Logger) *Exporter {
	t.Helper()
	redactor := new(secret.Redactor)
	secrets := secret.Resolver{LookupEnv: func(string) (string, bool) { return "planted-secret-value", true }, Redactor: redactor}
	x, err := New(Options{
		Config:  &Config{Endpoint: secretText(t, "http://127.0.0.1:4318"), Headers: []template.NamedSecret{{Name: "Authorization", Value: secretText(t, "Bearer ${env:OTLP}")}}},
		Secrets: secrets, Redact: redactor.String, Version: "v1", Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	x.client.Transport = receiver
	return x
}

// TestSpansAreSent also checks that spans do not contain a secret of an error.
func TestSpansAreSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // virtual time: Run has only two seconds to send the last spans
		r := &receiver{}
		x := exporter(t, handledBy(r), slog.New(slog.DiscardHandler))
		for _, ev := range run() {
			if ev.Err != nil {
				ev.Err = errors.New("401 for planted-secret-value")
			}
			x.Observe(ev)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // Run sends the remaining spans when its context ends
		if err := x.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if r.path != "/v1/traces" || r.auth != "Bearer planted-secret-value" || len(r.bodies) != 1 {
			t.Fatalf("%s with %s: %q", r.path, r.auth, r.bodies)
		}
		if n := strings.Count(r.bodies[0], `"spanId"`); n != 3 || strings.Contains(r.bodies[0], "planted") || !json.Valid([]byte(r.bodies[0])) {
			t.Errorf("%d spans in %s", n, r.bodies[0])
		}
	})
}

func TestAReceiverMayBeAwayForAMoment(t *testing.T) {
	t.Parallel()
	r := &receiver{refuse: 2}
	x := exporter(t, handledBy(r), slog.New(slog.DiscardHandler))
	for _, ev := range run() {
		x.Observe(ev)
	}
	x.flush(t.Context(), retry.Must("fixed(1ms) attempts=3"))
	if len(r.bodies) != 1 {
		t.Errorf("%d requests were taken", len(r.bodies))
	}
}

// TestNobodyIsHeldUp adds more spans than the buffer can hold, while the receiver rejects all requests.
// Observe must not block.
func TestNobodyIsHeldUp(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	x := exporter(t, handledBy(http.NotFoundHandler()), slog.New(slog.NewTextHandler(&log, nil)))
	for range maxBuffer/3 + 1 { // each run has three spans
		for _, ev := range run() {
			x.Observe(ev)
		}
	}
	if n := len(x.spans); n != maxBuffer {
		t.Errorf("%d spans are kept", n)
	}
	x.flush(t.Context(), retry.Must("fixed(0s) attempts=2"))
	x.client.Transport = roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
	x.flush(t.Context(), retry.Must("fixed(0s) attempts=2"))
	if n := strings.Count(log.String(), "spans were dropped"); n != 2 || strings.Contains(log.String(), "planted") {
		t.Errorf("the log is %s", log.String())
	}
	if n := len(x.spans); n != maxBuffer-2*maxBatch {
		t.Errorf("%d spans are left", n)
	}
}
