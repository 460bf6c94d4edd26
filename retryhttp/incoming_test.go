package retryhttp_test

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/retryhttp"
)

func TestE13TimeLeft(t *testing.T) {
	const none = -1
	ms := time.Millisecond
	for _, tt := range []struct {
		name, headers string
		want          time.Duration
	}{
		{"gRPC hours", "Grpc-Timeout: 2H", 2 * time.Hour},
		{"gRPC minutes", "Grpc-Timeout: 3M", 3 * time.Minute},
		{"gRPC seconds", "Grpc-Timeout: 4S", 4 * time.Second},
		{"gRPC milliseconds", "Grpc-Timeout: 100m", 100 * ms},
		{"gRPC microseconds", "Grpc-Timeout: 7u", 7 * time.Microsecond},
		{"gRPC nanoseconds", "Grpc-Timeout: 99999999n", 99999999},
		{"gRPC zero is over", "Grpc-Timeout: 0S", 0},
		{"gRPC longer than a duration", "Grpc-Timeout: 99999999H", forever},
		{"gRPC with nine digits", "Grpc-Timeout: 100000000n", none},
		{"gRPC without a unit", "Grpc-Timeout: 100", none},
		{"gRPC without a number", "Grpc-Timeout: S", none},
		{"gRPC with an unknown unit", "Grpc-Timeout: 1s", none},
		{"gRPC with a sign", "Grpc-Timeout: +1S", none},
		{"gRPC with a point", "Grpc-Timeout: 1.5S", none},
		{"gRPC empty", "Grpc-Timeout: ", none},
		{"Connect", "Connect-Timeout-Ms: 1500", 1500 * ms},
		{"Connect zero is over", "Connect-Timeout-Ms: 0", 0},
		{"Envoy", "X-Envoy-Upstream-Rq-Timeout-Ms: 250", 250 * ms},
		{"Envoy zero is no limit", "X-Envoy-Upstream-Rq-Timeout-Ms: 0", none},
		{"Stainless", "X-Stainless-Timeout: 600", 10 * time.Minute},
		{"Stainless with decimals", "X-Stainless-Timeout: 0.25", 250 * ms},
		{"Stainless zero is what is left of less than a second", "X-Stainless-Timeout: 0", none},
		{"X-Request-Timeout-Ms", "X-Request-Timeout-Ms: 30", 30 * ms},
		{"spaces around it", "X-Request-Timeout-Ms:  30 ", 30 * ms},
		{"zero is over", "X-Request-Timeout-Ms: 0", 0},
		{"negative", "X-Request-Timeout-Ms: -1", none},
		{"NaN", "X-Stainless-Timeout: NaN", none},
		{"infinite", "X-Stainless-Timeout: Inf", none},
		{"exponent", "X-Stainless-Timeout: 1e3", none},
		{"hexadecimal", "X-Request-Timeout-Ms: 0x10", none},
		{"words", "X-Request-Timeout-Ms: soon", none},
		{"longer than a duration", "X-Request-Timeout-Ms: 99999999999999999999", forever},
		{"longer than a float", "X-Stainless-Timeout: " + strings.Repeat("9", 400), forever},
		{"the shortest", "Grpc-Timeout: 2S\nConnect-Timeout-Ms: 900\nX-Stainless-Timeout: 1", 900 * ms},
		{"the shortest of one header", "X-Request-Timeout-Ms: 900\nX-Request-Timeout-Ms: 300", 300 * ms},
		{"the one that makes sense", "Grpc-Timeout: soon\nConnect-Timeout-Ms: -1\nX-Stainless-Timeout: 3", 3 * time.Second},
		{"nothing", "X-Other: 1", none},
	} {
		d, ok := retryhttp.TimeLeft(headers(tt.headers))
		if ok != (tt.want != none) || ok && d != tt.want || !ok && d != 0 {
			t.Errorf("%s: TimeLeft(%q) = %v, %v, want %v", tt.name, tt.headers, d, ok, tt.want)
		}
	}
}

