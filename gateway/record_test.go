package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/internal/memnet"
)

// record returns the record of the request whose response is got, when the request has ended.
func (r *rig) record(got reply) RequestInfo {
	r.t.Helper()
	call, err := strconv.ParseUint(got.header.Get(headerCall), 10, 64)
	if err != nil {
		r.t.Fatalf("%s: %v of a response with the status %d", headerCall, err, got.code)
	}
	var info RequestInfo
	eventually(r.t, "the request has ended and is recorded", func() (ok bool) {
		info, ok = r.Request(call)
		return ok && info.Outcome != InProgress
	})
	return info
}

// line describes a record in one line, without ids and times of day.
func (i *RequestInfo) line() string {
	text := fmt.Sprintf("%s %d from %q code=%s", i.Outcome, i.Status, i.From, i.Code)
	for _, s := range i.Steps {
		switch s.Kind {
		case StepAttempt:
			text += fmt.Sprintf("; %s %d %s", s.Provider, s.Status, s.Result)
		case StepWait:
			text += fmt.Sprintf("; wait %s %vms", s.By, int(s.Seconds*1000+0.5))
		case StepFailover:
			text += "; " + s.Provider + "→" + s.To
		case StepNotUsed:
			text += "; " + s.Provider + " not used"
		}
	}
	return text
}

// A request that was retried twice and failed over is found by the header of its response, and
// all its events and log lines have the same id.
func TestARequestIsFoundByTheHeaderOfItsResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		main, spare := newTestServer(t, fails(503)), newTestServer(t, says(`{"usage":{"prompt_tokens":12,"completion_tokens":34}}`))
		r := newRig(t, []Spec{
			spec(t, "main", Generic, main.URL, fallback("spare"), withoutBreaker, withPolicy(t, "fixed(10ms) attempts=5"), func(s *Spec) { s.FallbackAfter = 3 }),
			spec(t, "spare", Generic, spare.URL),
		})
		got := r.ask(http.MethodPost, "/p/main/v1/chat", chat, "Content-Type", "application/json", "Idempotency-Key", "k")
		i := r.record(got)
		want := `succeeded 200 from "spare" code=; main 503 failed; wait policy 10ms; main 503 failed; wait policy 10ms; main 503 failed; main→spare; spare 200 succeeded`
		if line := i.line(); line != want {
			t.Errorf("got\n%s, want\n%s", line, want)
		}
		if i.Attempts != 4 || i.Failovers != 1 || i.Provider != "main" || i.Route != "POST /v1/chat" || i.Model != "m" ||
			i.RequestBytes != int64(len(chat)) || i.ResponseBytes != int64(len(got.body)) || i.Sampled || i.Seconds < 0.02 || i.Waited < 0.02 {
			t.Errorf("got %+v", i)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, ev := range r.events {
			if ev.Call != i.Call {
				t.Errorf("the event %v has the call %d, want %d", ev.Kind, ev.Call, i.Call)
			}
		}
		if len(r.events) == 0 {
			t.Error("no events")
		}
		if n, all := strings.Count(r.logged.String(), fmt.Sprintf(" call=%d ", i.Call)), strings.Count(r.logged.String(), "\n"); n != all {
			t.Errorf("%d of %d lines of the log have the id:\n%s", n, all, r.logged.String())
		}
	})
}

