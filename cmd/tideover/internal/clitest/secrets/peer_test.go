//go:build unix

package secrets_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// leakyPeer is a fake for all servers that the server talks to. It answers every request with the
// planted secrets, in all spellings.
type leakyPeer struct {
	*httptest.Server
	open  string   // address of a provider to which clients send their own keys
	mail  string   // address of its mail server
	spill []string // all secrets in all spellings
	plain []string // all secrets, not encoded

	mu    sync.Mutex
	seen  map[string]int      // number of requests, by path
	heard map[string][]string // bodies of the requests by path, without their credentials
}

func newLeakyPeer(t *testing.T) *leakyPeer {
	t.Helper()
	w := &leakyPeer{seen: map[string]int{}, heard: map[string][]string{}}
	w.Server = httptest.NewServer(w)
	t.Cleanup(w.Close)
	open := httptest.NewServer(w)
	t.Cleanup(open.Close)
	w.open = open.URL
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.mail = l.Addr().String()
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { w.serveSMTP(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); served.Wait() })
	return w
}

// record stores a message to this address, and returns how many messages have come there.
func (w *leakyPeer) record(where, what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[where]++
	w.heard[where] = append(w.heard[where], what)
	return w.seen[where]
}

// received returns the messages to this address.
func (w *leakyPeer) received(where string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.heard[where]...)
}

// some returns all secrets in all spellings. Each n gives another order, because errors contain
// only the beginning of a text.
func (w *leakyPeer) some(n int) string {
	at := n * 7 % len(w.spill)
	return strings.Join(append(append([]string(nil), w.spill[at:]...), w.spill[:at]...), "\n")
}

// ServeHTTP implements [http.Handler].
func (w *leakyPeer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	kind, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch kind {
	case "told": // a message: the first one fails and is retried; all to "lost" fail
		where, _, _ := strings.Cut(rest, "/")
		n := w.record(where, strings.Join([]string{r.Header.Get("Title"), r.Header.Get("Click"), string(body)}, "\n"))
		if n == 1 || where == "lost" {
			http.Error(rw, w.some(n), http.StatusServiceUnavailable)
		}
	case "spans":
		if w.record(kind, string(body)) == 1 {
			reply(rw, "HTTP/1.1 503 "+firstLineOf(w.some(3))+"\r\nContent-Length: 0\r\n\r\n")
		}
	case "own": // the answer repeats the credentials of the gateway's client, not the planted secrets
		own := fmt.Sprint(r.Header.Get("Authorization"), " ", r.URL.Query().Get("key"), " ", r.Header.Get("Cookie"))
		misbehave(rw, r, own, own)
	default:
		n := w.record(kind, "")
		misbehave(rw, r, w.some(n), firstLineOf(w.plain[n%len(w.plain)]))
	}
}

// firstLineOf returns the first line of a text.
func firstLineOf(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// modes are the kinds of faulty answers. The parameter mode of a request selects one.
var modes = []string{"ok", "fail", "refuse", "quota", "redirect", "reason", "nonsense", "header", "chunk", "short", "more", "split", "border", "path", "stream", "trailer"}

// misbehave sends a faulty answer that contains the text. The parameter mode of the request selects
// the kind of fault. plain is a secret that is not encoded.
func misbehave(w http.ResponseWriter, r *http.Request, text, plain string) {
	line := firstLineOf(text)
	switch r.URL.Query().Get("mode") {
	case "ok":
		w.Header().Set("X-Ratelimit-Remaining-Requests", line)
		w.Header().Set("X-Said", line)
		_, _ = io.WriteString(w, text)
	case "refuse":
		w.Header().Set("WWW-Authenticate", line)
		http.Error(w, text, http.StatusUnauthorized)
	case "quota":
		w.Header().Set("Retry-After", line)
		w.Header().Set("X-Ratelimit-Reset", line)
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprintf(w, `{"error": {"code": "insufficient_quota", "type": %q, "message": %q}}`, plain, plain)
	case "redirect":
		w.Header().Set("Location", "/elsewhere?key="+line)
		w.WriteHeader(http.StatusFound)
	case "reason":
		reply(w, "HTTP/1.1 503 "+line+"\r\nContent-Length: 0\r\n\r\n")
	case "nonsense":
		reply(w, "HTTP/1.1 "+plain+"\r\n\r\n")
	case "header":
		reply(w, "HTTP/1.1 200 OK\r\n"+plain+"\r\n\r\n")
	case "chunk":
		reply(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+line+"\r\n")
	case "short":
		reply(w, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"+text)
	case "more": // unsolicited bytes, which net/http logs
		reply(w, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", plain)
	case "split":
		for _, half := range []string{line[:len(line)/2], line[len(line)/2:]} {
			_, _ = io.WriteString(w, half)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(20 * time.Millisecond) // real clock: lets the halves arrive apart, which must make no difference
		}
	case "border":
		border(w, line)
	case "path":
		http.Error(w, "Cannot "+r.Method+" "+r.RequestURI+"\n"+r.URL.Path, http.StatusNotFound)
	case "stream":
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":%q,\"message\":%q}}\n\n", plain, plain)
	case "trailer":
		w.Header().Set("Trailer", "X-Said")
		_, _ = io.WriteString(w, "ok")
		w.Header().Set("X-Said", line)
	default:
		http.Error(w, text, http.StatusInternalServerError)
	}
}

// border writes a body in which a secret crosses the limits for stored text, 1 KiB, and for the
// text that is read, 2 KiB.
func border(w io.Writer, line string) {
	_, _ = io.WriteString(w, strings.Repeat(line+"\n", 2048/(len(line)+1)+1))
}

// reply sends raw bytes that no server would send, piece by piece, and closes the connection.
func reply(w http.ResponseWriter, pieces ...string) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	for _, p := range pieces {
		_, _ = io.WriteString(c, p)
		time.Sleep(20 * time.Millisecond) // real clock: lets the pieces arrive apart, which must make no difference
	}
}

// serveSMTP is a fake SMTP server. It rejects the first login, and its replies repeat what it has
// received.
func (w *leakyPeer) serveSMTP(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	say := func(text string) { _, _ = io.WriteString(c, text+"\r\n") }
	say("220 here")
	for in := bufio.NewReader(c); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch verb, rest, _ := strings.Cut(strings.TrimSpace(line), " "); strings.ToUpper(verb) {
		case "EHLO":
			say("250-here\r\n250 AUTH PLAIN")
		case "AUTH":
			_, coded, _ := strings.Cut(rest, " ")
			said, _ := base64.StdEncoding.DecodeString(coded)
			if w.record("auth", "") == 1 {
				say("454 not now: " + coded + " " + strings.ReplaceAll(string(said), "\x00", " "))
				continue
			}
			say("235 welcome")
		case "DATA":
			say("354 go on")
			var mail strings.Builder
			for line, err = in.ReadString('\n'); err == nil && line != ".\r\n"; line, err = in.ReadString('\n') {
				mail.WriteString(line)
			}
			w.record("mail", mail.String())
			say("250 taken")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 fine")
		}
	}
}
