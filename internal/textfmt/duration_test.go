package textfmt_test

import (
	"math"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

const day = 24 * time.Hour

// TestDurations has the output of all functions for one duration in a row, as in the
// table of the package's documentation.
func TestDurations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d                                                                time.Duration
		policy, ascii, compact, short, coarse, rounded, readable, rounds string
	}{
		{0, "0s", "0s", "0s", "0s", "0ms", "", "0s", "0s"},
		{10 * time.Microsecond, "10us", "10us", "10µs", "10us", "0ms", "", "0s", "0s"},
		{500 * time.Microsecond, "500us", "500us", "500µs", "500us", "0ms", "1ms", "1ms", "1ms"},
		{1234567, "1.234567ms", "1.234567ms", "1.234567ms", "1.235ms", "1ms", "1ms", "1ms", "1ms"},
		{999600 * time.Microsecond, "999.6ms", "999.6ms", "999.6ms", "999.6ms", "999ms", "1s", "1s", "1s"},
		{1234500 * time.Microsecond, "1.2345s", "1.2345s", "1.2345s", "1.235s", "1s", "1s", "1.2s", "1.2s"},
		{12340 * time.Millisecond, "12.34s", "12.34s", "12.34s", "12.34s", "12s", "12s", "12s", "12.3s"},
		{90 * time.Second, "1m30s", "1m30s", "1m30s", "1m30s", "1m30s", "1m30s", "1m30s", "1m30s"},
		{5 * time.Minute, "5m", "5m", "5m", "5m", "5m", "5m", "5m0s", "5m0s"},
		{time.Hour - time.Millisecond, "59m59.999s", "59m59.999s", "59m59.999s", "1h", "59m59s", "1h", "1h0m0s", "1h0m0s"},
		{time.Hour + 5*time.Second, "1h0m5s", "1h0m5s", "1h0m5s", "1h0m5s", "1h", "1h", "1h0m5s", "1h0m5s"},
		{200 * time.Minute, "3h20m", "3h20m", "3h20m", "3h20m", "3h20m", "3h20m", "3h20m0s", "3h20m0s"},
		{day - time.Second, "23h59m59s", "23h59m59s", "23h59m59s", "23h59m59s", "23h59m", "1d", "23h59m59s", "23h59m59s"},
		{day, "1d", "24h", "24h", "1d", "1d", "1d", "24h0m0s", "24h0m0s"},
		{36 * time.Hour, "36h", "36h", "36h", "1d12h", "1d12h", "1d12h", "36h0m0s", "36h0m0s"},
		{52*time.Hour + 31*time.Minute, "52h31m", "52h31m", "52h31m", "2d5h", "2d4h", "2d5h", "52h31m0s", "52h31m0s"},
		{400 * day, "400d", "9600h", "9600h", "1.1y", "400d", "400d", "9600h0m0s", "9600h0m0s"},
		{-90 * time.Second, "-1m30s", "-1m30s", "-1m30s", "-1m30s", "-1m30s", "", "-1m30s", "-1m30s"},
		{-day, "-1d", "-24h", "-24h", "-24h", "-1d", "", "-24h0m0s", "-24h0m0s"},
	} {
		for _, f := range []struct{ name, got, want string }{
			{"PolicyDuration", textfmt.PolicyDuration(c.d), c.policy},
			{"ASCIIDuration", textfmt.ASCIIDuration(c.d), c.ascii},
			{"CompactDuration", textfmt.CompactDuration(c.d), c.compact},
			{"ShortDuration", textfmt.ShortDuration(c.d), c.short},
			{"CoarseDuration", textfmt.CoarseDuration(c.d), c.coarse},
			{"RoundedDuration", textfmt.RoundedDuration(c.d), c.rounded},
			{"ReadableDuration", textfmt.ReadableDuration(c.d), c.readable},
			{"RoundDuration", textfmt.RoundDuration(c.d).String(), c.rounds},
		} {
			if f.got != f.want {
				t.Errorf("%s(%v) = %q, want %q", f.name, c.d, f.got, f.want)
			}
		}
	}
}

func TestMeasuredDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-1: "0s", 0: "0s", 450 * time.Microsecond: "450µs", 12 * time.Millisecond: "12ms", 1234 * time.Millisecond: "1.23s",
		12345 * time.Millisecond: "12.3s", 90*time.Second + 700*time.Millisecond: "1m31s", 36 * time.Hour: "1d12h",
	} {
		if got := textfmt.MeasuredDuration(d); got != want {
			t.Errorf("MeasuredDuration(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestShortDuration(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		d    time.Duration
		want string
	}{
		{1, "1ns"},
		{945 * time.Millisecond, "945ms"},
		{999999 * time.Microsecond, "1s"},
		{8400 * time.Millisecond, "8.4s"},
		{12345678 * time.Microsecond, "12.35s"},
		{128400 * time.Millisecond, "2m8.4s"},
		{time.Hour, "1h"},
		{90 * time.Minute, "1h30m"},
		{10 * day, "10d"},
		{8*day + 12*time.Hour, "8d12h"},
		{math.MaxInt64, "292y"},
	} {
		if got := textfmt.ShortDuration(tt.d); got != tt.want {
			t.Errorf("ShortDuration(%d) = %q, want %q", tt.d, got, tt.want)
		}
	}
}

// FuzzCompactDuration checks that the exact forms lose nothing.
func FuzzCompactDuration(f *testing.F) {
	for _, d := range []time.Duration{0, 1, time.Microsecond, time.Second, time.Minute, time.Hour, day, math.MaxInt64, math.MinInt64} {
		f.Add(int64(d))
	}
	f.Fuzz(func(t *testing.T, n int64) {
		d := time.Duration(n)
		for _, text := range []string{textfmt.CompactDuration(d), textfmt.ASCIIDuration(d)} {
			if got, err := time.ParseDuration(text); err != nil || got != d {
				t.Errorf("ParseDuration(%q) = %v, %v, want %v", text, got, err, d)
			}
		}
		for i, c := range []byte(textfmt.PolicyDuration(d)) {
			if c >= 0x80 {
				t.Errorf("PolicyDuration(%v): byte %d is not ASCII", d, i)
			}
		}
	})
}

func TestElapsedDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "", 12345 * time.Microsecond: "12ms", 3_480 * time.Millisecond: "3.5s", 9_990 * time.Millisecond: "10s",
		10_400 * time.Millisecond: "10s", 42 * time.Minute: "42m", 36 * time.Hour: "1d12h",
	} {
		if got := textfmt.ElapsedDuration(d); got != want {
			t.Errorf("ElapsedDuration(%v) = %q, want %q", d, got, want)
		}
	}
}
