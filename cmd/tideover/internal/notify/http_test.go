package notify_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/retry"
)

// recorder is a server that records the requests that it gets.
type recorder struct {
	*httptest.Server
	mu       sync.Mutex
	requests []request
}

type request struct {
	method, path, body string
	header             http.Header
}

// record starts a recorder whose responses answer writes. n is the number of the request,
// from 0.
func record(t testing.TB, answer func(n int, w http.ResponseWriter, r *http.Request)) *recorder {
	t.Helper()
	rec := new(recorder)
	rec.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		rec.mu.Lock()
		n := len(rec.requests)
		rec.requests = append(rec.requests, request{r.Method, r.URL.Path, string(body), r.Header})
		rec.mu.Unlock()
		answer(n, w, r)
	}))
	t.Cleanup(rec.Close)
	return rec
}

func fine(int, http.ResponseWriter, *http.Request) {}

func (r *recorder) last(t testing.TB) request {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.requests) == 0 {
		t.Fatal("no request has arrived")
	}
	return r.requests[len(r.requests)-1]
}

func TestNtfy(t *testing.T) {
	srv := record(t, fine)
	s := sender(t, `{ntfy: "`+srv.URL+`/my-topic", token: "${env:T}", priority: high, tags: [a, "b c"]}`, "T=tk_PLANTED")
	m := message()
	m.Title = "nächtlich\r\nX-Evil: 1 gave up"
	if err := s.Send(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	got := srv.last(t)
	for name, want := range map[string]string{
		"Title": "=?utf-8?b?bsOkY2h0bGljaCBYLUV2aWw6IDEgZ2F2ZSB1cA==?=", "Priority": "high", "Tags": "a,b c",
		"Click": m.URL, "Authorization": "Bearer tk_PLANTED", "X-Tideover-Message": m.ID, "User-Agent": "tideover", "X-Evil": "",
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got.header.Get(name), want)
		}
	}
	if got.path != "/my-topic" || got.method != "POST" || got.body != m.Text {
		t.Errorf("got %s %s %q", got.method, got.path, got.body)
	}
}

func TestSlack(t *testing.T) {
	srv := record(t, fine)
	s := sender(t, `{slack: "${env:U}"}`, "U="+srv.URL+"/services/PLANTED")
	m := message()
	m.Text = "a < b & c > d"
	if err := s.Send(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	want := `{"text":"*nightly gave up*\na \u0026lt; b \u0026amp; c \u0026gt; d\nhttp://127.0.0.1:7878/runs/01K9"}`
	if got := srv.last(t); got.body != want || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("got %s (%s), want %s", got.body, got.header.Get("Content-Type"), want)
	}
}

func TestWebhookSendsTheMessageAsJSON(t *testing.T) {
	srv := record(t, fine)
	m := message()
	if err := sender(t, `{webhook: "`+srv.URL+`"}`).Send(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	want, _ := json.Marshal(m)
	got := srv.last(t)
	if got.body != string(want) || got.header.Get("Idempotency-Key") != m.ID || got.method != "POST" || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("got %s %s %v", got.method, got.body, got.header)
	}
}

func TestWebhookSendsItsTemplate(t *testing.T) {
	for _, c := range []struct{ body, want, kind string }{
		{`{{ .title }} after {{ .attempt }}/{{ .attempts }}`, "nightly gave up after 5/8", "text/plain; charset=utf-8"},
		{`{"text": {{ json .title }}, "key": "${env:K}"}`, `{"text": "nightly gave up", "key": "PLANTED"}`, "application/json"},
	} {
		srv := record(t, fine)
		s := sender(t, `{webhook: "`+srv.URL+`", method: PUT, headers: {X-Key: "k ${env:K}"}, body: '`+c.body+`'}`, "K=PLANTED")
		if err := send(s); err != nil {
			t.Fatal(err)
		}
		got := srv.last(t)
		if got.method != "PUT" || got.body != c.want || got.header.Get("Content-Type") != c.kind || got.header.Get("X-Key") != "k PLANTED" {
			t.Errorf("got %s %s %v, want %s as %s", got.method, got.body, got.header, c.want, c.kind)
		}
	}
}