// Every response has an id of its own, also errors and rejected requests, whatever ids the
// caller and the provider send.
func TestEveryResponseHasAnIDOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const forged = "4711471147114711"
		u := newTestServer(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(headerCall) != "" {
				t.Error("the provider got the header of the caller")
			}
			w.Header().Set(headerCall, forged)
			w.Header().Add(headerCall, forged)
			switch r.URL.Path {
			case "/early":
				w.WriteHeader(http.StatusEarlyHints)
			case "/error":
				w.WriteHeader(http.StatusBadRequest)
			case "/trailer":
				w.Header().Set("Trailer", headerCall)
				fmt.Fprint(w, "x")
				w.Header().Set(headerCall, forged)
			case "/secret-trailer":
				fmt.Fprint(w, "x")
				_ = http.NewResponseController(w).Flush()
				w.Header().Set(http.TrailerPrefix+headerCall, forged)
				w.Header().Set(http.TrailerPrefix+"Other", "kept")
			case "/gone":
				panic(http.ErrAbortHandler)
			}
		})
		r := newRig(t, []Spec{
			spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=1"), withoutBreaker, func(s *Spec) { s.MaxBody = 100 }),
			spec(t, "away", Generic, unreachableURL, withPolicy(t, "fixed(1ms) attempts=1"), withoutBreaker),
		}, func(o *Options) { o.Token = NewSecret("the token") })
		seen := map[string]bool{forged: true}
		check := func(name string, h http.Header) {
			t.Helper()
			values := h.Values(headerCall)
			if len(values) != 1 || len(values[0]) != 16 || seen[values[0]] {
				t.Errorf("%s: %s: %q", name, headerCall, values)
				return
			}
			seen[values[0]] = true
		}
		for _, tt := range []struct {
			name, path, body string
			code             int
			outcome          string
			headers          []string
		}{
			{"success", "/p/it/x", "", 200, RequestSucceeded, nil},
			{"error of the provider", "/p/it/error", "", 400, RequestFailed, nil},
			{"after an interim response", "/p/it/early", "", 200, "", nil},
			{"trailer", "/p/it/trailer", "", 200, "", nil},
			{"trailer that is not announced", "/p/it/secret-trailer", "", 200, "", nil},
			{"no answer", "/p/it/gone", "", 502, RequestFailed, nil},
			{"provider that is not there", "/p/away/x", "", 502, RequestFailed, nil},
			{"no provider", "/x", "", 404, RequestRejected, nil},
			{"unknown provider", "/p/other/x", "", 404, RequestRejected, nil},
			{"dots", "/p/it/%2e%2e/x", "", 400, RequestRejected, nil},
			{"wrong token", "/p/it/x", "", 401, RequestRejected, []string{headerToken, "wrong"}},
			{"wrong host", "/p/it/x", "", 421, RequestRejected, []string{"Host", "evil.example"}},
			{"priority", "/p/it/x", "", 400, RequestRejected, []string{headerPriority, "utmost"}},
			{"large body", "/p/it/x", strings.Repeat("x", 101), 413, RequestRejected, nil},
			{"deadline in the past", "/p/it/x", "", 504, RequestRejected, []string{"X-Request-Timeout-Ms", "0"}},
		} {
			method := http.MethodGet
			if tt.body != "" {
				method = http.MethodPost
			}
			req, err := http.NewRequestWithContext(t.Context(), method, r.URL+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(headerToken, "the token")
			req.Header.Set(headerCall, forged)
			for i := 0; i+1 < len(tt.headers); i += 2 {
				if req.Header.Set(tt.headers[i], tt.headers[i+1]); tt.headers[i] == "Host" {
					req.Host = tt.headers[i+1]
				}
			}
			resp, err := r.Client().Do(req)
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != tt.code {
				t.Errorf("%s: got %d %s, want %d", tt.name, resp.StatusCode, text, tt.code)
			}
			check(tt.name, resp.Header)
			if v := resp.Trailer.Get(headerCall); v != "" {
				t.Errorf("%s: the trailer has the id %q", tt.name, v)
			}
			if tt.name == "trailer that is not announced" && resp.Trailer.Get("Other") != "kept" {
				t.Errorf("%s: trailers %v", tt.name, resp.Trailer)
			}
			if tt.outcome != "" && tt.outcome != RequestSucceeded {
				if i := r.record(reply{code: tt.code, header: resp.Header}); i.Outcome != tt.outcome || i.Status != tt.code {
					t.Errorf("%s: the record is %+v", tt.name, i)
				}
			}
		}

		conn, err := memnet.Dial(t.Context(), "tcp", strings.TrimPrefix(r.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /p/it/early HTTP/1.1\r\nHost: localhost\r\n%s: the token\r\nConnection: close\r\n\r\n", headerToken)
		raw, _ := io.ReadAll(bufio.NewReader(conn))
		if n := strings.Count(string(raw), headerCall+": "); n != 2 || strings.Contains(string(raw), forged) || !strings.Contains(string(raw), " 103 ") {
			t.Errorf("an interim response and its response have %d ids: %s", n, raw)
		}

		resp, err := r.RoundTripper("it").RoundTrip(must(http.NewRequestWithContext(t.Context(), http.MethodGet, "/error", nil)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		check("in the process", resp.Header)
		if _, ok := r.Request(4711471147114711); ok {
			t.Error("a request has the id that a caller chose")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = r.Drain(ctx)
		got := r.get("/p/it/x", headerToken, "the token")
		check("shutdown", got.header)
		if got.code != http.StatusServiceUnavailable {
			t.Errorf("shutdown: %d", got.code)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Requests end in many ways, and the record says how.
func TestRecordsOfRequestsThatDoNotSucceedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/cut":
				hijack(w, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
			case "/slow":
				<-r.Context().Done()
			case "/asks":
				if n == 1 {
					fails(503, "Retry-After", "2")(n, w, r)
				}
			case "/one-by-one":
				time.Sleep(time.Second)
			default:
				w.WriteHeader(http.StatusNotFound)
			}
		})
		r := newRig(t, []Spec{
			spec(t, "it", Generic, u.URL, withoutBreaker, withPolicy(t, "fixed(10ms) attempts=2")),
			spec(t, "one", Generic, u.URL, withoutBreaker, withPolicy(t, "fixed(10ms) attempts=2"), func(s *Spec) { s.Concurrent, s.Queue = 1, 1 }),
		})
		get := func(path string) string {
			i := r.record(r.get(path))
			return i.line()
		}
		for path, want := range map[string]string{
			"/p/it/missing": `failed 404 from "it" code=; it 404 succeeded`,
			"/p/it/cut":     `cut-short 200 from "it" code=; it 200 cut-short`,
		} {
			if got := get(path); got != want {
				t.Errorf("%s: got\n%s, want\n%s", path, got, want)
			}
		}
		u.mu.Lock()
		u.seen = nil
		u.mu.Unlock()
		if got, want := get("/p/it/asks"), `succeeded 200 from "it" code=; it 503 failed; wait server 2`; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "; it 200 succeeded") {
			t.Errorf("asks to wait: got\n%s, want\n%s", got, want)
		}

		// A caller that disconnects.
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		_, err := r.Client().Do(must(http.NewRequestWithContext(ctx, http.MethodGet, r.URL+"/p/it/slow", nil)))
		if err == nil {
			t.Error("the caller has disconnected and got a response")
		}
		r.settled("it")
		if list := r.Requests(RequestFilter{Outcome: RequestCanceled}); len(list) != 1 || list[0].line() != `canceled 0 from "" code=; it 0 canceled` || list[0].Seconds != 1 {
			t.Errorf("a caller that disconnects: %+v", list)
		}

		// Of three requests, one waits for its turn and one is rejected.
		results := make(chan string, 3)
		for range 3 {
			go func() { results <- get("/p/one/one-by-one") }()
			time.Sleep(10 * time.Millisecond)
		}
		waiting := r.Requests(RequestFilter{Outcome: InProgress, Provider: "one"})
		var open []RequestStep
		for _, w := range waiting {
			for _, s := range w.Steps {
				if s.Open && s.Kind == StepWait {
					open = append(open, s)
				}
			}
		}
		if len(open) != 1 || open[0].By != WaitSlot || open[0].Seconds <= 0 {
			t.Errorf("waits in progress: %+v of %+v", open, waiting)
		}
		got := <-results + "\n" + <-results + "\n" + <-results
		want := `rejected 503 from "" code=queue_full` + "\n" + `succeeded 200 from "one" code=; one 200 succeeded` + "\n" +
			`succeeded 200 from "one" code=; wait slot 990ms; one 200 succeeded`
		if got != want {
			t.Errorf("got\n%s, want\n%s", got, want)
		}
	})
}

// The record of requests is bounded, by number and by bytes, and a flood of one kind of requests
// does not displace the others.
func TestTheRecordIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/good" {
				fails(503)(0, w, r)
			}
		})
		const kept = 80
		r := newRig(t, []Spec{
			spec(t, "it", Generic, u.URL, withoutBreaker, withPolicy(t, "fixed(1ms) attempts=2 budget=refund(1,1,1000000)")),
			spec(t, "many", Generic, u.URL, withoutBreaker, withPolicy(t, "fixed(1ms) attempts=200 budget=refund(1,1,1000000)")),
		}, func(o *Options) { o.KeepRequests = kept })
		good := r.record(r.get("/p/it/good"))
		failure := r.record(r.get("/p/it/bad"))
		for range 200 {
			r.get("/p/unknown/" + strings.Repeat("x", 1000))
		}
		if _, ok := r.Request(failure.Call); !ok {
			t.Error("rejected requests displaced a failed one")
		}
		for range 200 {
			r.get("/p/it/" + strings.Repeat("y/", 2000))
		}
		r.settled("it")
		if _, ok := r.Request(good.Call); !ok || !good.Sampled {
			t.Error("failed requests displaced the sample")
		}
		if _, ok := r.Request(failure.Call); ok {
			t.Error("the first failure is still there")
		}
		last := r.record(r.get("/p/many/bad"))
		if last.Attempts != 200 || len(last.Steps) != maxSteps || last.Omitted != 399-maxSteps || last.Waited < 0.198 || last.Waited > 0.2 {
			t.Errorf("%d attempts, %d steps, %d omitted, waited %v", last.Attempts, len(last.Steps), last.Omitted, last.Waited)
		}
		for range 50 {
			r.record(r.get("/p/many/bad"))
		}
		n, size := 0, 0
		for k := range r.records.rings {
			q := &r.records.rings[k]
			sum := 0
			for _, i := range q.all() {
				sum += i.size()
			}
			if sum != q.bytes || q.bytes > q.mostBytes {
				t.Errorf("ring %d: %d bytes, counted %d, at most %d", k, sum, q.bytes, q.mostBytes)
			}
			n, size = n+q.n, size+q.bytes
		}
		if list := r.Requests(RequestFilter{}); len(list) != n || n > kept || size > kept*recordBytes || len(r.records.active) != 0 {
			t.Errorf("%d of %d requests with %d bytes, %d in progress", len(list), n, size, len(r.records.active))
		}
		if list := r.Requests(RequestFilter{Provider: "many", Limit: 1}); len(list) != 1 || list[0].Provider != "many" {
			t.Errorf("with a filter and a limit: %+v", list)
		}
	})
}

