package chaos

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

var t0 = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// ask returns the verdict about a GET of the path.
func ask(s *state, path string, now time.Time, headers ...string) verdict {
	h := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return s.decide(http.MethodGet, path, h, now)
}

// answers returns the answers to the next n requests.
func answers(s *state, n int, headers ...string) (list []string) {
	for range n {
		v := ask(s, "/", t0, headers...)
		list = append(list, v.Answer)
		s.release(v)
	}
	return list
}

func TestScripts(t *testing.T) {
	for spec, want := range map[string]string{
		"503,503,200":               "503 503 200 200 200 200",
		"429x3,200":                 "429 429 429 200 200 200",
		"503,200 cycle":             "503 200 503 200 503 200",
		"503x2,200x1 cycle":         "503 503 200 503 503 200",
		"delay=1ms":                 "200 200 200 200 200 200",
		"reset,hang,close":          "reset hang close close close close",
		"429(retry-after=2)x2,fail": "429(retry-after=2) 429(retry-after=2) fail fail fail fail",
	} {
		if got := strings.Join(answers(newState(MustParse(spec), t0), 6), " "); got != want {
			t.Errorf("%s answers %s, want %s", spec, got, want)
		}
	}
}

func TestTheFirstRuleThatMatchesCounts(t *testing.T) {
	s := newState(MustParse("POST /v1: 501; header(x-tier=gold) /v1: 502; header(x-tier): 503; /v1/a: 504; /v1: 200"), t0)
	for _, tt := range []struct {
		method, path string
		headers      http.Header
		rule         int
		status       int
	}{
		{"POST", "/v1/a", nil, 0, 501},
		{"GET", "/v1/a", http.Header{"X-Tier": {"gold"}}, 1, 502},
		{"GET", "/v1/a", http.Header{"X-Tier": {"tin"}}, 2, 503},
		{"GET", "/", http.Header{"X-Tier": {"gold"}}, 2, 503},
		{"GET", "/v1/a/b", nil, 3, 504},
		{"GET", "/v1", nil, 4, 200},
		{"GET", "/v", nil, -1, 404},
	} {
		if v := s.decide(tt.method, tt.path, tt.headers, t0); v.Rule-1 != tt.rule || v.answer.Status != tt.status {
			t.Errorf("%s %s %v got %d by rule %d, want %d by %d", tt.method, tt.path, tt.headers, v.answer.Status, v.Rule-1, tt.status, tt.rule)
		}
	}
}

func TestEachValueOfAHeaderHasAScript(t *testing.T) {
	s := newState(MustParse("503,200 per=x-call fail=20%"), t0)
	alone := map[string][]string{}
	for _, id := range []string{"a", "b", "c"} {
		alone[id] = answers(newState(MustParse("503,200 per=x-call fail=20%"), t0), 20, "x-call", id)
	}
	mixed := map[string][]string{}
	for range 20 {
		for _, id := range []string{"c", "a", "b"} {
			mixed[id] = append(mixed[id], answers(s, 1, "x-call", id)...)
		}
	}
	for id := range alone {
		if !slices.Equal(alone[id], mixed[id]) {
			t.Errorf("%s got %v alone and %v among others", id, alone[id], mixed[id])
		}
	}
	if slices.Equal(alone["a"], alone["b"]) && slices.Equal(alone["b"], alone["c"]) {
		t.Errorf("all have the same luck: %v", alone["a"])
	}
}

func TestValuesOfAHeaderAreForgotten(t *testing.T) {
	s := newState(MustParse("503,200 per=x-call"), t0)
	answers(s, 1, "x-call", "first")
	for i := range maxCursors {
		answers(s, 1, "x-call", fmt.Sprint(i))
	}
	if got := answers(s, 1, "x-call", "first")[0]; got != "503" || len(s.rules[0].cursors.by) != maxCursors {
		t.Errorf("got %s with %d values known, want 503 with %d", got, len(s.rules[0].cursors.by), maxCursors)
	}
	if got := answers(s, 1, "x-call", fmt.Sprint(maxCursors-1))[0]; got != "200" {
		t.Errorf("the last got %s, want 200", got)
	}
}

// TestLuck checks that random answers have their share and depend on the seed.
func TestLuck(t *testing.T) {
	const n = 10000
	of := func(spec string) []string { return answers(newState(MustParse(spec), t0), n) }
	got := of("seed=7; fail=20% reset=1%")
	count := map[string]int{}
	for _, a := range got {
		count[a]++
	}
	if c := count["fail"]; c < n*19/100 || c > n*21/100 {
		t.Errorf("fail=20%% came %d times of %d", c, n)
	}
	if c := count["reset"]; c < n*8/1000 || c > n*12/1000 {
		t.Errorf("reset=1%% came %d times of %d", c, n)
	}
	if !slices.Equal(got, of("seed=7; fail=20% reset=1%")) {
		t.Error("the same seed has another sequence")
	}
	if slices.Equal(got, of("seed=8; fail=20% reset=1%")) {
		t.Error("another seed has the same sequence")
	}
	if !slices.Equal(got, of("seed=7; fail=20% reset=1% delay=1ms..2ms")) {
		t.Error("a delay changes who fails")
	}
	if got := of("fail=60% reset=40%"); slices.Contains(got, "200") {
		t.Error("shares of 100% leave something for the script")
	}
}

