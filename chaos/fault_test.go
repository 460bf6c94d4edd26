package chaos

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
)

// TestFaultsOnTheWire checks the bytes that arrive and how the connection ends.
func TestFaultsOnTheWire(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spec  string
		want  string // the whole text, or parts with ... for anything between
		never string
		err   error // nil means that the connection ends properly
	}{
		"a reset before the headers":     {"reset", "", "", syscall.ECONNRESET},
		"a reset in the body":            {`200(body="0123456789" reset=4)`, "...Content-Length: 10\r\n...\r\n\r\n0123", "4567", syscall.ECONNRESET},
		"a reset before the body":        {`200(body="0123456789" reset=0)`, "...Content-Length: 10\r\n...", "0123", syscall.ECONNRESET},
		"a connection without an answer": {"close", "", "", nil},
		"a malformed status line":        {"malformed", "HTTP/1.1 banana\r\n...", "", nil},
		"a body shorter than announced":  {`200(body="0123456789" cut=50%)`, "...Content-Length: 10\r\n...\r\n\r\n01234", "012345", nil},
		"a body of nothing, cut":         {`200(body=none cut=50%)`, "...Content-Length: 1\r\n...\r\n\r\n", "", nil},
		"a chunked body without its end": {`200(body="0123456789" chunked cut=50%)`, "...Transfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n", "0\r\n\r\n", nil},
		"a stream without its end":       {"200(stream=openai events=3 cut=event:2)", "...Transfer-Encoding: chunked\r\n...data: {...", "[DONE]", nil},
		"a chunked body that is whole":   {`200(body="0123456789" chunked connection=close)`, "...Transfer-Encoding: chunked\r\n...0123456789\r\n0\r\n\r\n", "", nil},
		"a body that is whole":           {`200(body="0123456789" connection=close)`, "...Content-Length: 10\r\n...\r\n\r\n0123456789", "", nil},
		"a chunked body that is reset":   {`200(body="0123456789" chunked reset=70%)`, "...\r\n\r\n7\r\n0123456\r\n", "789", syscall.ECONNRESET},
		"an answer without a body":       {"204(connection=close)", "HTTP/1.1 204 No Content\r\n...", "Content-Length", nil},
		"an unknown status":              {"529(connection=close)", "HTTP/1.1 529 ...", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, tt.spec)
			w := dial(t, s)
			w.send(getRequest)
			got, err := w.rest()
			if !errors.Is(err, tt.err) {
				t.Errorf("the connection ended with %v, want %v", err, tt.err)
			}
			checkParts(t, got, tt.want)
			if tt.never != "" && strings.Contains(got, tt.never) {
				t.Errorf("got %q, want no %q in it", got, tt.never)
			}
			if st := s.Stats(); st.Requests != 1 || st.Gone != 0 {
				t.Errorf("%d requests, %d gone, want 1 and 0", st.Requests, st.Gone)
			}
		})
	}
}

// checkParts compares a text with a pattern in which dots stand for anything.
func checkParts(t *testing.T, got, want string) {
	t.Helper()
	rest := got
	for i, part := range strings.Split(want, "...") {
		at := strings.Index(rest, part)
		if at < 0 || i == 0 && at > 0 {
			t.Errorf("got %q, want %q", got, want)
			return
		}
		rest = rest[at+len(part):]
	}
	if !strings.HasSuffix(want, "...") && rest != "" {
		t.Errorf("got %q, want %q and not %q after it", got, want, rest)
	}
}