// Long paths and names are cut, and nothing of a request is kept that may be a secret.
func TestRecordsHaveNoSecretsAndNoLongTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, fails(500, "Set-Cookie", "hush-cookie"))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withoutBreaker, withPolicy(t, "fixed(1ms) attempts=1"))}, func(o *Options) { o.Token = NewSecret("hush-token") })
		long := "/" + strings.Repeat("a/", 30<<10)
		for _, path := range []string{
			"/p/it/v1/x?key=hush-1&api_key=hush-2&hush-3", "/p/it" + long + "?access_token=hush-4", "/p/it/v1/hush-token/x", "/p/it/sk-it-secret-1/x",
			"/p/other/hush-token/x?key=hush-5", "/p/it/" + strings.Repeat("h", 9000) + "/hush-token",
		} {
			for _, token := range []string{"hush-token", "hush-wrong"} {
				i := r.record(r.ask(http.MethodPost, path, `{"model":"`+strings.Repeat("m", 5000)+`","messages":"hush-body"}`,
					headerToken, token, "Authorization", "Bearer hush-header", "Cookie", "a=hush-cookie", "Content-Type", "application/json"))
				text := string(must(json.Marshal(i)))
				if strings.Contains(text, "hush") || strings.Contains(text, "sk-it-secret") || len(text) > 2000 {
					t.Errorf("%.60s: %d bytes: %.2000s", path, len(text), text)
				}
				if i.Route == "" || len(i.Route) > maxLabel+len("…") {
					t.Errorf("%.60s: route %q", path, i.Route)
				}
			}
		}
	})
}

