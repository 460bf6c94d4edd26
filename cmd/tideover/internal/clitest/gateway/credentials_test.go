//go:build unix

package gateway_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// credential is one way in which a caller sends a secret. %s stands for the secret in
// header values, cookies, subprotocols and the query.
type credential struct {
	header   string              // name of the header
	value    string              // value of the header
	query    string              // part of the query
	trailer  bool                // the header is sent after the body
	encoding func(string) string // applied to the secret; nil means none
}

// basic returns the secret as the password of HTTP basic authentication.
func basic(secret string) string { return base64.StdEncoding.EncodeToString([]byte("user:" + secret)) }

var callerCredentials = []credential{
	{header: "Authorization", value: "Bearer %s"},
	{header: "Authorization", value: "Basic %s", encoding: basic},
	{header: "Authorization", value: "AWS4-HMAC-SHA256 Credential=AKIA/20260101/us/s3/aws4_request, Signature=%s"},
	{header: "Authorization", value: "Digest username=\"me\", response=\"%s\""},
	{header: "Proxy-Authorization", value: "Bearer %s"},
	{header: "X-Authorization", value: "%s"},
	{header: "Auth", value: "%s"},
	{header: "Authentication", value: "%s"},
	{header: "X-Auth-Token", value: "%s"},
	{header: "X-Key", value: "%s"},
	{header: "X-Api-Key", value: "%s"},
	{header: "Api-Key", value: "%s"},
	{header: "X-Goog-Api-Key", value: "%s"},
	{header: "Ocp-Apim-Subscription-Key", value: "%s"},
	{header: "X-Functions-Key", value: "%s"},
	{header: "Helicone-Auth", value: "Bearer %s"},
	{header: "Cf-Access-Client-Secret", value: "%s"},
	{header: "Cf-Aig-Authorization", value: "Bearer %s"},
	{header: "X-Portkey-Virtual-Key", value: "%s"},
	{header: "X-Amz-Security-Token", value: "%s"},
	{header: "DPoP", value: "%s"},
	{header: "X-Vault-Token", value: "%s"},
	{header: "X-Csrf-Token", value: "%s"},
	{header: "X-Hub-Signature-256", value: "sha256=%s"},
	{header: "Signature", value: "sig1=:%s:"},
	{header: "X-Forwarded-Client-Cert", value: "Hash=%s"},
	{header: "X-Shopify-Access", value: "%s"},
	{header: "X-Pw", value: "%s"},
	{header: "Mcp-Session-Id", value: "%s"},
	{header: "Openai-Organization", value: "%s"},
	{header: "Referer", value: "https://app.example/?token=%s"},
	{header: "Baggage", value: "user.token=%s"},
	{header: "X-Late-Key", value: "%s", trailer: true},

	{header: "Cookie", value: "session=%s"},
	{header: "Cookie", value: "theme=dark; __Host-id=%s"},
	{header: "Cookie2", value: "$Version=1; id=%s"},

	{header: "Sec-Websocket-Protocol", value: "realtime, openai-insecure-api-key.%s, openai-beta.realtime-v1"},
	{header: "Sec-Websocket-Protocol", value: "base64url.bearer.authorization.k8s.io.%s"},
	{header: "Sec-Websocket-Protocol", value: "access_token, %s"},

	{query: "token=%s"},
	{query: "client_secret=%s"},
	{query: "password=%s"},
	{query: "secret=%s"},
	{query: "jwt=%s"},
	{query: "session=%s"},
	{query: "key=%s"},
	{query: "k%%65y=%s"},
	{query: "access_token=%s"},
	{query: "id_token=%s"},
	{query: "refresh_token=%s"},
	{query: "api-key=%s"},
	{query: "apikey=%s"},
	{query: "subscription-key=%s"},
	{query: "sig=%s"},
	{query: "X-Amz-Signature=%s"},
	{query: "X-Amz-Credential=%s"},
	{query: "code=%s"},
	{query: "auth=%s"},
	{query: "Authorization=Bearer+%s"},
	{query: "passwd=%s"},
	{query: "hapikey=%s"},
	{query: "limit=2;token=%s"},
	{query: "TOKEN=%s&limit=2"},
}

// name describes the credential, for messages of the test.
func (c *credential) name() string {
	if c.header != "" {
		return c.header + ": " + c.value
	}
	return "?" + c.query
}

// recorder is a server that stores all requests.
type recorder struct {
	*httptest.Server
	mu   sync.Mutex
	text strings.Builder
}

func newRecorder(t *testing.T, answer http.HandlerFunc) *recorder {
	t.Helper()
	r := new(recorder)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		dump, _ := httputil.DumpRequest(req, true)
		r.mu.Lock()
		fmt.Fprintf(&r.text, "%s%v\n", dump, req.Trailer)
		r.mu.Unlock()
		answer(w, req)
	}))
	t.Cleanup(r.Close)
	return r
}

