package retryhttp_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

const (
	created  = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n"
	content  = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"hi\"}}\n\n"
	overload = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
	speaks   = "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n"
	isEvents = "Content-Type: text/event-stream; charset=utf-8"
)

var holding = retryhttp.WithStreams(retryhttp.Streams{Hold: 5 * time.Second})

func TestB10StreamThatBeginsWithAnErrorIsThatError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name, first string
			code        int // code of the failure; 0 means no failure
			retried     bool
		}{
			{"Anthropic is overloaded", overload, 529, true},
			{"F14 an error after the message has started", created + ": keep-alive\n\n" + overload, 529, true},
			{"lines that end in CR LF", strings.ReplaceAll(created+overload, "\n", "\r\n"), 529, true},
			{"OpenAI chat", "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\",\"code\":null}}\n\n", 500, true},
			{"OpenAI responses fail after they were created", "event: response.created\ndata: {\"type\":\"response.created\"}\n\n" +
				"event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"rate_limit_exceeded\"}}}\n\n", 429, true},
			{"Gemini", "data: {\"error\":{\"code\":503,\"status\":\"UNAVAILABLE\"}}\n\n", 503, true},
			{"quota is gone", "data: {\"error\":{\"code\":\"insufficient_quota\"}}\n\n", 429, false},
			{"a bad request is an answer", "data: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\"}}\n\n", 0, false},
			{"the word error in content", "data: {\"type\":\"content_block_delta\",\"text\":\"error\"}\n\n", 0, false},
			{"an error that is null", "data: {\"error\":null,\"choices\":[]}\n\n", 0, false},
			{"content that is no JSON", "data: error\n\n", 0, false},
			{"an error after content is content's", created + content + overload, 0, false},
			{"an empty stream", "", 0, false},
			{"an error that is false", "data: {\"error\":false}\n\n", 0, false},
			{"an error that is empty", "data: {\"error\":{ },\"x\":1}\n\n", 0, false},
			{"an error that is a text", "data: {\"error\":\"no room\"}\n\n", 500, true},
			{"OpenAI chat, after the piece that says who speaks", speaks + "data: {\"error\":{\"type\":\"server_error\"}}\n\n", 500, true},
			{"OpenAI chat, after a piece of content", speaks + strings.Replace(speaks, "\"\"", "\"hi\"", 1) + "data: {\"error\":{\"type\":\"server_error\"}}\n\n", 0, false},
			{"OpenAI chat that calls a tool", strings.Replace(speaks, "\"content\":\"\"", "\"tool_calls\":[{\"index\":0}]", 1), 0, false},
		} {
			good := answer{200, isEvents, created + content}
			s := newScriptedServer(t, answer{200, isEvents, tt.first}, good)
			g := newRig(t, quick, holding, retryhttp.WithAnswered())
			resp, body := g.send(t, request(t, "POST", s.URL, strings.NewReader("{}")))
			want, asked := tt.first, 1
			if tt.retried {
				want, asked = good.body, 2
			}
			if resp.StatusCode != 200 || body != want || s.asked() != asked {
				t.Errorf("%s: %s %q after %d requests, want %q after %d", tt.name, resp.Status, body, s.asked(), want, asked)
			}
			if tt.code != 0 {
				wantEventFailure(t, tt.name, g, tt.code)
			}
		}
	})
}

func wantEventFailure(t *testing.T, name string, g *rig, code int) {
	t.Helper()
	for _, e := range g.events {
		if e.Kind == retry.AttemptFailed {
			f, ok := errors.AsType[*retryhttp.StatusError](e.Err)
			if !ok || f.Code != code || f.Event == "" {
				t.Errorf("%s: the failure is %v, want code %d of an event", name, e.Err, code)
			}
			return
		}
	}
	t.Errorf("%s: there was no failure", name)
}

func TestB10StreamOnWhichItGivesUpComesBackWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, answer{200, isEvents, created + overload})
		g := newRig(t, quick, holding, retryhttp.WithAnswered())
		resp, body := g.send(t, request(t, "POST", s.URL, strings.NewReader("{}")))
		wantStatus(t, resp, 200, s, 3)
		if wantReason(t, resp, retry.StopAttempts); body != created+overload {
			t.Errorf("body %q", body)
		}
		// Without WithAnswered, a POST is not sent again.
		s = newScriptedServer(t, answer{200, isEvents, overload})
		resp, _ = newRig(t, quick, holding).send(t, request(t, "POST", s.URL, strings.NewReader("{}")))
		wantStatus(t, resp, 200, s, 1)
		if e := wantReason(t, resp, retry.StopPermanent); !errors.Is(e, retryhttp.ErrNotIdempotent) {
			t.Errorf("GaveUp = %v, want ErrNotIdempotent", e)
		}
	})
}

func TestF14StreamIsPassedOnWithItsFirstContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := make(chan struct{})
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, created+content)
			w.(http.Flusher).Flush()
			select {
			case <-more:
				_, _ = io.WriteString(w, "data: last\n\n")
			case <-r.Context().Done():
			}
		})
		g := newRig(t, quick, retryhttp.WithStreams(retryhttp.Streams{Hold: time.Hour, Idle: time.Minute}))
		resp, err := g.RoundTrip(request(t, "GET", s.URL, nil)) // returns although the stream has not ended
		if err != nil {
			t.Fatal(err)
		}
		first := make([]byte, len(created+content))
		if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != created+content {
			t.Errorf("first events %q, %v", first, err)
		}
		close(more)
		if rest := read(t, resp); rest != "data: last\n\n" {
			t.Errorf("the rest is %q", rest)
		}
	})
}