func TestE13RemainingBudgetsAreNeverMoreThanThereIs(t *testing.T) {
	for _, tt := range []struct {
		header string
		d      time.Duration
		want   string
	}{
		{"grpc-timeout", 100 * time.Millisecond, "100000u"},
		{"Grpc-Timeout", 1, "1n"},
		{"Grpc-Timeout", 99999999, "99999999n"},
		{"Grpc-Timeout", 100000999, "100000u"},
		{"Grpc-Timeout", time.Hour, "3600000m"},
		{"Grpc-Timeout", 30 * time.Hour, "108000S"},
		{"Grpc-Timeout", forever, "2562047H"},
		{"Connect-Timeout-Ms", 1999999, "1"},
		{"Connect-Timeout-Ms", 999 * time.Microsecond, "1"},
		{"Connect-Timeout-Ms", forever, "9999999999"},
		{"X-Envoy-Upstream-Rq-Timeout-Ms", 1500*time.Millisecond + 999, "1500"},
		{"X-Envoy-Upstream-Rq-Timeout-Ms", 1, "1"},
		{"X-Request-Timeout-Ms", time.Minute, "60000"},
		{"X-Stainless-Timeout", 600 * time.Second, "600"},
		{"x-stainless-timeout", 1500*time.Millisecond + 999999, "1.5"},
		{"X-Stainless-Timeout", 1, "0.001"},
		{"X-Stainless-Timeout", forever, "9223372036.854"},
	} {
		if got, ok := retryhttp.FormatBudget(tt.header, tt.d); !ok || got != tt.want {
			t.Errorf("%s for %v = %q, %v, want %q", tt.header, tt.d, got, ok, tt.want)
		}
	}
	for _, name := range []string{"Timeout", "X-Envoy-Expected-Rq-Timeout-Ms", ""} {
		if got, ok := retryhttp.FormatBudget(name, time.Second); ok {
			t.Errorf("%q = %q, want nothing for a header that is not read", name, got)
		}
	}
	for _, d := range []time.Duration{0, -1, math.MinInt64} {
		if got, ok := retryhttp.FormatBudget("Grpc-Timeout", d); ok {
			t.Errorf("%v = %q, want nothing for a time that is over", d, got)
		}
	}
}

var timeoutNames = []string{
	"Grpc-Timeout", "Connect-Timeout-Ms", "X-Envoy-Upstream-Rq-Timeout-Ms", "X-Stainless-Timeout", "X-Request-Timeout-Ms",
}

func FuzzTimeLeft(f *testing.F) {
	for _, v := range []string{"1", "100m", "99999999H", "0S", "0.5", "-1", "1e400", ".", "18446744073709551616", "NaN", " 7 "} {
		f.Add(uint8(0), v, int64(1))
		f.Add(uint8(3), v, int64(1500*time.Millisecond))
		f.Add(uint8(7), v, int64(math.MaxInt64))
	}
	f.Fuzz(func(t *testing.T, which uint8, value string, ns int64) {
		name := timeoutNames[int(which)%len(timeoutNames)]
		h := http.Header{name: {value}}
		if d, ok := retryhttp.TimeLeft(h); d < 0 || !ok && d != 0 {
			t.Errorf("TimeLeft(%v) = %v, %v", h, d, ok)
		}
		// The header states the time that is left or slightly less, but never 0.
		left := time.Duration(ns)
		said, ok := retryhttp.FormatBudget(name, left)
		if ok != (left > 0) {
			t.Fatalf("%s for %v = %q, %v", name, left, said, ok)
		}
		if !ok {
			return
		}
		got, ok := retryhttp.TimeLeft(http.Header{name: {said}})
		least := left - left/1e5
		if name != "Grpc-Timeout" {
			least = min(left, 1e10*time.Millisecond) - 2*time.Millisecond
		}
		// Reading rounds to the precision of a float64, for times above a hundred days.
		most := max(left, time.Millisecond) + left>>52
		if most < 0 {
			most = forever
		}
		if !ok || got <= 0 || got < least || got > most || name == "Grpc-Timeout" && got > left {
			t.Errorf("%s for %v is %q, which is read as %v, %v", name, left, said, got, ok)
		}
		// A second header can only make the time shorter.
		h.Add("X-Request-Timeout-Ms", "5")
		if d, ok := retryhttp.TimeLeft(h); !ok || d > 5*time.Millisecond {
			t.Errorf("TimeLeft(%v) = %v, %v, want at most 5ms", h, d, ok)
		}
	})
}

