package chaos

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

func TestExactlyTwoRetries(t *testing.T) {
	t.Parallel()
	s := serve(t, "/v1/messages: 429(retry-after-ms=5),503(retry-after-ms=5),200; *: 200")
	policy, err := retry.Parse("fixed(1ms) attempts=4")
	if err != nil {
		t.Fatal(err)
	}
	c := client(t, s, http1)
	if c.Transport, err = retryhttp.New(policy, c.Transport); err != nil {
		t.Fatal(err)
	}
	resp, body, err := do(t, c, http.MethodPost, s.URL()+"/v1/messages", `{"messages":[{"role":"user","content":"hi"}]}`)
	if err != nil || resp.StatusCode != 200 || !strings.Contains(body, "You said: hi") {
		t.Fatalf("got %v, %q, %v", resp, body, err)
	}
	st := s.Stats()
	if st.Requests != 3 || st.Rules[0].Requests != 3 || st.Rules[0].Answers["200"] != 1 || st.Rules[0].By[ByScript] != 3 || st.Rules[1].Requests != 0 {
		t.Errorf("stats = %+v", st)
	}
	for i, a := range st.Log {
		if a.Number != i+1 || a.Rule != 1 || a.Path != "/v1/messages" || a.Method != http.MethodPost || a.Nth != i+1 {
			t.Errorf("arrival %d is %+v", i, a)
		}
	}
	if gap := st.Log[1].At - st.Log[0].At; gap < 5*time.Millisecond {
		t.Errorf("the first retry came after %v, want what the server asked for", gap)
	}
}

// TestTheSameSeedHasTheSameFaults has many clients at once: the fault of the n-th request
// of a rule does not depend on the order of the clients.
func TestTheSameSeedHasTheSameFaults(t *testing.T) {
	t.Parallel()
	run := func(seed int) (list []string) {
		s := serve(t, fmt.Sprintf("seed=%d; *: fail=20%% reset=5%% close=5%% 429(retry-after=1)=10%%", seed))
		c := client(t, s, http1)
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 25 {
					_, _, _ = do(t, c, http.MethodPost, s.URL(), "x")
				}
			})
		}
		group.Wait()
		for _, a := range s.Stats().Log {
			list = append(list, fmt.Sprint(a.Answer, a.Status))
		}
		return list
	}
	first, second, other := run(5), run(5), run(6)
	if len(first) != 100 || !slices.Equal(first, second) {
		t.Errorf("the same seed gave\n%v\nand\n%v", first, second)
	}
	if slices.Equal(first, other) {
		t.Errorf("another seed gave the same: %v", first)
	}
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	s := serve(t, "hang concurrent=2 over=429(retry-after=due)")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := client(t, s, http1)
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() { _, _, _ = doWith(ctx, t, c, http.MethodGet, s.URL(), "") })
	}
	testwait.Until(t, "two are in progress", func() bool { return s.Stats().InProgress == 2 })
	for range 3 {
		if resp, _ := get(t, s, "/"); resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" {
			t.Errorf("the third got %d with Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
		}
	}
	cancel()
	group.Wait()
	testwait.Until(t, "there is room", func() bool { return s.Stats().InProgress == 0 })
	if st := s.Stats(); st.Rules[0].By[ByLimit] != 3 || st.Peak != 3 || st.Gone != 2 {
		t.Errorf("stats = %+v", st)
	}
}