// TestTheSequenceOfASeedStays checks that a seed gives the same answers in all versions.
func TestTheSequenceOfASeedStays(t *testing.T) {
	s := newState(MustParse("seed=7; fail=30% reset=10% delay=1ms..2s"), t0)
	var got []string
	for range 12 {
		v := ask(s, "/", t0)
		got = append(got, fmt.Sprintf("%s/%d/%v", v.Answer, v.answer.Status, v.delay.Round(time.Millisecond)))
		s.release(v)
	}
	want := "fail/500/1.12s fail/502/1.882s fail/503/716ms 200/200/93ms 200/200/1.842s 200/200/1.561s fail/503/346ms 200/200/1.814s 200/200/719ms 200/200/1.789s 200/200/1.23s 200/200/364ms"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
}

func TestChanceDoesNotUseUpTheScript(t *testing.T) {
	var script []string
	for _, a := range answers(newState(MustParse("seed=3; 503x5,200 reset=40%"), t0), 200) {
		if a != "reset" {
			script = append(script, a)
		}
	}
	if !slices.Equal(script[:7], []string{"503", "503", "503", "503", "503", "200", "200"}) {
		t.Errorf("the script gave %v", script[:7])
	}
}

func TestDelaysAreDistributedAsTheySay(t *testing.T) {
	for text, tt := range map[string]struct{ p50, p99 [2]time.Duration }{
		"50ms":                  {[2]time.Duration{50 * time.Millisecond, 50 * time.Millisecond}, [2]time.Duration{50 * time.Millisecond, 50 * time.Millisecond}},
		"0s..200ms":             {[2]time.Duration{95 * time.Millisecond, 105 * time.Millisecond}, [2]time.Duration{195 * time.Millisecond, 200 * time.Millisecond}},
		"p50:100ms..p99:2s":     {[2]time.Duration{95 * time.Millisecond, 105 * time.Millisecond}, [2]time.Duration{1800 * time.Millisecond, 2200 * time.Millisecond}},
		"p50:100ms..p99:100ms":  {[2]time.Duration{100 * time.Millisecond, 100 * time.Millisecond}, [2]time.Duration{100 * time.Millisecond, 100 * time.Millisecond}},
		"p50:1ms..p99:5000h":    {[2]time.Duration{0, time.Second}, [2]time.Duration{2000 * time.Hour, 20000 * time.Hour}},
		"100ms..100ms":          {[2]time.Duration{100 * time.Millisecond, 100 * time.Millisecond}, [2]time.Duration{100 * time.Millisecond, 100 * time.Millisecond}},
		"p50:366d..p99:366d":    {[2]time.Duration{366 * day, 366 * day}, [2]time.Duration{366 * day, 366 * day}},
		"p50:1ns..p99:366d":     {[2]time.Duration{0, 366 * day}, [2]time.Duration{0, 3660 * day}},
		"p50:10ms..p99:10.01ms": {[2]time.Duration{9 * time.Millisecond, 11 * time.Millisecond}, [2]time.Duration{9 * time.Millisecond, 11 * time.Millisecond}},
	} {
		d, err := parseDelay(text)
		if err != nil {
			t.Errorf("parseDelay(%q) = %v", text, err)
			continue
		}
		var got []time.Duration
		for n := range 5000 {
			luck := drawn(1, 1, "", n)
			got = append(got, d.pick(luck.delay, luck.normal))
		}
		slices.Sort(got)
		for p, want := range map[int][2]time.Duration{50: tt.p50, 99: tt.p99} {
			if at := got[len(got)*p/100]; at < want[0] || at > want[1] {
				t.Errorf("%s: p%d = %v, want %v to %v", text, p, at, want[0], want[1])
			}
		}
		if got[0] < 0 {
			t.Errorf("%s: least = %v", text, got[0])
		}
	}
}

func TestOutages(t *testing.T) {
	const s = time.Second
	for text, want := range map[string]map[time.Duration]string{
		"down 30s every 300s":              {0: "up 300", 299 * s: "up 1", 300 * s: "down 30", 329 * s: "down 1", 330 * s: "up 270", 600 * s: "down 30", 3600*24*s + 10*s: "down 20"},
		"down 30s every 300s from 0s":      {0: "down 30", 30 * s: "up 270", 300 * s: "down 30"},
		"down 30s every 300s from 10s":     {0: "up 10", 10 * s: "down 30", 310 * s: "down 30"},
		"down from 10s to 25s after start": {0: "up 10", 10 * s: "down 15", 24 * s: "down 1", 25 * s: "up 0", 3600 * s: "up 0"},
	} {
		o := MustParse(text).Rules[0].Down[0]
		for at, want := range want {
			down, left := o.when(at)
			got := fmt.Sprintf("%s %v", map[bool]string{true: "down", false: "up"}[down], left.Seconds())
			if got != want {
				t.Errorf("%s after %v is %s, want %s", text, at, got, want)
			}
		}
	}
}