// TestFaultsAsClientsSeeThem runs all faults with every protocol.
func TestFaultsAsClientsSeeThem(t *testing.T) {
	t.Parallel()
	const rst = "" // checked on the connection; a client may report it as an unexpected end
	cases := map[string]struct {
		spec string
		body string // the part of the body that arrives
		err  map[string]string
	}{
		"reset":             {"reset", "", map[string]string{http1: rst, http1s: rst, h2c: rst, h2: rst}},
		"reset in the body": {`200(body="0123456789" reset=4)`, "0123", map[string]string{http1: rst, http1s: rst, h2c: rst, h2: rst}},
		"close":             {"close", "", map[string]string{http1: "EOF", http1s: "EOF", h2c: "EOF", h2: "EOF"}},
		"malformed":         {"malformed", "", map[string]string{http1: `malformed HTTP status code "banana"`, http1s: `malformed HTTP status code "banana"`, h2c: "PROTOCOL_ERROR", h2: "PROTOCOL_ERROR"}},
		"cut":               {`200(body="0123456789" cut=4)`, "0123", map[string]string{http1: "unexpected EOF", http1s: "unexpected EOF", h2c: "unexpected EOF", h2: "unexpected EOF"}},
		"cut, chunked":      {`200(body="0123456789" chunked cut=4)`, "0123", map[string]string{http1: "unexpected EOF", http1s: "unexpected EOF", h2c: "INTERNAL_ERROR", h2: "INTERNAL_ERROR"}},
		"too many headers":  {"200(padding=256KiB)", "", map[string]string{http1: "exceeded", http1s: "exceeded", h2c: "PROTOCOL_ERROR", h2: "PROTOCOL_ERROR"}},
		"whole":             {`200(body="0123456789")`, "0123456789", map[string]string{}},
		"whole, chunked":    {`200(body="0123456789" chunked)`, "0123456789", map[string]string{}},
		"dribbled":          {`200(body="0123456789" dribble=1/1ms)`, "0123456789", map[string]string{}},
	}
	for name, tt := range cases {
		for _, proto := range []string{http1, http1s, h2c, h2} {
			t.Run(name+" by "+proto, func(t *testing.T) {
				t.Parallel()
				s, c := serveProto(t, proto, tt.spec)
				resets := resets(c)
				resp, body, err := do(t, c, http.MethodPost, s.URL()+"/x", "some body")
				want, fails := tt.err[proto]
				if (err != nil) != fails || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("error = %v, want %q in it", err, want)
				}
				if fails && want == rst && resets.Load() == 0 {
					t.Errorf("error = %v, and no RST was seen", err)
				}
				if want == "unexpected EOF" && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("error = %v, want io.ErrUnexpectedEOF", err)
				}
				// Data that HTTP/2 sent before a RST may be lost.
				if body != tt.body && !(fails && want == rst && resp != nil && resp.ProtoMajor == 2 && strings.HasPrefix(tt.body, body)) {
					t.Errorf("body = %q, want %q", body, tt.body)
				}
			})
		}
	}
}

func TestNothingComesUntilTheClientGivesUp(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ spec, body string }{
		"before the headers":        {"hang", ""},
		"in an outage":              {"down from 0s to 1h as hang", ""},
		"in the middle of the body": {`200(body="0123456789" stall=30%)`, "012"},
		"in the middle of a stream": {"200(stream=plain events=5 stall=event:1)", "data: event 1 of 5\n\n"},
	} {
		for _, proto := range []string{http1, h2c, h2} {
			t.Run(name+" by "+proto, func(t *testing.T) {
				t.Parallel()
				s, c := serveProto(t, proto, tt.spec)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL(), http.NoBody)
				got := make(chan string, 1)
				started := make(chan struct{})
				go func() {
					resp, err := c.Do(req)
					if err != nil {
						got <- ""
						return
					}
					defer resp.Body.Close()
					head := make([]byte, len(tt.body))
					_, _ = io.ReadFull(resp.Body, head)
					close(started)
					rest, _ := io.ReadAll(resp.Body)
					got <- string(head) + string(rest)
				}()
				if tt.body != "" {
					<-started
				}
				testwait.Until(t, "the request arrives", func() bool { return s.Stats().InProgress == 1 })
				select {
				case body := <-got:
					t.Fatalf("it ended by itself, with %q", body)
				// real clock: an answer that must not come has time to come.
				case <-time.After(20 * time.Millisecond):
				}
				cancel()
				if body := <-got; body != tt.body {
					t.Errorf("got %q, want %q", body, tt.body)
				}
				testwait.Until(t, "the server notices", func() bool { st := s.Stats(); return st.InProgress == 0 && st.Gone == 1 })
			})
		}
	}
}