// TestWorkGoesOnThoughNobodyWaits checks the cause of retry storms: requests whose clients
// have given up still take room.
func TestWorkGoesOnThoughNobodyWaits(t *testing.T) {
	t.Parallel()
	s := serve(t, "concurrent=1 service=1h")
	ctx, cancel := context.WithCancel(t.Context())
	c := client(t, s, http1)
	var group sync.WaitGroup
	group.Go(func() { _, _, _ = doWith(ctx, t, c, http.MethodGet, s.URL(), "") })
	testwait.Until(t, "it is in progress", func() bool { return s.Stats().InProgress == 1 })
	cancel()
	group.Wait()
	for range 3 {
		if resp, _ := get(t, s, "/"); resp.StatusCode != 503 || !isWithinTheHour(resp.Header.Get("Retry-After")) {
			t.Errorf("the next got %d with Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
		}
	}
}

// real clock: the least time that it takes.
func TestServiceGrowsWithLoad(t *testing.T) {
	t.Parallel()
	s := serve(t, "service=1ms+30ms")
	c := client(t, s, http1)
	slowest := func(n int) (most time.Duration) {
		var group sync.WaitGroup
		took := make([]time.Duration, n)
		for i := range n {
			group.Go(func() {
				begin := time.Now()
				_, _, _ = do(t, c, http.MethodGet, s.URL(), "")
				took[i] = time.Since(begin)
			})
		}
		group.Wait()
		return slices.Max(took)
	}
	if many := slowest(8); many < 100*time.Millisecond && s.Stats().Peak > 4 {
		t.Errorf("8 at once took %v", many)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	for _, spec := range []string{"hang", "200(stall=0)", "200 delay=1h", "200 service=1h", "200(stream=plain every=1h)", "200(read=1/1h)", "413(early)", "200 down 1h every 2h as refuse"} {
		for _, proto := range []string{http1, h2c, h2} {
			s, c := serveProto(t, proto, spec)
			var group sync.WaitGroup
			for range 3 {
				group.Go(func() { _, _, _ = do(t, c, http.MethodPost, s.URL(), "some body") })
			}
			testwait.Until(t, "they arrive", func() bool { return s.Stats().Requests == 3 })
			if err := s.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
			group.Wait()
			if st := s.Stats(); st.InProgress != 0 || st.Open != 0 {
				t.Errorf("%s by %s: %d in progress, %d open after Close", spec, proto, st.InProgress, st.Open)
			}
			c.CloseIdleConnections()
			_ = s.Close() // again
		}
	}
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "chaos.(*Server)") && !strings.Contains(stack, "testing.tRunner") {
			t.Errorf("left behind: %s", stack)
		}
	}
}

func TestAServerStartsOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, "200")
	if err := s.Start(""); err == nil {
		t.Error("it started twice")
	}
	never, err := New(MustParse("200"))
	if err != nil || never.URL() != "" || never.Close() != nil {
		t.Errorf("New = %v, %v, at %q", never, err, never.URL())
	}
	if err := never.Start(""); err == nil {
		t.Error("it started after its end")
	}
	if _, err := New(Spec{}); err == nil {
		t.Error("a server without rules")
	}
	taken, err := New(MustParse("200"))
	if err != nil {
		t.Fatal(err)
	}
	if err := taken.Start(strings.TrimPrefix(s.URL(), "http://")); err == nil {
		t.Error("two servers at one address")
	}
	if err := taken.Start("nonsense"); err == nil {
		t.Error("it listens nowhere")
	}
}

func TestOnlyThisMachineReachesIt(t *testing.T) {
	t.Parallel()
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0"} {
		s, err := New(MustParse("200"))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(address); err == nil || !strings.Contains(err.Error(), "must be allowed explicitly") {
			t.Errorf("Start(%q) = %v", address, err)
		}
		_ = s.Close()
	}
	s, err := New(MustParse("200"), WithRemote())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Start("0.0.0.0:0"); err != nil {
		t.Fatalf("Start = %v", err)
	}
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.URL(), "http://"))
	if resp, _, err := do(t, client(t, s, http1), http.MethodGet, "http://127.0.0.1:"+port, ""); err != nil || resp.StatusCode != 200 {
		t.Errorf("got %v, %v", resp, err)
	}
}

func TestObserver(t *testing.T) {
	t.Parallel()
	var seen []Arrival
	s := serve(t, "503,200", WithObserver(func(a Arrival) { seen = append(seen, a) }))
	get(t, s, "/a?key=hunter2")
	get(t, s, "/b")
	if len(seen) != 2 || seen[0].Answer != "503" || seen[0].Path != "/a" || seen[1].Answer != "200" || seen[1].Proto != "HTTP/1.1" {
		t.Errorf("seen %+v", seen)
	}
}

