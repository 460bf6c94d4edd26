package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/retry"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // golden files have times
	m.Run()
}

// once returns a handler that uses first for the first request, and then for all others.
func once(first, then func(int, http.ResponseWriter, *http.Request)) func(int, http.ResponseWriter, *http.Request) {
	return func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			first(n, w, r)
			return
		}
		then(n, w, r)
	}
}

// TestDecisionsGolden records what users see of the decisions after failed attempts: the
// response, the events in JSON and the metrics, of one gateway for each scenario.
//
// real clock: the handlers that wait run in a bubble.
func TestDecisionsGolden(t *testing.T) {
	const fixed = "fixed(10ms) jitter=none attempts=4 attempt-timeout=2s total-timeout=20s"
	type handler = func(int, http.ResponseWriter, *http.Request)
	quota := func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"error":{"code":"insufficient_quota","message":"no credit"}}`)
	}
	broken := func(_ int, w http.ResponseWriter, _ *http.Request) { hijack(w, "") }
	stream := func(_ int, w http.ResponseWriter, _ *http.Request) { sse(w, evStart, evContent) }
	overloaded := func(_ int, w http.ResponseWriter, _ *http.Request) { sse(w, evError) }
	slow := func(_ int, w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(time.Second):
		case <-r.Context().Done():
		}
		fmt.Fprint(w, "slow")
	}
	for _, tt := range []struct {
		name     string
		main     handler // nil means that no process listens
		spare    handler // nil means that there is no fallback
		policy   string
		preset   string
		keys     []string
		method   string // "" means GET
		body     string
		requests int // 0 means 1
		inside   bool
		before   func(*rig)
	}{
		{name: "429 on one key of two", main: once(fails(429, "Retry-After", "30"), says("ok")), keys: []string{"one", "two"}},
		{name: "429 on both keys with a fallback", main: fails(429, "Retry-After", "30"), spare: says("spare"), keys: []string{"one", "two"}},
		{name: "429 with a wait that is too long", main: fails(429, "Retry-After", "100000")},
		{name: "503 then success", main: once(fails(503), says("ok"))},
		{name: "503 until the attempts are used up", main: fails(503)},
		{name: "503 under pressure", main: once(fails(503), says("ok")), before: func(r *rig) {
			for range 1000 {
				r.table.Load().providers["main"].upstream.errors.Add(false)
			}
		}},
		{name: "401 on an own key with another key", main: once(fails(401), says("ok")), keys: []string{"one", "two"}},
		{name: "401 on an own key with a fallback", main: fails(401), spare: says("spare")},
		{name: "401 on the only key", main: fails(401)},
		{name: "401 with a fallback that rejects its key too", main: fails(401), spare: fails(403)},
		{name: "402 on one key of two", main: once(fails(402), says("ok")), keys: []string{"one", "two"}},
		{name: "403 on both keys", main: fails(403), keys: []string{"one", "two"}},
		{name: "quota on one key of two", main: once(quota, says("ok")), keys: []string{"one", "two"}},
		{name: "quota on the only key", main: quota},
		{name: "fallback after 503", main: fails(503), spare: says("spare")},
		{name: "fallback of a provider that is not there", spare: says("spare")},
		{name: "fallback that fails too", main: fails(503), spare: fails(500)},
		{name: "fallback that is not there", main: fails(503), policy: "fixed(10ms) attempts=3", spare: broken},
		{name: "not there", main: nil},
		{name: "budget out", main: fails(503), policy: "fixed(1ms) attempts=4 budget=refund(5,1,10)", requests: 3},
		{name: "budget out with a fallback", main: fails(503), policy: "fixed(1ms) attempts=4 budget=refund(5,1,10)", spare: says("spare"), requests: 6},
		{name: "hedge", main: once(slow, says("second")), policy: "fixed(1ms) attempts=2 attempt-timeout=5s hedge=20ms/100%"},
		{name: "hedged round that fails", main: func(n int, w http.ResponseWriter, r *http.Request) {
			if n <= 2 {
				time.Sleep(100 * time.Millisecond)
				fails(503)(n, w, r)
				return
			}
			fmt.Fprint(w, "third")
		}, policy: "fixed(10ms) attempts=3 attempt-timeout=5s hedge=20ms/100%"},
		{name: "stream", main: stream, preset: Anthropic, method: http.MethodPost, body: chat},
		{name: "stream that begins with an error", main: once(overloaded, stream), preset: Anthropic, method: http.MethodPost, body: chat},
		{name: "post that is not answered", main: broken, method: http.MethodPost, body: "{}"},
		{name: "body that is lost", main: once(fails(503), says("ok")), method: http.MethodPut, body: strings.Repeat("x", 17<<20)},
		{name: "inside 503", main: fails(503), inside: true},
		{name: "inside 503 with a fallback", main: fails(503), spare: says("spare"), inside: true},
		{name: "inside 429 on both keys", main: fails(429, "Retry-After", "30"), keys: []string{"one", "two"}, inside: true},
		{name: "inside 401 on both keys", main: fails(401), keys: []string{"one", "two"}, inside: true},
		{name: "inside not there", inside: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				address := unreachableURL
				if tt.main != nil {
					address = newTestServer(t, tt.main).URL
				}
				change := []func(*Spec){withPolicy(t, orElse(tt.policy, fixed)), withoutBreaker}
				if tt.keys != nil {
					change = append(change, keys(tt.keys...))
				}
				var specs []Spec
				replace := []string{address, "http://main", strings.TrimPrefix(address, "http://"), "main"}
				if tt.spare != nil {
					spare := newTestServer(t, tt.spare).URL
					replace = append(replace, spare, "http://spare", strings.TrimPrefix(spare, "http://"), "spare")
					specs = append(specs, spec(t, "spare", orElse(tt.preset, Generic), spare, withoutBreaker))
					change = append(change, fallback("spare"))
				}
				specs = append(specs, spec(t, "main", orElse(tt.preset, Generic), address, change...))
				r := newRig(t, specs)
				replace = append(replace, r.URL, "http://gateway")
				if tt.before != nil {
					tt.before(r)
				}
				var b strings.Builder
				for range max(tt.requests, 1) {
					got := r.sendGolden(orElse(tt.method, http.MethodGet), tt.body, tt.inside)
					fmt.Fprintf(&b, "response %s\n", got)
				}
				r.settled("main")
				b.WriteString(r.recorded())
				testfile.Golden(t, filepath.Join("testdata", "decisions", strings.ReplaceAll(tt.name, " ", "-")+".txt"),
					unkeyed(numberedCalls(strings.NewReplacer(replace...).Replace(b.String()))))
			})
		})
	}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// sendGolden sends a request, over the gateway's port or with its RoundTripper, and
// returns the whole response.
func (r *rig) sendGolden(method, body string, inside bool) string {
	transport, address := r.Client().Transport, r.URL+"/p/main/x"
	if inside {
		transport, address = r.RoundTripper("main"), "/x"
	}
	var content io.Reader
	if body != "" {
		content = io.MultiReader(strings.NewReader(body)) // a body that can't be read twice
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, address, content)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Sprintf("error %v: %+v\n", err, retry.OutcomeOf(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var b strings.Builder
	fmt.Fprintf(&b, "%d, error %v\n", resp.StatusCode, err)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		fmt.Fprintf(&b, "  %s: %s\n", name, strings.Join(resp.Header[name], ", "))
	}
	fmt.Fprintf(&b, "  body %q\n", text)
	return b.String()
}

// roundSeconds rounds to microseconds.
func roundSeconds(s float64) float64 { return math.Round(s*1e6) / 1e6 }

var callPattern = regexp.MustCompile(`\b[4-9]\d{15}\b`)

// numberedCalls replaces the ids of requests, which are random, by their order in the text.
func numberedCalls(text string) string {
	known := map[string]string{}
	return callPattern.ReplaceAllStringFunc(text, func(id string) string {
		if known[id] == "" {
			known[id] = strconv.Itoa(len(known) + 1)
		}
		return known[id]
	})
}

// recorded returns the events and the records of requests in JSON, and all metrics.
func (r *rig) recorded() string {
	var b strings.Builder
	r.mu.Lock()
	for _, ev := range r.events {
		// A wait of zero may take a nanosecond.
		ev.Time, ev.Until = ev.Time.Truncate(time.Microsecond), ev.Until.Truncate(time.Microsecond)
		ev.Elapsed = ev.Elapsed.Truncate(time.Microsecond)
		text, _ := json.Marshal(ev)
		fmt.Fprintf(&b, "event %s\n", text)
	}
	r.mu.Unlock()
	for _, record := range r.Requests(RequestFilter{}) {
		record.Seconds, record.Waited = roundSeconds(record.Seconds), roundSeconds(record.Waited)
		for i := range record.Steps {
			s := &record.Steps[i]
			s.At, s.Seconds = roundSeconds(s.At), roundSeconds(s.Seconds)
		}
		text, _ := json.Marshal(record)
		fmt.Fprintf(&b, "record %s\n", keyNames.ReplaceAll(text, []byte("key-N")))
	}
	all := samples(r.Gateway)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "metric %s %v\n", name, all[name])
	}
	return b.String()
}

var keyNames = regexp.MustCompile(`key-\d`)

// unkeyed removes the names of keys, which are chosen at random, and sorts the metrics.
func unkeyed(text string) string {
	events, metrics, _ := strings.Cut(text, "metric ")
	lines := strings.Split(keyNames.ReplaceAllString("metric "+metrics, "key-N"), "\n")
	slices.Sort(lines)
	return events + strings.TrimSpace(strings.Join(lines, "\n")) + "\n"
}
