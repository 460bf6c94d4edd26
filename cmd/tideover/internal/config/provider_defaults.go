package config

import (
	"strconv"

	"github.com/tideover/tideover/internal/textfmt"
)

// providerDefaults records what is used for keys that are not said.
func (r *providerReader) providerDefaults(d *providerDraft) {
	b, base := &d.Breaker, ""
	if d.BaseURL != nil {
		base = d.BaseURL.String()
	}
	for _, v := range []struct {
		key  string
		used bool
		text string
	}{
		{"base-url", base != "", base},
		{"format", d.Format != "", d.Format},
		{"auth-header", !d.Keyless, d.AuthHeader},
		{"auth-scheme", len(d.Auth) > 0 && d.AuthScheme != "", d.AuthScheme},
		{"policy", true, d.Policy.String()},
		{"retry-posts", true, d.RetryPosts},
		{"rate.queue", true, strconv.Itoa(d.Queue)},
		{"priority", true, d.Priority.String()},
		{"breaker.failures", true, strconv.FormatFloat(100*b.FailureRate, 'g', 6, 64) + "%"},
		{"breaker.window", b.WindowCalls == 0, textfmt.CompactDuration(b.Window)},
		{"breaker.of-last", b.WindowCalls == 0, strconv.Itoa(b.MinCalls)},
		{"breaker.consecutive", true, strconv.Itoa(b.ConsecutiveFailures)},
		{"breaker.slow-rate", b.SlowCall > 0, "80%"}, // which package breaker fills in
		{"fallback-after", len(d.Fallback) > 0, strconv.Itoa(d.FallbackAfter)},
		{"stream.hold", true, textfmt.CompactDuration(d.StreamHold)},
		{"stream.idle", true, textfmt.CompactDuration(d.StreamIdle)},
		{"max-body", true, textfmt.FormatSize(d.MaxBody)},
	} {
		if v.used && !d.has(v.key) {
			d.at.RecordDefault(v.key, v.text)
		}
	}
}