// Of requests that succeed at once, only a sample is kept.
func TestSuccessesAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, says("ok"))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL), spec(t, "quiet", Generic, u.URL)})
		for range 3 {
			for range 20 {
				r.get("/p/it/x")
			}
			r.get("/p/quiet/x")
			time.Sleep(sampleInterval)
		}
		r.settled("it")
		r.settled("quiet")
		for name, want := range map[string]int{"it": 3, "quiet": 3} {
			list := r.Requests(RequestFilter{Provider: name})
			if len(list) != want {
				t.Errorf("%s: %d requests are kept, want %d", name, len(list), want)
			}
			for _, i := range list {
				if !i.Sampled || i.Outcome != RequestSucceeded || i.Attempts != 1 || len(i.Steps) != 1 || i.Steps[0].Key != "key-1" {
					t.Errorf("%s: %+v", name, i)
				}
			}
		}
		off := newRig(t, []Spec{spec(t, "it", Generic, u.URL), spec(t, "away", Generic, unreachableURL, withPolicy(t, "fixed(1ms) attempts=1"))}, func(o *Options) { o.KeepRequests = -1 })
		for _, path := range []string{"/p/it/x", "/p/away/x", "/p/unknown/x"} {
			if id := off.get(path).header.Get(headerCall); len(id) != 16 {
				t.Errorf("without a record, %s: id %q", path, id)
			}
		}
		off.settled("away")
		if list := off.Requests(RequestFilter{}); len(list) != 0 || len(off.records.active) != 0 {
			t.Errorf("without a record: %+v", list)
		}
	})
}