// real clock: the least time that it takes.
func TestBytesDribble(t *testing.T) {
	t.Parallel()
	s := serve(t, `200(body="0123456789" dribble=4/20ms),200(body="0123456789" dribble=4/1h)`)
	w := dial(t, s)
	begin := time.Now()
	w.send(getRequest)
	if _, body := w.answer(); body != "0123456789" {
		t.Errorf("body = %q", body)
	}
	if took := time.Since(begin); took < 40*time.Millisecond {
		t.Errorf("10 bytes at 4 in 20ms took %v", took)
	}
	w.send(getRequest)
	resp, err := http.ReadResponse(w.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 4)
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "0123" {
		t.Errorf("the first bytes are %q, %v", first, err)
	}
}

// real clock: the least time that it takes.
func TestDelays(t *testing.T) {
	t.Parallel()
	for spec, least := range map[string]time.Duration{
		"200 delay=60ms":                60 * time.Millisecond,
		"200(delay=60ms) delay=1ms":     60 * time.Millisecond,
		"200 delay=60ms..70ms":          60 * time.Millisecond,
		"reset delay=60ms":              60 * time.Millisecond,
		"200 service=60ms":              60 * time.Millisecond,
		"200 delay=30ms service=30ms":   60 * time.Millisecond,
		"200 delay=p50:90ms..p99:100ms": 60 * time.Millisecond,
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			s := serve(t, spec)
			begin := time.Now()
			_, _, _ = do(t, client(t, s, http1), http.MethodGet, s.URL(), "")
			if took := time.Since(begin); took < least {
				t.Errorf("took %v, want %v at least", took, least)
			}
		})
	}
}

// TestUploadsAreReadSlowly sends more than all buffers on the way can hold.
//
// real clock: the least time that it takes.
func TestUploadsAreReadSlowly(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{http1, h2c} {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			s, c := serveProto(t, proto, "200(read=1KiB/5ms body=echo)")
			begin := time.Now()
			_, body, err := do(t, c, http.MethodPost, s.URL(), strings.Repeat("x", 20<<10))
			if err != nil || !strings.Contains(body, `"bytes":20480`) {
				t.Errorf("got %q, %v", body, err)
			}
			if took := time.Since(begin); took < 100*time.Millisecond {
				t.Errorf("20 KiB at 1 KiB in 5ms took %v", took)
			}
		})
	}
}

func TestAnEarlyAnswerComesDuringTheUpload(t *testing.T) {
	t.Parallel()
	s := serve(t, "413(early),200")
	w := dial(t, s)
	w.send("POST /x HTTP/1.1\r\nHost: chaos\r\nContent-Length: 100000\r\n\r\n0123456789")
	if resp, _ := w.answer(); resp.StatusCode != 413 {
		t.Errorf("status = %d, want 413", resp.StatusCode)
	}
	if n := s.Stats().InProgress; n != 1 {
		t.Errorf("%d requests in progress, want the upload to go on", n)
	}
	w.send(strings.Repeat("x", 100000-10))
	w.send(getRequest) // on the same connection
	if resp, _ := w.answer(); resp.StatusCode != 200 {
		t.Errorf("status = %d, want 200", resp.StatusCode)
	}
	if n := s.Stats().Connections; n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

func TestAnEarlyAnswerOnHTTP2(t *testing.T) {
	t.Parallel()
	s, c := serveProto(t, h2c, "413(early)")
	r, upload := io.Pipe()
	defer upload.Close()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL(), r)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 413 || s.Stats().InProgress != 1 {
		t.Errorf("status = %d, %d in progress, want 413 and 1", resp.StatusCode, s.Stats().InProgress)
	}
}

func TestAConnectionIsReusedAfterAnAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t, "503,200(chunked),429(retry-after=1),200")
	w := dial(t, s)
	for _, want := range []int{503, 200, 429, 200, 200} {
		w.send(getRequest)
		if resp, _ := w.answer(); resp.StatusCode != want {
			t.Errorf("status = %d, want %d", resp.StatusCode, want)
		}
	}
	if st := s.Stats(); st.Connections != 1 || st.Open != 1 || st.Requests != 5 {
		t.Errorf("%d connections, %d open, %d requests, want 1, 1 and 5", st.Connections, st.Open, st.Requests)
	}
}