func TestSendSucceedsWhenTheServerDoes(t *testing.T) {
	srv := record(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n < 2 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	s := sender(t, `{ntfy: "`+srv.URL+`/t"}`)
	policy, err := retry.Parse("fixed(1ms) attempts=8")
	if err != nil {
		t.Fatal(err)
	}
	runner, err := retry.New(policy)
	if err != nil {
		t.Fatal(err)
	}
	err = runner.Do(context.Background(), func(ctx context.Context) error { return s.Send(ctx, message()) })
	if err != nil || len(srv.requests) != 3 {
		t.Errorf("Do = %v after %d requests, want 3", err, len(srv.requests))
	}
}

func TestWhatAnAnswerMeans(t *testing.T) {
	for _, c := range []struct {
		name  string
		code  int
		after string
		want  retry.Outcome
	}{
		{"503 may pass", 503, "", retry.Outcome{}},
		{"429 asks for less", 429, "", retry.Outcome{Class: retry.ClassThrottled}},
		{"429 states a wait", 429, "7", retry.Outcome{Class: retry.ClassThrottled, After: 7 * time.Second}},
		{"511 is of a portal", 511, "", retry.Outcome{}},
		{"404 stays", 404, "", retry.Outcome{Class: retry.ClassPermanent}},
		{"401 stays", 401, "", retry.Outcome{Class: retry.ClassPermanent}},
		{"304 stays", 304, "", retry.Outcome{Class: retry.ClassPermanent}},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := record(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				w.WriteHeader(c.code)
			})
			wantError(t, send(sender(t, `{webhook: "`+srv.URL+`"}`)), "POST "+srv.URL+": status ")
			err := send(sender(t, `{ntfy: "`+srv.URL+`/topic-PLANTED"}`))
			wantError(t, err, fmt.Sprint(c.code), "POST "+srv.URL+": status ")
			if got := retry.OutcomeOf(err); got != c.want {
				t.Errorf("outcome %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestASendEndsWhenItsTimeIsUp(t *testing.T) {
	srv := record(t, func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	err := send(sender(t, `{ntfy: "`+srv.URL+`/topic-PLANTED", timeout: 30ms}`))
	wantError(t, err, "timed out after 30ms")
	if !errors.Is(err, context.DeadlineExceeded) || retry.OutcomeOf(err) != (retry.Outcome{}) {
		t.Errorf("errors.Is(%v, DeadlineExceeded) is false, or it is not transient: %+v", err, retry.OutcomeOf(err))
	}
}

func TestASendEndsWhenItsCallerDoes(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	srv := record(t, func(_ int, _ http.ResponseWriter, r *http.Request) { cancel(); <-r.Context().Done() })
	err := sender(t, `{ntfy: "`+srv.URL+`/topic-PLANTED"}`).Send(ctx, message())
	wantError(t, err, "context canceled")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("errors.Is(%v, Canceled) is false", err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	other := record(t, fine)
	srv := record(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/PLANTED", http.StatusTemporaryRedirect)
	})
	err := send(sender(t, `{ntfy: "`+srv.URL+`/t", token: "${env:T}"}`, "T=tk_PLANTED"))
	wantError(t, err, "redirects are not followed", other.URL)
	if len(other.requests) != 0 || retry.OutcomeOf(err).Class != retry.ClassPermanent {
		t.Errorf("the other host was asked %d times; outcome %+v", len(other.requests), retry.OutcomeOf(err))
	}
}

// TestNoErrorHasASecret uses a secret in every setting, and causes every kind of error. No
// error may contain the secret.
func TestNoErrorHasASecret(t *testing.T) {
	echo := func(code int) func(int, http.ResponseWriter, *http.Request) {
		return func(_ int, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			fmt.Fprintf(w, "who is %s with %v?", r.URL, r.Header)
		}
	}
	closed := record(t, fine)
	closed.Close()
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	secure.Config.ErrorLog = discard
	secure.StartTLS()
	t.Cleanup(secure.Close)
	for name, base := range map[string]string{
		"400": record(t, echo(400)).URL, "403": record(t, echo(403)).URL, "500": record(t, echo(500)).URL, "429": record(t, echo(429)).URL,
		"refused": closed.URL, "untrusted": secure.URL, "not HTTP": strings.Replace(secure.URL, "https", "http", 1),
		"unknown host": "http://host.invalid", "bad port": "http://127.0.0.1:1",
		"hangs": record(t, func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }).URL,
		"cut off": record(t, func(int, http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		}).URL,
	} {
		env := []string{"U=" + base + "/services/PLANTED-path?key=PLANTED-query", "K=k3y-PLANTED"}
		timeout := "timeout: 1h"
		if name == "hangs" || name == "unknown host" { // only the timeout ends the first, and the resolver may be slow for the second
			timeout = "timeout: 100ms"
		}
		for kind, yaml := range map[string]string{
			"ntfy": `{ntfy: "${env:U}", token: "${env:K}", ` + timeout + `}`, "slack": `{slack: "${env:U}", ` + timeout + `}`,
			"webhook": `{webhook: "${env:U}", headers: {Authorization: "Bearer ${env:K}"}, body: "key=${env:K}", ` + timeout + `}`,
			"user":    `{webhook: "` + strings.Replace(base, "//", "//me:${env:K}@", 1) + `/x", ` + timeout + `}`,
			"plain":   `{webhook: "` + base + `/in/PLANTED-path", ` + timeout + `}`,
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				wantError(t, send(sender(t, yaml, env...)), `notify "phone": `)
			})
		}
	}
}

func TestAnUntrustedServerMayBecomeTrusted(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.ErrorLog = discard
	srv.StartTLS()
	t.Cleanup(srv.Close)
	n, env := load(t, `{ntfy: "`+srv.URL+`/t"}`)
	if err := send(open(t, n, env)); retry.OutcomeOf(err).Class != retry.ClassTransient {
		t.Errorf("Send = %v, want a transient error", err)
	}
	env.RootCAs = pool(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}))
	if err := send(open(t, n, env)); err != nil {
		t.Error(err)
	}
}

