package chaos

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/retryhttp"
)

// TestWaitsAreStatedInEveryForm checks the header that is sent in each form, and the wait
// that retryhttp reads from it.
func TestWaitsAreStatedInEveryForm(t *testing.T) {
	t.Parallel()
	for args, tt := range map[string]struct {
		header, value string // value is a pattern
		wait          time.Duration
		none          bool // retryhttp must read no wait from it
	}{
		"retry-after=2":                                      {"Retry-After", `2`, 2 * time.Second, false},
		"retry-after=1.5":                                    {"Retry-After", `1\.5`, 1500 * time.Millisecond, false},
		"retry-after=seconds:90s":                            {"Retry-After", `90`, 90 * time.Second, false},
		"retry-after=decimal:250ms":                          {"Retry-After", `0\.25`, 250 * time.Millisecond, false},
		"retry-after=imf:5s":                                 {"Retry-After", `[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT`, 5 * time.Second, false},
		"retry-after=rfc850:5s":                              {"Retry-After", `[A-Z][a-z]+day, \d\d-[A-Z][a-z]{2}-\d\d \d\d:\d\d:\d\d GMT`, 5 * time.Second, false},
		"retry-after=asctime:5s":                             {"Retry-After", `[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}`, 5 * time.Second, false},
		"retry-after=imf:-1h":                                {"Retry-After", `.* GMT`, 0, false},
		"retry-after=imf:5s date=imf:-3h":                    {"Retry-After", `.* GMT`, 5 * time.Second, false},
		"retry-after=epoch:60s":                              {"Retry-After", `\d{10}`, 60 * time.Second, false},
		"retry-after=epoch-ms:60s":                           {"Retry-After", `\d{13}`, 60 * time.Second, false},
		"retry-after=duration:90s":                           {"Retry-After", `1m30s`, 90 * time.Second, false},
		"retry-after=rfc3339:60s":                            {"Retry-After", `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`, 60 * time.Second, false},
		"retry-after=garbage":                                {"Retry-After", `soon`, 0, true},
		"retry-after=negative":                               {"Retry-After", `-5`, 0, true},
		"retry-after=huge":                                   {"Retry-After", `10000000000`, 0, false}, // a time in 2286
		`retry-after="in a while, maybe"`:                    {"Retry-After", `in a while, maybe`, 0, true},
		"retry-after-ms=700":                                 {"Retry-After-Ms", `700`, 700 * time.Millisecond, false},
		"x-ms-retry-after-ms=ms:1s":                          {"X-Ms-Retry-After-Ms", `1000`, time.Second, false},
		"x-ratelimit-reset-requests=6m0s":                    {"X-Ratelimit-Reset-Requests", `6m0s`, 6 * time.Minute, false},
		"x-ratelimit-reset=epoch:30s":                        {"X-Ratelimit-Reset", `\d{10}`, 30 * time.Second, false},
		"ratelimit-reset=30":                                 {"Ratelimit-Reset", `30`, 30 * time.Second, false},
		"anthropic-ratelimit-input-tokens-reset=rfc3339:30s": {"Anthropic-Ratelimit-Input-Tokens-Reset", `.*Z`, 30 * time.Second, false},
		"x-ratelimit-reset-requests=6m x-ratelimit-remaining-requests=4": {"X-Ratelimit-Remaining-Requests", `4`, 0, true},
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			s := serve(t, "429("+args+")")
			resp, _ := get(t, s, "/")
			if got := resp.Header.Get(tt.header); !regexp.MustCompile("^" + tt.value + "$").MatchString(got) {
				t.Errorf("%s: %q, want %s", tt.header, got, tt.value)
			}
			got, stated := retryhttp.ServerDelay(resp.Header, time.Now())
			switch {
			case stated == tt.none:
				t.Errorf("ServerDelay = %v, %v, want stated %v", got, stated, !tt.none)
			case strings.Contains(args, "huge") && got > 100*365*day:
			case got > tt.wait+time.Second || got < tt.wait-time.Second: // the Date has no fractions
				t.Errorf("ServerDelay = %v, want %v", got, tt.wait)
			}
		})
	}
}

func TestALimitWithAResetIsUsedUp(t *testing.T) {
	h := http.Header{}
	writeHeaders(h, []Header{
		{"x-ratelimit-reset-tokens", "6m0s"}, {"anthropic-ratelimit-requests-reset", "rfc3339:10s"}, {"ratelimit-reset", "5"}, {"x-ratelimit-remaining-tokens", "3"},
	}, t0, 0)
	for name, want := range map[string]string{
		"X-Ratelimit-Remaining-Tokens": "3", "Anthropic-Ratelimit-Requests-Remaining": "0", "Ratelimit-Remaining": "0",
		"Anthropic-Ratelimit-Requests-Reset": "2026-11-15T12:00:10Z",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestWhatIsDueIsNeverTooEarly checks every form of the time until there is room.
func TestWhatIsDueIsNeverTooEarly(t *testing.T) {
	for _, fraction := range []time.Duration{0, 1, 300 * time.Millisecond, 999 * time.Millisecond} {
		for _, left := range []time.Duration{1, 400 * time.Millisecond, time.Second, 1300 * time.Millisecond, 7 * time.Second} {
			now := t0.Add(fraction)
			for _, f := range waitForms {
				if f.name == "ms" {
					continue // Retry-After is never in milliseconds; the headers that are follow
				}
				h := http.Header{}
				writeHeaders(h, []Header{{"retry-after", f.name + ":due"}}, now, left)
				h.Del("Date") // for a client that uses its own clock
				got, ok := retryhttp.ServerDelay(h, now)
				if !ok || got < left-time.Microsecond || got > left+2*time.Second {
					t.Errorf("%s: %v after the second, due in %v: %q is read as %v", f.name, fraction, left, h.Get("Retry-After"), got)
				}
			}
			for _, name := range []string{"retry-after", "retry-after-ms", "x-ratelimit-reset", "x-ratelimit-reset-tokens", "anthropic-ratelimit-tokens-reset"} {
				h := http.Header{}
				writeHeaders(h, []Header{{name, due}}, now, left)
				if got, ok := retryhttp.ServerDelay(h, now); !ok || got < left-time.Microsecond || got > left+2*time.Second {
					t.Errorf("%s: due in %v: %q is read as %v", name, left, h.Get(name), got)
				}
			}
		}
	}
}