func TestF14HoldHasACap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		more := make(chan struct{})
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, created)
			w.(http.Flusher).Flush()
			select {
			case <-more:
				_, _ = io.WriteString(w, overload)
			case <-r.Context().Done():
			}
		})
		g := newRig(t, quick, retryhttp.WithStreams(retryhttp.Streams{Hold: 20 * time.Millisecond}))
		resp, err := g.RoundTrip(request(t, "GET", s.URL, nil))
		if err != nil {
			t.Fatal(err)
		}
		close(more)
		if body := read(t, resp); body != created+overload || g.count(retry.AttemptFailed) != 0 {
			t.Errorf("body %q after %d failures, want all of it, and none", body, g.count(retry.AttemptFailed))
		}
	})
}

// rawStream starts a server that calls write for each connection, after the headers of a
// chunked event stream.
func rawStream(t *testing.T, write func(n int, c net.Conn)) string {
	t.Helper()
	return "http://" + listen(t, func(n int, c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
		write(n, c)
	})
}

func chunk(s string) string {
	const hex = "0123456789abcdef"
	n := len(s)
	return string([]byte{hex[n>>8&15], hex[n>>4&15], hex[n&15]}) + "\r\n" + s + "\r\n"
}

func TestF15StreamCutBeforeContentIsRetriedAndAfterItIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		url := rawStream(t, func(n int, c net.Conn) {
			switch n {
			case 0:
				_, _ = io.WriteString(c, chunk(created)) // and no more
			case 1:
				_, _ = io.WriteString(c, chunk(created+content))
			}
		})
		g := newRig(t, quick, holding)
		resp, err := g.RoundTrip(request(t, "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(body) != created+content || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("read %q, %v, want the second answer and that it was cut", body, err)
		}
		if g.count(retry.Waiting) != 1 {
			t.Errorf("%d retries, want 1", g.count(retry.Waiting))
		}
	})
}

func TestF15StreamThatEndsBeforeContentIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, answer{200, isEvents, created}, answer{200, isEvents, created + content})
		g := newRig(t, quick, holding)
		if resp, body := g.send(t, request(t, "GET", s.URL, nil)); body != created+content || s.asked() != 2 {
			t.Errorf("%s %q after %d requests, want the second", resp.Status, body, s.asked())
		}
	})
}

// The server may have done, and billed, the work of the answer. The caller gets the part
// that arrived.
func TestF15StreamCutBeforeContentIsNotRetriedForAPlainPost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, end := range []string{"", "0\r\n\r\n"} { // cut, and ended
			asked := 0
			url := rawStream(t, func(n int, c net.Conn) {
				asked = n + 1
				_, _ = io.WriteString(c, chunk(created)+end)
			})
			g := newRig(t, quick, holding, retryhttp.WithAnswered())
			resp, err := g.RoundTrip(request(t, "POST", url, strings.NewReader("{}")))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if string(body) != created || !errors.Is(err, io.ErrUnexpectedEOF) || asked != 1 {
				t.Errorf("read %q, %v after %d requests, want the beginning and an error after one", body, err, asked)
			}
		}
	})
}

func TestE12SilenceInABodyEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := make(chan struct{})
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "some")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(gone)
		})
		g := newRig(t, quick, retryhttp.WithStreams(retryhttp.Streams{Idle: 50 * time.Millisecond}))
		resp, err := g.RoundTrip(request(t, "GET", s.URL, nil))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // a slow reader is not a silent server
		body, err := io.ReadAll(resp.Body)
		silence, ok := errors.AsType[*retryhttp.SilenceError](err)
		if string(body) != "some" || !ok || silence.For != 50*time.Millisecond || !silence.Timeout() {
			t.Errorf("read %q, %v, want the silence", body, err)
		}
		_ = resp.Body.Close()
		<-gone // the server knows
	})
}

func TestE12SilenceAfterAHoldEndsTheBodyToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stalls(t, 1, http.Header{"Content-Type": {"text/event-stream"}}, 200, "")
		g := newRig(t, quick, retryhttp.WithStreams(retryhttp.Streams{Hold: 20 * time.Millisecond, Idle: 50 * time.Millisecond}))
		resp, err := g.RoundTrip(request(t, "GET", s.URL, nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); !errors.As(err, new(*retryhttp.SilenceError)) {
			t.Errorf("reading ends with %v, want the silence", err)
		}
		_ = resp.Body.Close()
	})
}

func TestE12IdleLeavesUpgradedConnectionsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		addr := listen(t, func(_ int, c net.Conn) {
			r := bufio.NewReader(c)
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(c, r)
		})
		g := newRig(t, quick, retryhttp.WithStreams(retryhttp.Streams{Hold: time.Second, Idle: 20 * time.Millisecond}), retryhttp.WithRouter(&to{}))
		req := request(t, "GET", "http://"+addr, nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := g.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(60 * time.Millisecond)
		conn := resp.Body.(io.ReadWriteCloser)
		_, _ = io.WriteString(conn, "hello")
		got := make([]byte, 5)
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
			t.Errorf("read %q, %v after a silence", got, err)
		}
		_ = conn.Close()
	})
}

func FuzzOpening(f *testing.F) {
	for _, s := range []string{created, content, overload, created + overload, "data:\n\n", "\n\n", "data: {\"error\":1}\r\r", ":\n\n"} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		known, failed := retryhttp.OpeningOf(b)
		if failed && !known {
			t.Error("an error that is not known")
		}
		// Once the opening of a stream is known, more bytes do not change it.
		part := b[:min(max(cut, 0), len(b))]
		if early, was := retryhttp.OpeningOf(part); early && !strings.HasSuffix(string(part), "\r") && (!known || was != failed) {
			t.Errorf("%q: known %v failed %v, then %v %v", b, early, was, known, failed)
		}
	})
}
