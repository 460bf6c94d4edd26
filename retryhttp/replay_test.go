package retryhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// pattern returns n bytes that repeat after 2048.
func pattern(n int) []byte {
	block := make([]byte, 2048)
	for i := range block {
		block[i] = byte(i * 7 >> 3)
	}
	return bytes.Repeat(block, n/len(block)+1)[:n]
}

// scripted is a transport that reads the body of each request and answers with the next
// status; the last one repeats. A long body costs less than with a server.
type scripted struct {
	t      *testing.T
	body   []byte // body that each request must have
	script []int
	asked  int
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	s.asked++
	rest := s.body
	for buf := make([]byte, 64<<10); ; {
		n, err := r.Body.Read(buf)
		if !bytes.HasPrefix(rest, buf[:n]) {
			s.t.Errorf("request %d has another body", s.asked)
		}
		rest = rest[min(n, len(rest)):]
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if len(rest) > 0 {
		s.t.Errorf("request %d lacks the last %d of %d bytes", s.asked, len(rest), len(s.body))
	}
	code := s.script[min(s.asked, len(s.script))-1]
	body := fmt.Sprintf("body of %d", code)
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func TestD9BodiesAreKeptUpTo16MiB(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		for _, size := range []int{0, 1, 1000, retryhttp.KeptInMemory - 1, retryhttp.KeptInMemory, retryhttp.KeptInMemory + 1,
			1 << 20, retryhttp.KeptInAll, retryhttp.KeptInAll + 1} {
			data := pattern(size)
			for _, known := range []bool{true, false} {
				s := &scripted{t: t, body: data, script: []int{503, 503, 200}}
				g := newRigOver(t, quick, s)
				body := track(bytes.NewReader(data))
				req := request(t, "PUT", "http://x.invalid", body)
				if known {
					req.ContentLength = int64(size)
				}
				resp, _ := g.send(t, req)
				body.waitUntilClosed()
				want := played{200, 3}
				if size > retryhttp.KeptInAll {
					want = played{503, 1}
					e := wantReason(t, resp, retry.StopPermanent)
					if !errors.Is(e, retryhttp.ErrBody) || !strings.Contains(e.Error(), "16 MiB") || g.count(retry.GaveUp) != 1 {
						t.Errorf("%d bytes: %v, want ErrBody said in an event", size, e)
					}
				}
				if got := (played{resp.StatusCode, s.asked}); got != want {
					t.Errorf("%d bytes, known %v: %v, want %v", size, known, got, want)
				}
				if left, _ := os.ReadDir(dir); len(left) > 0 {
					t.Errorf("%d bytes: left %v behind", size, left)
				}
			}
		}
	})
}

func TestD9LongBodyThatWasNotReadIsStillWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := pattern(retryhttp.KeptInAll + 5)
		s := &scripted{t: t, body: data, script: []int{200}}
		n := 0
		tr := roundTripper(func(r *http.Request) (*http.Response, error) {
			if n++; n == 1 {
				_ = r.Body.Close()
				return nil, errors.New("before anything was read")
			}
			return s.RoundTrip(r)
		})
		p, _ := retry.Parse(quick)
		top, err := retryhttp.New(p, tr)
		if err != nil {
			t.Fatal(err)
		}
		req := request(t, "PUT", "http://x.invalid", track(bytes.NewReader(data)))
		req.ContentLength = int64(len(data))
		resp, err := top.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		read(t, resp)
		if n != 2 {
			t.Errorf("%d attempts, want 2", n)
		}
	})
}

func TestD9NoPlaceForTheFileIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "missing"))
		data := pattern(retryhttp.KeptInMemory + 10)
		s := newScriptedServer(t, statuses(200)...)
		resp, _ := newRig(t, quick).send(t, request(t, "PUT", s.URL, track(bytes.NewReader(data))))
		wantStatus(t, resp, 200, s, 1)
		s = newScriptedServer(t, statuses(503)...)
		resp, _ = newRig(t, quick).send(t, request(t, "PUT", s.URL, track(bytes.NewReader(data))))
		wantStatus(t, resp, 503, s, 1)
		if e := wantReason(t, resp, retry.StopPermanent); !errors.Is(e, retryhttp.ErrBody) || !errors.Is(e, os.ErrNotExist) {
			t.Errorf("%v, want ErrBody and what the file system said", e)
		}
	})
}

func TestD10GetBodyComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(503, 503, 200)...)
		g := newRig(t, quick)
		req := request(t, "PUT", s.URL, strings.NewReader("hello"))
		calls, original := 0, req.GetBody
		req.GetBody = func() (io.ReadCloser, error) { calls++; return original() }
		resp, _ := g.send(t, req)
		wantStatus(t, resp, 200, s, 3)
		if calls != 2 || s.got(2) != "hello" {
			t.Errorf("GetBody was called %d times, the last attempt sent %q", calls, s.got(2))
		}

		gone := errors.New("gone")
		s = newScriptedServer(t, statuses(503)...)
		req = request(t, "PUT", s.URL, strings.NewReader("hello"))
		req.GetBody = func() (io.ReadCloser, error) { return nil, gone }
		resp, body := newRig(t, quick).send(t, req)
		wantStatus(t, resp, 503, s, 1)
		if e := wantReason(t, resp, retry.StopPermanent); !errors.Is(e, gone) || body != "body of 503" {
			t.Errorf("a GetBody that fails: %v, %q, want the last answer", e, body)
		}
	})
}

func TestD10SeekersGoBackToWhereTheyStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(name, []byte("skip hello"), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Seek(5, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		s := newScriptedServer(t, statuses(503, 503, 200)...)
		req := request(t, "PUT", s.URL, f)
		req.ContentLength = 5
		resp, _ := newRig(t, quick).send(t, req)
		wantStatus(t, resp, 200, s, 3)
		for i := range 3 {
			if s.got(i) != "hello" {
				t.Errorf("attempt %d sent %q, want hello", i+1, s.got(i))
			}
		}
		if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("the file was not closed: %v", err)
		}
	})
}

func TestD10WhatTheTransportSees(t *testing.T) {
	for _, tt := range []struct {
		name   string
		body   io.Reader
		length int64
	}{
		{"no body", nil, 0},
		{"NoBody", http.NoBody, 0},
		{"unknown length", track(strings.NewReader("hello")), 0},
		{"unknown length, said so", track(strings.NewReader("hello")), -1},
		{"known length", track(strings.NewReader("hello")), 5},
		{"GetBody", strings.NewReader("hello"), 5},
	} {
		n := 0
		p, _ := retry.Parse(quick + " attempt-timeout=1m")
		tr, err := retryhttp.New(p, roundTripper(func(r *http.Request) (*http.Response, error) {
			n++
			if r.ContentLength != tt.length || (tt.body == nil) != (r.Body == nil) || (tt.body == http.NoBody) != (r.Body == http.NoBody) {
				t.Errorf("%s, attempt %d: length %d, body %v", tt.name, n, r.ContentLength, r.Body)
			}
			if r.Body != nil && r.Body != http.NoBody {
				_, _ = io.ReadFull(r.Body, make([]byte, 2))
				again, err := r.GetBody()
				if err != nil {
					t.Errorf("%s, attempt %d: GetBody: %v", tt.name, n, err)
				} else if b, err := io.ReadAll(again); string(b) != "hello" || err != nil {
					t.Errorf("%s, attempt %d: GetBody has %q, %v", tt.name, n, b, err)
				} else {
					_ = again.Close()
				}
				_ = r.Body.Close()
			}
			return &http.Response{StatusCode: 503, Body: http.NoBody, Request: r}, nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		req := request(t, "PUT", "http://x.invalid", tt.body)
		req.ContentLength = tt.length
		if _, err := tr.RoundTrip(req); err != nil || n != 3 {
			t.Errorf("%s: %v after %d attempts", tt.name, err, n)
		}
		if b, ok := tt.body.(*trackedBody); ok {
			b.waitUntilClosed()
		}
	}
}

func TestD10EarlyResponseWhileTheBodyIsStillSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if n++; n == 1 {
				w.Header().Set("Connection", "close") // otherwise the server would read the body first
				w.WriteHeader(503)
				return
			}
			c := http.NewResponseController(w)
			if err := c.EnableFullDuplex(); err != nil {
				t.Error(err)
			}
			w.WriteHeader(200)
			_ = c.Flush()
			_, _ = io.Copy(w, r.Body)
		})
		g := newRig(t, quick)
		pr, pw := io.Pipe()
		go func() { _, _ = io.WriteString(pw, "one ") }()
		resp, err := g.RoundTrip(request(t, "PUT", s.URL, pr))
		if err != nil {
			t.Fatal(err)
		}
		if n != 2 || resp.StatusCode != 200 {
			t.Fatalf("%s after %d requests", resp.Status, n)
		}
		go func() {
			_, _ = pw.Write(pattern(1 << 20)) // after the answer, so nothing is stored
			_ = pw.Close()
		}()
		if got, want := read(t, resp), "one "+string(pattern(1<<20)); got != want {
			t.Errorf("%d bytes came back, want %d", len(got), len(want))
		}
		if _, err := pw.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the pipe was not closed: %v", err)
		}
	})
}

func TestD10SourceThatFailsIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("disk gone")
		s := newScriptedServer(t, statuses(200)...)
		g := newRig(t, quick)
		body := track(io.MultiReader(strings.NewReader("x"), readerFunc(func([]byte) (int, error) { return 0, broken })))
		_, err := g.RoundTrip(request(t, "PUT", s.URL, body))
		if !errors.Is(err, broken) || !errors.Is(err, retry.StopPermanent) {
			t.Errorf("RoundTrip = %v, want the source's error, permanent", err)
		}
		body.waitUntilClosed()
	})
}

func TestD11ConnectionIsFreeDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, answer{503, "", strings.Repeat("x", 60<<10)}, answer{status: 200})
		p, _ := retry.Parse("fixed(0s) attempts=2")
		tr := newNetTransport(t)
		tr.MaxConnsPerHost = 1
		var top *retryhttp.Transport
		top, err := retryhttp.New(p, tr, retryhttp.WithRetry(retry.WithOnRetry(func(context.Context, retry.Event) error {
			resp, err := tr.RoundTrip(request(t, "GET", s.URL, nil)) // blocks if the first attempt still holds the only connection
			if err == nil {
				_ = resp.Body.Close()
			}
			return err
		})))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := top.RoundTrip(request(t, "GET", s.URL, nil))
		if err != nil {
			t.Fatal(err)
		}
		read(t, resp)
		wantStatus(t, resp, 200, s, 3)
		if s.connections() != 1 {
			t.Errorf("%d connections, want 1", s.connections())
		}
	})
}
