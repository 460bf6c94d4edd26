package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// If an answer breaks off, the client gets the part that arrived, and then the connection is
// aborted. The provider gets the POST once, and a client that retries connection errors
// sees that the request was answered.
func TestAnAnswerThatIsCutIsPassedOnAsFarAsItCame(t *testing.T) {
	const (
		sized  = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
		stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
		end    = "0\r\n\r\n"
	)
	chunk := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
	half := strings.Repeat("x", 500)
	for _, tt := range []struct {
		name   string
		answer string // answer of the provider, which then closes the connection
		body   string // what the client gets before the error
	}{
		{"half of a body", sized + half, half},
		{"a head without a body", sized, ""},
		{"a stream without events", stream, ""},
		{"a stream before its first content", stream + chunk(evStart), evStart},
		{"a stream after its first content", stream + chunk(evStart+evContent), evStart + evContent},
		{"a stream that ends before its first content", stream + chunk(evStart) + end, evStart},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", tt.name, http2), func(t *testing.T) {
				t.Parallel()
				u := newSocketUpstream(t, writes(tt.answer))
				g, s := newSocketGateway(t, spec(t, "it", Anthropic, "http://"+u.address))
				resp, err := socketClient(t, http2).Post(s.URL+"/p/it/v1/messages", "application/json", strings.NewReader(chat))
				if err != nil {
					t.Fatalf("Post = %v after %d requests, want the beginning of the answer", err, u.requests.Load())
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if resp.StatusCode != http.StatusOK || string(body) != tt.body || err == nil {
					t.Errorf("got %d, %d bytes, %v, want 200, %d bytes and an error", resp.StatusCode, len(body), err, len(tt.body))
				}
				if got := resp.Header.Get(shouldRetry); got != "false" {
					t.Errorf("%s: %q, want false", shouldRetry, got)
				}
				if n := totalsOf(t, g, "it"); u.requests.Load() != 1 || n.CutShort != 1 {
					t.Errorf("the provider saw %d requests, want 1; counted %+v", u.requests.Load(), n)
				}
			})
		}
	}
}

// A POST that the user declares repeatable is sent again if the client has got nothing of
// the answer.
func TestAStreamThatIsCutIsRepeatedWhereItMayBe(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header string
		change func(*Spec)
	}{
		{"Idempotency-Key", "Idempotency-Key", func(*Spec) {}},
		{"retry-posts: unanswered", "X-Other", func(s *Spec) { s.RetryPosts = PostsUnanswered }},
		{"repeatable", "X-Other", func(s *Spec) { s.Repeatable = []Route{{"POST", "/v1/messages"}} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			u := newSocketUpstream(t, writes("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"))
			spare := newSocketUpstream(t, writes("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nspare"))
			_, s := newSocketGateway(t,
				spec(t, "it", Anthropic, "http://"+u.address, fallback("spare"), tt.change),
				spec(t, "spare", Anthropic, "http://"+spare.address))
			req, err := http.NewRequest(http.MethodPost, s.URL+"/p/it/v1/messages", strings.NewReader(chat))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(tt.header, "one")
			resp, err := socketClient(t, false).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if got := resp.Header.Get(shouldRetry); got != "" {
				t.Errorf("%s: %q, want none: the client may repeat the request too", shouldRetry, got)
			}
			if body, err := io.ReadAll(resp.Body); string(body) != "spare" || err != nil || u.requests.Load() != 2 {
				t.Errorf("got %q, %v after %d requests, want the fallback's answer after 2", body, err, u.requests.Load())
			}
		})
	}
}