func TestH18PriorRetries(t *testing.T) {
	for _, tt := range []struct {
		name, headers string
		want          int
	}{
		{"ours, the first attempt", "X-Tideover-Attempt: 1", 0},
		{"ours, the third", "X-Tideover-Attempt: 3", 2},
		{"Envoy's first", "X-Envoy-Attempt-Count: 1", 0},
		{"Envoy's second", "X-Envoy-Attempt-Count: 2", 1},
		{"an SDK's first", "X-Stainless-Retry-Count: 0", 0},
		{"an SDK's first retry", "X-Stainless-Retry-Count: 1", 1},
		{"gRPC", "Grpc-Previous-Rpc-Attempts: 4", 4},
		{"the largest", "X-Tideover-Attempt: 2\nX-Stainless-Retry-Count: 3\nX-Envoy-Attempt-Count: 3", 3},
		{"the largest of one header", "X-Tideover-Attempt: 2\nX-Tideover-Attempt: 5", 4},
		{"no attempt at all", "X-Tideover-Attempt: 0", 0},
		{"negative", "X-Stainless-Retry-Count: -1", 0},
		{"garbage beside a number", "X-Stainless-Retry-Count: many\nX-Envoy-Attempt-Count: 2", 1},
		{"too large", "X-Stainless-Retry-Count: 99999999999999999999999", math.MaxInt32},
		{"nothing", "X-Other: 7", 0},
	} {
		if got := retryhttp.PriorRetries(headers(tt.headers)); got != tt.want {
			t.Errorf("%s: PriorRetries(%q) = %d, want %d", tt.name, tt.headers, got, tt.want)
		}
	}
}

func TestH18ContextCarriesPriorRetries(t *testing.T) {
	ctx := t.Context()
	if n := retryhttp.InboundRetries(ctx); n != 0 {
		t.Errorf("without any: %d", n)
	}
	for _, n := range []int{0, 1, 7} {
		if got := retryhttp.InboundRetries(retryhttp.WithPriorRetries(ctx, n)); got != n {
			t.Errorf("got %d, want %d", got, n)
		}
	}
	if got := retryhttp.InboundRetries(retryhttp.WithPriorRetries(ctx, -3)); got != 0 {
		t.Errorf("a negative number came back as %d", got)
	}
	if got := retryhttp.InboundRetries(context.WithoutCancel(retryhttp.WithPriorRetries(ctx, 2))); got != 2 {
		t.Errorf("got %d from a context around it, want 2", got)
	}
}

func FuzzPriorRetries(f *testing.F) {
	for _, v := range []string{"0", "1", "2", "-1", "007", "x", "99999999999999999999", " 3 "} {
		f.Add(v, v, uint16(4))
	}
	f.Fuzz(func(t *testing.T, a, b string, n uint16) {
		h := http.Header{"X-Tideover-Attempt": {a}, "X-Stainless-Retry-Count": {b}}
		before := retryhttp.PriorRetries(h)
		if before < 0 || before > math.MaxInt32 {
			t.Errorf("PriorRetries(%v) = %d", h, before)
		}
		h.Set("Grpc-Previous-Rpc-Attempts", strconv.Itoa(int(n)))
		if got := retryhttp.PriorRetries(h); got != max(before, int(n)) {
			t.Errorf("PriorRetries(%v) = %d, want the larger of %d and %d", h, got, before, n)
		}
	})
}
