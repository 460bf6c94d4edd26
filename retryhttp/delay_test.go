package retryhttp_test

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/retryhttp"
)

var noon = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

const forever = time.Duration(math.MaxInt64)

func headers(lines string) http.Header {
	h := http.Header{}
	for line := range strings.SplitSeq(lines, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

func TestServerDelay(t *testing.T) {
	const none = -1
	for _, tt := range []struct {
		name, headers string
		want          time.Duration
	}{
		{"C4 milliseconds come first", "Retry-After-Ms: 1500\nX-Ms-Retry-After-Ms: 7\nRetry-After: 9", 1500 * time.Millisecond},
		{"C4 then Azure's", "X-Ms-Retry-After-Ms: 7\nRetry-After: 9", 7 * time.Millisecond},
		{"C4 then Retry-After", "Retry-After: 9\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 5", 9 * time.Second},
		{"C4 garbage passes to the next", "Retry-After-Ms: soon\nRetry-After: 9", 9 * time.Second},
		{"C4 decimals", "Retry-After: 0.25", 250 * time.Millisecond},
		{"C4 duration", "Retry-After: 6m0s", 6 * time.Minute},
		{"C4 RFC 3339", "Retry-After: 2025-06-01T12:00:30Z", 30 * time.Second},
		{"C4 epoch in seconds", "Retry-After: 1748779230", 30 * time.Second},
		{"C4 epoch in milliseconds", "Retry-After: 1748779230500", 30500 * time.Millisecond},
		{"C4 epoch in the milliseconds header", "Retry-After-Ms: 1748779230500", 30500 * time.Millisecond},
		{"C4 OpenAI", "X-Ratelimit-Remaining-Requests: 0\nX-Ratelimit-Reset-Requests: 1m30s", 90 * time.Second},
		{"C4 Anthropic", "Anthropic-Ratelimit-Tokens-Remaining: 0\nAnthropic-Ratelimit-Tokens-Reset: 2025-06-01T12:00:10Z", 10 * time.Second},
		{"C4 GitHub", "X-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 1748779230", 30 * time.Second},
		{"C4 something remains", "X-Ratelimit-Remaining: 3\nX-Ratelimit-Reset: 30", none},
		{"C4 the latest of those used up", "X-Ratelimit-Remaining-Requests: 0\nX-Ratelimit-Reset-Requests: 1s\n" +
			"X-Ratelimit-Remaining-Tokens: 0\nX-Ratelimit-Reset-Tokens: 8s\nX-Ratelimit-Remaining: 1\nX-Ratelimit-Reset: 99", 8 * time.Second},
		{"C5 negative", "Retry-After: -1", none},
		{"C5 negative duration", "Retry-After: -1s", none},
		{"C5 NaN", "Retry-After: NaN", none},
		{"C5 infinite", "Retry-After: Inf", none},
		{"C5 exponent", "Retry-After: 1e3", none},
		{"C5 two points", "Retry-After: 1.2.3", none},
		{"C5 empty", "Retry-After: ", none},
		{"C5 zero", "Retry-After: 0", 0},
		{"C5 past date", "Retry-After: Sun, 01 Jun 2025 11:00:00 GMT", 0},
		{"C5 past epoch", "Retry-After: 1000000000", 0},
		{"C5 largest delay", "Retry-After: 999999999", 999999999 * time.Second},
		{"C5 far epoch", "Retry-After: 10000000000", (10000000000 - 1748779200) * time.Second},
		{"C5 too long for a duration", "Retry-After: " + strings.Repeat("9", 30), forever},
		{"C5 too long for a float", "Retry-After: " + strings.Repeat("9", 400), forever},
		{"C6 HTTP date", "Retry-After: Sun, 01 Jun 2025 12:00:30 GMT", 30 * time.Second},
		{"C6 RFC 850", "Retry-After: Sunday, 01-Jun-25 12:00:30 GMT", 30 * time.Second},
		{"C6 asctime", "Retry-After: Sun Jun  1 12:00:30 2025", 30 * time.Second},
		{"C6 skewed clock", "Date: Sun, 01 Jun 2025 09:00:00 GMT\nRetry-After: Sun, 01 Jun 2025 09:00:30 GMT", 30 * time.Second},
		{"C6 skewed epoch", "Date: Sun, 01 Jun 2025 09:00:00 GMT\nRetry-After: 1748768430", 30 * time.Second},
		{"C6 seconds need no clock", "Date: Sun, 01 Jun 2025 09:00:00 GMT\nRetry-After: 30", 30 * time.Second},
	} {
		d, ok := retryhttp.ServerDelay(headers(tt.headers), noon)
		if ok != (tt.want != none) || ok && d != tt.want || !ok && d != 0 {
			t.Errorf("%s: ServerDelay(%q) = %v, %v, want %v", tt.name, tt.headers, d, ok, tt.want)
		}
	}
}

func TestC4BodyComesBeforeResetHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reset = "X-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 300"
		info := `{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"0.02s"}]}}`
		for _, body := range []string{info, "[" + info + "]"} {
			s := newScriptedServer(t, answer{429, reset, body}, answer{status: 200})
			g := newRig(t, quick)
			resp, _ := g.send(t, request(t, "GET", s.URL, nil))
			wantStatus(t, resp, 200, s, 2)
			if w := g.waits(); len(w) != 1 || w[0] < 20*time.Millisecond || w[0] > 24*time.Millisecond {
				t.Errorf("waited %v, want 20ms to 24ms", w)
			}
		}
	})
}

func FuzzServerDelay(f *testing.F) {
	for _, v := range []string{"1", "0.5", "-1", "10000000000", "1e400", "6m0s", "9999999h", "Sun, 01 Jun 2025 12:00:30 GMT",
		"2025-06-01T12:00:30Z", "9999-12-31T23:59:59Z", ".", "99999999999999999999"} {
		f.Add("Retry-After", v, "Sun, 01 Jun 2025 12:00:00 GMT", uint32(7))
		f.Add("Retry-After-Ms", v, "", uint32(0))
	}
	f.Fuzz(func(t *testing.T, name, value, date string, sec uint32) {
		h := http.Header{"Date": {date}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {value}}
		h.Set(name, value)
		if d, ok := retryhttp.ServerDelay(h, noon); d < 0 || !ok && d != 0 {
			t.Errorf("ServerDelay(%v) = %v, %v", h, d, ok)
		}
		// A number is read as seconds.
		want := time.Duration(sec%1e9) * time.Second
		h = http.Header{"Retry-After": {fmt.Sprint(sec % 1e9)}, "Date": {date}}
		if d, ok := retryhttp.ServerDelay(h, noon); d != want || !ok {
			t.Errorf("ServerDelay(%v) = %v, %v, want %v", h, d, ok, want)
		}
		// A date is read as the time until it.
		at := noon.Add(time.Duration(sec) * time.Second)
		h = http.Header{"Retry-After": {at.Format(http.TimeFormat)}}
		if d, ok := retryhttp.ServerDelay(h, noon); d != at.Sub(noon) || !ok {
			t.Errorf("ServerDelay(%v) = %v, %v, want %v", h, d, ok, at.Sub(noon))
		}
	})
}