func TestAnOutageTakesThePlaceOfTheScript(t *testing.T) {
	s := newState(MustParse("503,200 down from 10s to 25s as 429(retry-after=due) down from 20s to 30s as hang; "), t0)
	for _, tt := range []struct {
		at   time.Duration
		want string
		due  time.Duration
	}{{0, "503", 0}, {10, "429(retry-after=due)", 15}, {20, "429(retry-after=due)", 5}, {25, "hang", 5}, {31, "200", 0}} {
		v := ask(s, "/", t0.Add(tt.at*time.Second))
		if v.Answer != tt.want || v.due != tt.due*time.Second {
			t.Errorf("after %ds: %s with %v left, want %s with %ds", tt.at, v.Answer, v.due, tt.want, tt.due)
		}
	}
}

func TestTheDoor(t *testing.T) {
	s := newState(MustParse("/a: 200; *: 200 down from 10s to 20s as refuse down 5s every 1m as refuse down from 0s to 1h as 503"), t0)
	for _, tt := range []struct {
		at     time.Duration
		closed bool
		next   time.Duration
	}{{0, false, 10}, {10, true, 10}, {20, false, 40}, {60, true, 5}, {65, false, 55}} {
		closed, next := s.refusing(t0.Add(tt.at * time.Second))
		if closed != tt.closed || next != tt.next*time.Second {
			t.Errorf("after %ds: closed %v, next in %v, want %v and %ds", tt.at, closed, next, tt.closed, tt.next)
		}
	}
	if v := ask(s, "/a", t0.Add(15*time.Second)); v.answer.Act != Refuse || v.By != ByOutage {
		t.Errorf("a request that slipped in got %s by %s", v.Answer, v.By)
	}
}

func TestRoomForSoManyAtOnce(t *testing.T) {
	s := newState(MustParse("concurrent=2 service=2s+500ms"), t0)
	first, second := ask(s, "/", t0), ask(s, "/", t0.Add(100*time.Millisecond))
	if first.work != 2*time.Second || second.work != 2500*time.Millisecond {
		t.Errorf("work = %v and %v, want 2s and 2.5s", first.work, second.work)
	}
	third := ask(s, "/", t0.Add(500*time.Millisecond))
	if third.By != ByLimit || third.Answer != "503(retry-after=due)" || third.due != 1500*time.Millisecond {
		t.Errorf("the third got %s by %s, due in %v", third.Answer, third.By, third.due)
	}
	s.release(third) // used no capacity
	if v := ask(s, "/", t0.Add(time.Second)); v.By != ByLimit {
		t.Errorf("the fourth got %s by %s", v.Answer, v.By)
	}
	s.release(first)
	if v := ask(s, "/", t0.Add(2*time.Second)); v.By != ByScript {
		t.Errorf("after one left: %s by %s", v.Answer, v.By)
	}
}

func TestRoomOfUnknownEnd(t *testing.T) {
	s := newState(MustParse("hang concurrent=1 over=429(retry-after=due)"), t0)
	ask(s, "/", t0)
	if v := ask(s, "/", t0); v.due != unknownWait {
		t.Errorf("due in %v, want %v", v.due, unknownWait)
	}
}

// TestRate checks that the server admits no more than the rate in any period, and every
// request that comes at the stated time.
func TestRate(t *testing.T) {
	s := newState(MustParse("rate=5/s over=429(retry-after-ms=due)"), t0)
	var admitted []time.Duration
	for at := time.Duration(0); at < 5*time.Second; at += 37 * time.Millisecond {
		v := ask(s, "/", t0.Add(at))
		s.release(v)
		if v.By == ByScript {
			admitted = append(admitted, at)
			continue
		}
		if v.due <= 0 || v.due > time.Second {
			t.Fatalf("at %v: due in %v", at, v.due)
		}
	}
	if len(admitted) != 25 {
		t.Errorf("%d got in, want 25: %v", len(admitted), admitted)
	}
	for i := 5; i < len(admitted); i++ {
		if d := admitted[i] - admitted[i-5]; d < time.Second {
			t.Errorf("6 in %v", d)
		}
	}
	late := t0.Add(time.Hour)
	for range 5 {
		ask(s, "/", late)
	}
	v := ask(s, "/", late.Add(300*time.Millisecond))
	if v.due != 700*time.Millisecond {
		t.Fatalf("due in %v, want 700ms", v.due)
	}
	if again := ask(s, "/", late.Add(300*time.Millisecond+v.due)); again.By != ByScript {
		t.Errorf("who comes as told gets %s", again.Answer)
	}
}

func TestHistogram(t *testing.T) {
	h := Histogram{Width: firstWidth}
	for i := range 1000 {
		h.add(time.Duration(i) * 37 * time.Millisecond)
	}
	total := 0
	for _, n := range h.Counts {
		total += n
	}
	if total != 1000 || h.Width != 400*time.Millisecond || len(h.Counts) > maxBuckets {
		t.Errorf("%d in %d buckets of %v, want 1000 in buckets of 400ms", total, len(h.Counts), h.Width)
	}
	h = Histogram{Width: firstWidth}
	h.add(maxDuration)
	h.add(0)
}