// TestAnUnknownHostMayBecomeKnown checks that an unknown host is retried: a laptop that
// wakes up may have no name resolution yet.
func TestAnUnknownHostMayBecomeKnown(t *testing.T) {
	for _, yaml := range []string{
		`{ntfy: "http://host.invalid/t", timeout: 1s}`, `{slack: "${env:U}", timeout: 1s}`, strings.Replace(emailYAML("host.invalid:25", "tls: none"), "1h", "1s", 1),
	} {
		if err := send(sender(t, yaml, "U=https://host.invalid/x")); err == nil || retry.OutcomeOf(err).Class != retry.ClassTransient {
			t.Errorf("%s: Send = %v, want a transient error", yaml, err)
		}
	}
}

func TestWhatAnErrorOfTheNetworkMeans(t *testing.T) {
	for _, c := range []struct {
		err  error
		want retry.Class
	}{
		{&net.DNSError{Err: "no such host", Name: "ntfy.sh", IsNotFound: true}, retry.ClassTransient},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "server misbehaving", IsTemporary: true}}, retry.ClassTransient},
		{&tls.CertificateVerificationError{Err: x509.HostnameError{}}, retry.ClassTransient},
		{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, retry.ClassTransient},
		{http.ErrSchemeMismatch, retry.ClassTransient},
		{&net.AddrError{Err: "missing port in address", Addr: "x"}, retry.ClassPermanent},
	} {
		if got := retry.OutcomeOf(notify.Network(fmt.Errorf("send: %w", c.err))).Class; got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

// late is a template that fails only for messages about a seventh or later attempt. So it
// renders with all sample messages of the loader.
const late = `{{ if gt .attempt 6 }}{{ slice .line 0 100 }}{{ end }}{{ .title }}`

func TestAMessageIsSentWithoutATemplateThatFails(t *testing.T) {
	srv := record(t, fine)
	s := sender(t, `{webhook: "`+srv.URL+`", headers: {X-Key: "${env:K}"}, body: 'PLANTED ${env:K} `+late+`'}`, "K=k3y-PLANTED")
	m := message()
	if err := s.Send(context.Background(), m); err != nil || srv.last(t).body != "PLANTED k3y-PLANTED nightly gave up" {
		t.Fatalf("Send = %v, sent %s", err, srv.last(t).body)
	}
	m.Attempt = 7
	if err := s.Send(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	var got notify.Message
	last := srv.last(t)
	if err := json.Unmarshal([]byte(last.body), &got); err != nil || last.header.Get("Content-Type") != "application/json" || last.header.Get("X-Key") != "k3y-PLANTED" {
		t.Fatalf("sent %s as %v: %v", last.body, last.header, err)
	}
	note := got.Note
	if got.Note = ""; !reflect.DeepEqual(got, m) || !strings.HasPrefix(note, `notify "phone": body: template: `) || strings.Contains(note, "PLANTED") {
		t.Errorf("sent %s", last.body)
	}
}

func TestAttemptsAreAlwaysANumber(t *testing.T) {
	srv := record(t, fine)
	s := sender(t, `{webhook: "`+srv.URL+`", body: "{{ if gt .attempts 3 }}many{{ else if lt .attempts 0 }}no limit{{ end }} {{ .attempts }}"}`)
	m := message()
	for attempts, want := range map[int]string{8: "many 8", retry.Unlimited: "no limit -1", 2: " 2"} {
		m.Attempts = attempts
		if err := s.Send(context.Background(), m); err != nil || srv.last(t).body != want {
			t.Errorf("Send = %v, sent %q, want %q", err, srv.last(t).body, want)
		}
	}
}

func TestASecretThatIsGoneMayComeBack(t *testing.T) {
	srv := record(t, fine)
	file := t.TempDir() + "/token"
	if err := os.WriteFile(file, []byte("first-PLANTED"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := sender(t, `{ntfy: "`+srv.URL+`/t", token: "${file:`+file+`}"}`)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	err := send(s)
	wantError(t, err, "${file:")
	if retry.OutcomeOf(err).Class != retry.ClassTransient {
		t.Errorf("outcome %+v, want transient", retry.OutcomeOf(err))
	}
	if err := os.WriteFile(file, []byte("second-PLANTED"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := send(s); err != nil || srv.last(t).header.Get("Authorization") != "Bearer second-PLANTED" {
		t.Errorf("Send = %v", err)
	}
}

func TestAMessageHasNoSecrets(t *testing.T) {
	srv := record(t, fine)
	m := message()
	m.Text, m.Line = "last: invalid key k3y-PLANTED", "k3y-PLANTED"
	s := sender(t, `{webhook: "`+srv.URL+`", headers: {X-Key: "${env:K}"}}`, "K=k3y-PLANTED")
	if err := s.Send(context.Background(), m); err != nil || strings.Contains(srv.last(t).body, "PLANTED") {
		t.Errorf("Send = %v, sent %s", err, srv.last(t).body)
	}
}