func TestHeadHasNoBody(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"200", "503", `200(body="0123456789" cut=4)`, "200(stream=openai events=5)"} {
		s := serve(t, spec)
		resp, body, err := do(t, client(t, s, http1), http.MethodHead, s.URL(), "")
		if body != "" || resp == nil {
			t.Errorf("HEAD of %s = %v, %q, %v", spec, resp, body, err)
		}
	}
}

// TestARefusal closes the listener and opens it again.
func TestARefusal(t *testing.T) {
	t.Parallel()
	s := serve(t, "200")
	idle := dial(t, s)
	idle.send(getRequest)
	idle.answer()
	busy := dial(t, s)
	if err := s.Set(MustParse("hang")); err != nil {
		t.Fatal(err)
	}
	busy.send(getRequest)
	testwait.Until(t, "the request hangs", func() bool { return s.Stats().InProgress == 1 })

	if err := s.Set(MustParse("200 down from 0s to 1h as refuse")); err != nil {
		t.Fatal(err)
	}
	for _, w := range []*wire{idle, busy} {
		if _, err := w.rest(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a connection that was open ended with %v, want %v", err, syscall.ECONNRESET)
		}
	}
	address := strings.TrimPrefix(s.URL(), "http://")
	for range 3 {
		if c, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("Dial = %v, %v, want %v", c, err, syscall.ECONNREFUSED)
		}
	}
	if err := s.Set(MustParse("200")); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the listener is open again", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	if resp, _ := get(t, s, "/"); resp.StatusCode != 200 {
		t.Errorf("status = %d", resp.StatusCode)
	}
}

func TestARefusalByTheTimetable(t *testing.T) {
	t.Parallel()
	s := serve(t, "200 down 100ms every 200ms as refuse")
	c := client(t, s, http1)
	last, changes := true, 0
	testwait.Until(t, "it goes down and comes back, twice", func() bool {
		_, _, err := do(t, c, http.MethodGet, s.URL(), "")
		if (err == nil) != last {
			last, changes = err == nil, changes+1
		}
		return changes == 4
	})
}

func TestAPortThatSomebodyElseHas(t *testing.T) {
	t.Parallel()
	s := serve(t, "200 down from 0s to 1h as refuse")
	address := strings.TrimPrefix(s.URL(), "http://")
	var other net.Listener
	testwait.Until(t, "the port is free", func() (free bool) {
		var err error
		other, err = net.Listen("tcp", address)
		return err == nil
	})
	if err := s.Set(MustParse("200")); err != nil {
		t.Fatal(err)
	}
	c := client(t, s, http1)
	// real clock: the other does not accept the connection, however long this takes.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := doWith(ctx, t, c, http.MethodGet, s.URL(), ""); err == nil {
		t.Error("it answers on a port of another program")
	}
	_ = other.Close()
	testwait.Until(t, "it has its port again", func() bool {
		_, _, err := do(t, c, http.MethodGet, s.URL(), "")
		return err == nil
	})
}

// isWithinTheHour reports whether a Retry-After is between 0 and an hour.
func isWithinTheHour(after string) bool {
	n, err := strconv.Atoi(after)
	return err == nil && n > 0 && n <= 3600
}

func TestAnOutageSaysHowLong(t *testing.T) {
	t.Parallel()
	for as, status := range map[string]int{"503(retry-after=due)": 503, "429(retry-after=due x-should-retry=true)": 429} {
		s := serve(t, "/a: 200 down from 0s to 1h as "+as+"; /b: 200")
		resp, _ := get(t, s, "/a")
		if wait := resp.Header.Get("Retry-After"); resp.StatusCode != status || !isWithinTheHour(wait) {
			t.Errorf("%s: %d with Retry-After %q", as, resp.StatusCode, wait)
		}
		if resp, _ := get(t, s, "/b"); resp.StatusCode != 200 {
			t.Errorf("another rule is down, too: %d", resp.StatusCode)
		}
	}
}