// The order of the list and the times of a record do not depend on the time of day.
func TestTheOrderOfRecordsDoesNotDependOnTheClock(t *testing.T) {
	t.Parallel()
	g := &Gateway{records: newRecordStore(0)}
	noon := time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC)
	for n, at := range []time.Duration{0, 5 * time.Hour, -time.Hour, time.Minute} { // the clock was set forward, and back
		g.records.end(recordKind(n%len(g.records.rings)), &RequestInfo{Call: uint64(n), Time: noon.Add(at), number: uint64(n)})
	}
	var got []uint64
	for _, i := range g.Requests(RequestFilter{}) {
		got = append(got, i.Call)
	}
	if fmt.Sprint(got) != "[3 2 1 0]" {
		t.Errorf("got %v", got)
	}
	r := &request{began: noon} // without a reading of the monotonic clock
	if d := r.offset(0); d < 0 {
		t.Errorf("offset = %v", d)
	}
}

func TestRequestFilters(t *testing.T) {
	t.Parallel()
	i := RequestInfo{
		Provider: "main", Outcome: RequestFailed, Status: 503, Seconds: 2,
		Steps: []RequestStep{{Kind: StepAttempt, Provider: "main"}, {Kind: StepFailover, Provider: "main", To: "spare"}},
	}
	for _, tt := range []struct {
		f    RequestFilter
		want bool
	}{
		{RequestFilter{}, true},
		{RequestFilter{Provider: "main"}, true},
		{RequestFilter{Provider: "spare"}, true},
		{RequestFilter{Provider: "other"}, false},
		{RequestFilter{Status: "503"}, true},
		{RequestFilter{Status: "5xx"}, true},
		{RequestFilter{Status: "4xx"}, false},
		{RequestFilter{Status: "504"}, false},
		{RequestFilter{Outcome: RequestFailed}, true},
		{RequestFilter{Outcome: RequestSucceeded}, false},
		{RequestFilter{Least: 2 * time.Second}, true},
		{RequestFilter{Least: 3 * time.Second}, false},
		{RequestFilter{Provider: "spare", Status: "5xx", Outcome: RequestFailed, Least: time.Second}, true},
	} {
		if got := tt.f.matches(&i); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.f, got, tt.want)
		}
	}
}