func TestSetBeginsAnew(t *testing.T) {
	t.Parallel()
	s := serve(t, "503,200")
	get(t, s, "/")
	if err := s.Set(MustParse("502,200")); err != nil {
		t.Fatal(err)
	}
	if resp, _ := get(t, s, "/"); resp.StatusCode != 502 || s.Stats().Requests != 1 {
		t.Errorf("got %d, %d requests", resp.StatusCode, s.Stats().Requests)
	}
	s.Reset()
	if resp, _ := get(t, s, "/"); resp.StatusCode != 502 || s.Stats().Requests != 1 {
		t.Errorf("got %d, %d requests after Reset", resp.StatusCode, s.Stats().Requests)
	}
	if err := s.Set(Spec{Rules: []Rule{{Delay: Delay{Low: -1}}}}); err == nil {
		t.Error("Set took what is not valid")
	}
	if got := s.Spec().String(); got != "*: 502,200" {
		t.Errorf("Spec = %q", got)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s, c := serveProto(t, http1s, "200")
	if resp, _, err := do(t, c, http.MethodGet, s.URL(), ""); err != nil || resp.TLS == nil || !strings.HasPrefix(s.URL(), "https://127.0.0.1:") {
		t.Errorf("got %v, %v at %s", resp, err, s.URL())
	}
	c.CloseIdleConnections()
	c.Transport.(*http.Transport).TLSClientConfig.RootCAs = nil
	if _, _, err := do(t, c, http.MethodGet, s.URL(), ""); err == nil {
		t.Error("a client trusts it without being told to")
	}
}

func TestAnyProtocolOnOnePort(t *testing.T) {
	t.Parallel()
	s := serve(t, "200")
	for proto, want := range map[string]string{http1: "HTTP/1.1", h2c: "HTTP/2.0"} {
		resp, _, err := do(t, client(t, s, proto), http.MethodGet, s.URL(), "")
		if err != nil || resp.Proto != want {
			t.Errorf("%s: %v, %v", proto, resp, err)
		}
	}
}

// TestPresetsServe sends requests to a server with each preset.
func TestPresetsServe(t *testing.T) {
	t.Parallel()
	for name := range Presets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, err := Preset(name)
			if err != nil {
				t.Fatal(err)
			}
			s := serve(t, spec.String())
			c := client(t, s, http1)
			for before := 0; before < 12; before = s.Stats().Requests {
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_, _, _ = doWith(ctx, t, c, http.MethodPost, s.URL()+"/v1/messages", `{"stream":true}`)
				}()
				testwait.Until(t, "it is asked", func() bool {
					select {
					case <-ended: // no answer, because it refuses connections
						return true
					default:
						return s.Stats().Requests > before
					}
				})
				cancel() // some requests hang
				<-ended
			}
		})
	}
}

// TestOneAfterTheOther checks that a client with one request at a time never exceeds
// concurrent=1.
func TestOneAfterTheOther(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"200", "503", "200(chunked)", "200(stream=plain events=3)", "200(cut=50%)", "close", "200(body=100KiB)", "204"} {
		for _, proto := range []string{http1, h2c} {
			if spec == "close" && proto == h2c {
				continue // Go's client repeats these by itself, after a second or more
			}
			s, c := serveProto(t, proto, spec+" concurrent=1 over=418")
			for range 8 {
				if resp, _, _ := do(t, c, http.MethodGet, s.URL(), ""); resp != nil && resp.StatusCode == 418 {
					t.Fatalf("%s by %s: a client stands in its own way", spec, proto)
				}
			}
			if st := s.Stats(); st.Peak != 1 || st.InProgress != 0 {
				t.Errorf("%s by %s: peak %d, %d in progress", spec, proto, st.Peak, st.InProgress)
			}
		}
	}
}

func TestMustPanicsOnABadSpec(t *testing.T) {
	t.Parallel()
	defer func() {
		if err, _ := recover().(error); err == nil {
			t.Error("Must did not panic with an error")
		}
	}()
	Must("5O3")
}

func TestNewRefusesNilOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Option{"option: nil": nil, "WithSpecParser: nil": WithSpecParser(nil)} {
		if _, err := New(MustParse("200"), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("New = %v, want %q in it", err, name)
		}
	}
}

// failedTest records why a test failed.
type failedTest struct {
	testing.TB
	why string
}

func (f *failedTest) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	panic(f)
}

func TestStartTestFailsTheTestOnABadSpec(t *testing.T) {
	t.Parallel()
	f := &failedTest{TB: t}
	defer func() {
		if recover() != f || !strings.Contains(f.why, `"5O3" is no answer`) {
			t.Errorf("StartTest failed the test with %q", f.why)
		}
	}()
	StartTest(f, "5O3")
}
