package retryhttp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// perHost returns a PerHost whose options for each host come from the function.
func perHost(t *testing.T, policy string, options func(string) []retryhttp.Option) *retryhttp.PerHost {
	t.Helper()
	p, err := retry.Parse(policy)
	if err != nil {
		t.Fatal(err)
	}
	h, err := retryhttp.NewPerHost(p, newNetTransport(t), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.CloseIdleConnections)
	return h
}

// tripwire returns the options with a breaker that opens after two failures.
func tripwire(string) []retryhttp.Option {
	b, err := breaker.New(breaker.Config{FailureRate: breaker.Off, ConsecutiveFailures: 2})
	if err != nil {
		panic(err)
	}
	return []retryhttp.Option{retryhttp.WithRetry(retry.WithBreaker(b))}
}

// try makes a request and returns the status of the answer, or 0 and the error.
func try(t *testing.T, rt http.RoundTripper, url string) (int, error) {
	t.Helper()
	resp, err := rt.RoundTrip(request(t, "GET", url, nil))
	if err != nil {
		return 0, err
	}
	read(t, resp)
	return resp.StatusCode, nil
}

func TestI2BreakerOfOneHostLeavesTheOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick, well := newScriptedServer(t, statuses(503)...), newScriptedServer(t, statuses(200)...)
		h := perHost(t, quick, tripwire)
		if status, err := try(t, h, sick.URL); status != 503 || err != nil || sick.asked() != 2 {
			t.Errorf("%d, %v after %d requests, want 503 after 2", status, err, sick.asked())
		}
		if _, err := try(t, h, sick.URL); !errors.Is(err, retry.StopBreaker) || sick.asked() != 2 {
			t.Errorf("%v after %d requests, want an open breaker", err, sick.asked())
		}
		if status, err := try(t, h, well.URL); status != 200 || err != nil {
			t.Errorf("the other host: %d, %v", status, err)
		}
	})
}

func TestI1BudgetIsPerHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick, other := newScriptedServer(t, statuses(503)...), newScriptedServer(t, statuses(503, 200)...)
		h := perHost(t, quick+" budget=refund(1,0.001,1)", nil)
		for range 3 {
			if status, _ := try(t, h, sick.URL); status != 503 {
				t.Errorf("got %d", status)
			}
		}
		if sick.asked() != 4 {
			t.Errorf("the sick host was asked %d times, want 3 and one retry", sick.asked())
		}
		if status, _ := try(t, h, other.URL); status != 200 || other.asked() != 2 {
			t.Errorf("the other host: %d after %d requests, want its own retry", status, other.asked())
		}
	})
}

func TestHostIsWhatTheURLSays(t *testing.T) {
	var asked []string
	p, _ := retry.Parse(quick)
	h, err := retryhttp.NewPerHost(p, roundTripper(memory), func(host string) []retryhttp.Option {
		asked = append(asked, host)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{
		"http://a.example/x", "http://a.example/y?z", "HTTP://A.Example/", "http://u:p@a.example/", // the same
		"https://a.example/", "http://a.example:8080/", "http://b.example/", "http://[::1]:80/",
	} {
		if _, err := try(t, h, url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	want := []string{"", "a.example", "a.example", "a.example:8080", "b.example", "[::1]:80"}
	if !slices.Equal(asked, want) || h.Hosts() != 5 {
		t.Errorf("options for %q, %d hosts, want %q", asked, h.Hosts(), want)
	}
}

func TestHostThatWasNotUsedForLongestIsForgotten(t *testing.T) {
	made := map[string]int{}
	p, _ := retry.Parse(quick)
	h, err := retryhttp.NewPerHost(p, roundTripper(memory), func(host string) []retryhttp.Option {
		made[host]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h.MaxHosts = 2
	for _, host := range []string{"a", "b", "a", "c", "a", "b", "b", "c"} {
		// a and b are added; c replaces b, used before a; b replaces c; c replaces a.
		if _, err := try(t, h, "http://"+host); err != nil {
			t.Fatal(err)
		}
		if h.Hosts() > 2 {
			t.Errorf("%d hosts", h.Hosts())
		}
	}
	if made["a"] != 1 || made["b"] != 2 || made["c"] != 2 {
		t.Errorf("made %v", made)
	}

	h.MaxHosts = 0
	for i := range 1010 {
		if _, err := try(t, h, fmt.Sprintf("http://h%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if h.Hosts() != 1000 {
		t.Errorf("%d hosts, want 1000", h.Hosts())
	}
	h.MaxHosts = -1
	if _, err := try(t, h, "http://one"); err != nil || h.Hosts() != 1 {
		t.Errorf("%v, %d hosts, want the one that is asked", err, h.Hosts())
	}
}

func TestManyAskForANewHostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(200)...)
		var made atomic.Int64
		h := perHost(t, quick, func(string) []retryhttp.Option { made.Add(1); return nil })
		h.MaxHosts = 3
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				for j := range 5 {
					if _, err := try(t, h, s.URL); err != nil {
						t.Error(err)
					}
					// These hosts are added and dropped concurrently.
					_, err := h.RoundTrip(request(t, "GET", fmt.Sprintf("ftp://h%d", (i+j)%7), nil))
					if err == nil {
						t.Error("a scheme that does not exist gave an answer")
					}
				}
			})
		}
		all.Wait()
		if s.asked() != 80 || h.Hosts() > 3 {
			t.Errorf("asked %d times, %d hosts", s.asked(), h.Hosts())
		}
		fresh := perHost(t, quick, func(string) []retryhttp.Option { made.Add(1); return nil })
		made.Store(0)
		for range 16 {
			all.Go(func() {
				if _, err := try(t, fresh, s.URL); err != nil {
					t.Error(err)
				}
			})
		}
		if all.Wait(); made.Load() != 1 {
			t.Errorf("options were asked for %d times, want once", made.Load())
		}
	})
}

func TestNewPerHostRefusesNonsense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, _ := retry.Parse(quick)
		session, _ := retry.Parse(quick + " reset-after=1m")
		bad := []retryhttp.Option{retryhttp.WithIdempotent(nil)}
		if _, err := retryhttp.NewPerHost(session, nil, nil); err == nil || !strings.Contains(err.Error(), "can't honour reset-after=1m") {
			t.Errorf("NewPerHost with reset-after = %v", err)
		}
		if _, err := retryhttp.NewPerHost(good, nil, func(string) []retryhttp.Option { return bad }); err == nil || !strings.Contains(err.Error(), "WithIdempotent: nil") {
			t.Errorf("NewPerHost with a bad option = %v", err)
		}

		h := perHost(t, quick, func(host string) []retryhttp.Option {
			if host == "bad.example" {
				return bad
			}
			return nil
		})
		for range 2 {
			body := track(strings.NewReader("x"))
			_, err := h.RoundTrip(request(t, "PUT", "http://bad.example/", body))
			if err == nil || !strings.Contains(err.Error(), "options for bad.example: ") || !strings.Contains(err.Error(), "WithIdempotent: nil") {
				t.Errorf("a host with a bad option: %v", err)
			}
			body.waitUntilClosed()
		}

		for _, h := range []*retryhttp.PerHost{nil, {}, h} {
			body := track(strings.NewReader("x"))
			if _, err := h.RoundTrip(&http.Request{Body: body}); err == nil {
				t.Error("a request without a URL, or a PerHost that was not made: RoundTrip = nil")
			}
			body.waitUntilClosed()
		}
	})
}

func TestPerHostClosesIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScriptedServer(t, statuses(200)...)
		client := &http.Client{Transport: perHost(t, quick, nil)}
		for range 3 {
			resp, err := client.Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			read(t, resp)
			client.CloseIdleConnections()
		}
		if s.connections() != 3 {
			t.Errorf("%d connections, want a new one after each close", s.connections())
		}
	})
}

func TestKnownHostCostsNoAllocation(t *testing.T) {
	p, _ := retry.Parse("http")
	h, err := retryhttp.NewPerHost(p, roundTripper(func(*http.Request) (*http.Response, error) { return ok200, nil }), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"http://x.invalid/a", "https://x.invalid:8443/"} {
		req := request(t, "GET", url, nil)
		if n := testing.AllocsPerRun(100, func() { _, _ = h.RoundTrip(req) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", url, n)
		}
	}
}

// BenchmarkPerHost measures the cost of finding the host.
func BenchmarkPerHost(b *testing.B) {
	p, err := retry.Parse("http")
	if err != nil {
		b.Fatal(err)
	}
	one, err := retryhttp.New(p, roundTripper(memory))
	if err != nil {
		b.Fatal(err)
	}
	many, err := retryhttp.NewPerHost(p, roundTripper(memory), nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name string
		rt   http.RoundTripper
	}{{"direct", roundTripper(memory)}, {"transport", one}, {"per-host", many}} {
		b.Run(bb.name, func(b *testing.B) {
			req, _ := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://memory.invalid/x", nil)
			b.ReportAllocs()
			for b.Loop() {
				roundTrip(b, bb.rt, req)
			}
		})
		b.Run(bb.name+"-parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				req, _ := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://memory.invalid/x", nil)
				for pb.Next() {
					roundTrip(b, bb.rt, req)
				}
			})
		})
	}
}

// Each host has its own breaker: a host that is down does not affect the others.
func ExamplePerHost() {
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer down.Close()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer up.Close()

	policy, _ := retry.Parse("fixed(1ms) attempts=5")
	transport, err := retryhttp.NewPerHost(policy, nil, func(host string) []retryhttp.Option {
		b, _ := breaker.New(breaker.Config{ConsecutiveFailures: 3})
		return []retryhttp.Option{retryhttp.WithRetry(retry.WithBreaker(b), retry.WithName(host))}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()

	for _, url := range []string{down.URL, up.URL} {
		resp, err := client.Get(url)
		if err != nil {
			fmt.Println(err)
			return
		}
		e, _ := retryhttp.GaveUp(resp)
		_ = resp.Body.Close()
		if e != nil {
			fmt.Println(resp.Status, "after", e.Attempts, "attempts:", e.Reason)
			continue
		}
		fmt.Println(resp.Status)
	}
	// Output:
	// 503 Service Unavailable after 3 attempts: breaker open
	// 200 OK
}