// The record has the tokens that responses state, of JSON and of streams, whatever the parts in
// which they arrive.
func TestTokensInResponses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text    string
		input, output int64
	}{
		{"OpenAI", `{"choices":[{"text":"` + strings.Repeat("x", 10000) + `"}],"usage":{"prompt_tokens":12,"completion_tokens":34,"total_tokens":46}}`, 12, 34},
		{"OpenAI with spaces", `{"usage": {"input_tokens" : 12, "output_tokens":
			34}}`, 12, 34},
		{"stream of Anthropic", `data: {"type":"message_start","message":{"usage":{"input_tokens":12,"output_tokens":1}}}` + "\n\n" +
			strings.Repeat(`data: {"delta":{"text":"x"}}`+"\n\n", 1000) + `data: {"type":"message_delta","usage":{"output_tokens":34}}` + "\n\n", 12, 34},
		{"Google", `{"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":34}}`, 12, 34},
		{"in the text of the model", `{"text":"{\"input_tokens\": 99, \"output_tokens\": 99}"}`, 0, 0},
		{"cut", `{"usage":{"input_tokens":12`, 0, 0},
		{"none", `{"usage":{"input_tokens":null,"output_tokens":"many"}}`, 0, 0},
		{"huge", `{"usage":{"input_tokens":99999999999999999999999999999}}`, 0, 0},
		{"empty", ``, 0, 0},
	} {
		for _, size := range []int{1, 7, 4096, 100000} {
			k := new(tokenReader)
			for rest := tt.text; rest != ""; {
				n := min(size, len(rest))
				k.write([]byte(rest[:n]))
				rest = rest[n:]
			}
			if len(k.head) > tokenHead || len(k.tail) > tokenTail {
				t.Errorf("%s: keeps %d and %d bytes", tt.name, len(k.head), len(k.tail))
			}
			if k.finish(); k.input != tt.input && tt.name != "huge" || k.output != tt.output || k.head != nil || k.tail != nil {
				t.Errorf("%s in parts of %d bytes: %d and %d, want %d and %d", tt.name, size, k.input, k.output, tt.input, tt.output)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"usage":{"prompt_tokens":12,"completion_tokens":34}}`)
		})
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
		if i := r.record(r.get("/p/it/x")); i.InputTokens != 12 || i.OutputTokens != 34 {
			t.Errorf("got %+v", i)
		}
	})
}

// A request that succeeds at once and is not sampled costs no allocation for its record.
func TestARequestThatSucceedsAtOnceCostsNoAllocation(t *testing.T) {
	measure := func(keep int) float64 {
		g, err := New([]Spec{spec(t, "it", Generic, unreachableURL)}, Options{KeepRequests: keep})
		if err != nil {
			t.Fatal(err)
		}
		p := g.table.Load().providers["it"]
		p.stats.nextSample.Store(1 << 62)
		return testing.AllocsPerRun(100, func() {
			r := newRequest(g, p, http.MethodGet, incoming{caller: t.Context(), path: "/x"})
			a := &attempt{request: r, target: &r.picker.targets[0], p: p, key: p.keys.keys[0]}
			a.recordStart()
			a.recordEnd(nil)
			r.response.answered, r.response.whole, r.response.status, r.response.last = true, true, http.StatusOK, a
			r.response.finish()
			if r.timeline.Load() != nil {
				t.Fatal("it has a timeline")
			}
		})
	}
	if off, on := measure(-1), measure(0); on > off {
		t.Errorf("%v allocations, and %v without a record", on, off)
	}
}

// A request that ends while one of its attempts begins a timeline does not stay in the list of
// requests in progress.
func TestNoRequestStaysInProgressAfterItsEnd(t *testing.T) {
	t.Parallel()
	g, err := New([]Spec{spec(t, "it", Generic, unreachableURL)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := g.table.Load().providers["it"]
	p.stats.nextSample.Store(1 << 62)
	r := newRequest(g, p, http.MethodGet, incoming{caller: t.Context(), path: "/x"})
	r.response.answered, r.response.whole, r.response.status = true, true, http.StatusOK
	r.response.finish()
	g.records.begin(r) // by an attempt that had seen the request in progress
	if len(g.records.active) != 0 {
		t.Fatalf("%d requests in progress", len(g.records.active))
	}
}

// A wait that is too short for the record does not make its request one of the sample.
func TestShortWaitsAreNotSamples(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, err := New([]Spec{spec(t, "it", Generic, unreachableURL)}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := g.table.Load().providers["it"]
		for n, wait := range []time.Duration{0, time.Millisecond, 0, 2 * time.Millisecond} {
			r := newRequest(g, p, http.MethodGet, incoming{caller: t.Context(), path: []string{"/a", "/b", "/c", "/d"}[n]})
			began := clock.Now()
			step := r.startWait(WaitSlot, p)
			time.Sleep(wait)
			r.endWait(WaitSlot, step, began)
			r.response.answered, r.response.whole, r.response.status = true, true, http.StatusOK
			r.response.last = &attempt{request: r, target: &r.picker.targets[0], p: p, key: p.keys.keys[0]}
			r.response.finish()
		}
		var got []string
		for _, i := range g.Requests(RequestFilter{}) {
			got = append(got, fmt.Sprintf("%s sampled=%v", i.Route, i.Sampled))
		}
		if want := "[GET /d sampled=false GET /a sampled=true]"; fmt.Sprint(got) != want || len(g.records.active) != 0 {
			t.Errorf("got %v, want %v; %d in progress", got, want, len(g.records.active))
		}
	})
}

// The record of a request with a hedge has its model.
func TestARequestWithAHedgeHasItsModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, func(n int, _ http.ResponseWriter, r *http.Request) {
			if n == 1 {
				<-r.Context().Done()
			}
		})
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=2 attempt-timeout=5s hedge=20ms/100%"))})
		i := r.record(r.get("/p/it/v1/chat?model=m"))
		if i.Attempts != 2 || !i.Steps[1].Hedge || i.Model != "m" {
			t.Errorf("got the model %q: %+v", i.Model, i)
		}
	})
}

// An attempt that looked before the body was there does not remove the model that another one has
// found since.
func TestTheModelOfARecordStays(t *testing.T) {
	t.Parallel()
	var tl timeline
	tl.setModel("", false)
	tl.setModel("m-1", true)
	tl.setModel("", false)
	if tl.model != "m-1" || tl.wantsModel() {
		t.Errorf("the model is %q, wanted: %v", tl.model, tl.wantsModel())
	}
}

// The record of a rejected request does not keep its URL in memory.
func TestARejectionNamesTheProviderOfTheConfiguration(t *testing.T) {
	t.Parallel()
	g, err := New([]Spec{spec(t, "it", Generic, unreachableURL)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	name := g.table.Load().providers["it"].spec.Name
	_, _, bad := g.find(must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/p/it/../x", nil)))
	if bad == nil || bad.provider != name || unsafe.StringData(bad.provider) != unsafe.StringData(name) {
		t.Errorf("got %+v", bad)
	}
}