// received returns all requests as text.
func (r *recorder) received() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// send sends a request that contains the secret in this way.
func (c *credential) send(t *testing.T, address, secret string) *http.Response {
	t.Helper()
	value := secret
	if c.encoding != nil {
		value = c.encoding(secret)
	}
	query := "?limit=1"
	if c.query != "" {
		query += "&" + fmt.Sprintf(c.query, value)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, address+query, io.NopCloser(strings.NewReader("{}")))
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = -1
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Openai-Beta", "assistants=v2")
	if c.trailer {
		req.Trailer = http.Header{c.header: {fmt.Sprintf(c.value, value)}}
	} else if c.header != "" {
		req.Header.Set(c.header, fmt.Sprintf(c.value, value))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", c.name(), err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp
}

// echo fails in ways that repeat the request's credentials: in a status line that net/http quotes,
// in the name of an event, in a trailer.
func echo(w http.ResponseWriter, r *http.Request) {
	var all strings.Builder
	for name, values := range r.Header {
		fmt.Fprintf(&all, "%s=%s ", name, strings.Join(values, " "))
	}
	all.WriteString(r.URL.RawQuery + fmt.Sprint(r.Trailer))
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	switch said := all.String(); r.URL.Path {
	case "/v1/status-line":
		fmt.Fprintf(conn, "HTTP/1.1 %s\r\n\r\n", said)
	case "/v1/header":
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%s\r\n\r\n", said)
	case "/v1/event":
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: %s\ndata: {\"error\":{\"type\":\"x\"}}\n\n", said)
	default:
		fmt.Fprintf(conn, "HTTP/1.1 503 Down\r\nX-Echo: %s\r\nContent-Length: 0\r\n\r\n", said)
	}
}

// No credential of a caller reaches a provider that the caller did not address, the log, a metric,
// the web page, the API or the stream of events.
func TestNoCredentialOfACallerReachesAFallback(t *testing.T) {
	t.Parallel()
	main := newRecorder(t, echo)
	spare := newRecorder(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the spare") })
	const provider = "{preset: openai, base-url: %s%s, policy: fixed(1ms) attempts=3, fallback: [spare], fallback-after: 1, retry-posts: unanswered, breaker: {consecutive: 0, failures: 100%%, of-last: 1000000}}"
	s := clitest.BeginServeWith(t, []string{"--log-level", "debug"}, fmt.Sprintf("version: 1\nproviders:\n  keyed: "+provider+"\n  open: "+provider+"\n  spare: {preset: openai, base-url: %s, auth: \"${env:SPARE}\"}\n",
		main.URL, ", auth: \"${env:MAIN}\"", main.URL, "", spare.URL), "", "MAIN=key-of-the-main-one", "SPARE=key-of-the-spare-one")

	s.AwaitReady()
	events, live := newStream(t, s, "api/v1/events?after=0"), newStream(t, s, "live/providers/open")
	var secrets []string
	for _, path := range []string{"p/open/v1/things", "p/keyed/v1/things", "p/open/v1/status-line", "p/open/v1/header", "p/open/v1/event"} {
		for i, c := range callerCredentials {
			secret := fmt.Sprintf("caller%dsecret%dvalue", len(secrets), i)
			secrets = append(secrets, secret)
			resp := c.send(t, s.Address()+path, secret)
			if got := resp.Header.Get("X-Tideover-Provider"); got != "spare" {
				t.Errorf("%s with %s was answered by %q, %s; want the fallback", path, c.name(), got, resp.Status)
			}
		}
	}
	for _, needed := range []string{"Bearer key-of-the-spare-one", "Openai-Beta: assistants=v2", "Content-Type: application/json", "?limit=1", "{}"} {
		if !strings.Contains(spare.received(), needed) {
			t.Errorf("the fallback was not sent %q", needed)
		}
	}
	if !strings.Contains(main.received(), secrets[0]) {
		t.Error("the addressed provider did not get the caller's key: the test does not test")
	}
	testwait.Until(t, "the event stream has all failovers", func() bool {
		return strings.Count(events.String(), "open → spare") >= 4*len(callerCredentials)
	})

	shown := map[string]string{
		"the fallback":    spare.received(),
		"the metrics":     s.Metrics(),
		"the API":         s.Read("/api/v1/providers") + s.Read("/api/v1/providers/open") + s.Read("/api/v1/providers/keyed"),
		"the pages":       s.Read("/") + s.Read("/providers") + s.Read("/providers/open") + s.Read("/providers/keyed") + s.Read("/overview"),
		"the event list":  s.Read("/api/v1/events?after=0&follow=false"),
		"the live events": events.String(),
		"the live page":   live.String(),
		"the verbs":       s.RunCommand("providers").Out + s.RunCommand("providers", "show", "open").Out + s.RunCommand("providers", "show", "keyed", "--json").Out,
	}
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
	shown["the log"] = s.Log.String()
	shown["the files"] = filesIn(t, s.Data)
	for what, text := range shown {
		if text == "" {
			t.Errorf("%s: nothing to look at", what)
		}
		for i, secret := range secrets {
			c := callerCredentials[i%len(callerCredentials)]
			if c.encoding != nil {
				secret = c.encoding(secret)
			}
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s: %s is in …%s…", what, c.name(), text[max(at-100, 0):min(at+60, len(text))])
			}
		}
	}
}

// newStream reads the stream of events at the path until the test ends, and returns the buffer that
// gets the text.
func newStream(t *testing.T, s *clitest.Server, path string) *clitest.SyncBuffer {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(s.Data, "token"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Address()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, resp.Status)
	}
	out, ended := new(clitest.SyncBuffer), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(out, resp.Body)
	}()
	t.Cleanup(func() {
		cancel()
		resp.Body.Close()
		<-ended
	})
	return out
}

// filesIn returns the contents of all files of the folder.
func filesIn(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
