package textfmt_test

import (
	"math"
	"testing"

	"github.com/tideover/tideover/internal/textfmt"
)

func TestPlural(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{-1: "-1 runs", 0: "0 runs", 1: "1 run", 2: "2 runs", 1234: "1234 runs"} {
		if got := textfmt.Plural(n, "run"); got != want {
			t.Errorf("Plural(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int]string{0: "0 retries", 1: "1 retry", 2: "2 retries"} {
		if got := textfmt.PluralOf(n, "retry", "retries"); got != want {
			t.Errorf("PluralOf(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "500": 500, "007": 7, "500B": 500, "1kB": 1000, "1KB": 1000, "64KiB": 64 << 10, "10MB": 10_000_000, "64MiB": 64 << 20,
		"2GB": 2e9, "1GiB": 1 << 30, "3TB": 3e12, "1TiB": 1 << 40, "9223372036854775807": math.MaxInt64,
	} {
		if got, ok := textfmt.ParseSize(text); !ok || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "B", "KiB", "-1", "+1", "1.5MB", "1 MB", "1mb", "1K", "0x10", "1_000", "9223372036854775808", "9007199254740992KiB"} {
		if got, ok := textfmt.ParseSize(text); ok {
			t.Errorf("ParseSize(%q) = %d, want an error", text, got)
		}
	}
}

func TestFormatSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 1: "1", 1000: "1000", 1023: "1023", 1024: "1KiB", 1536: "1536", 64 << 20: "64MiB", 1 << 30: "1GiB", 1 << 40: "1TiB", 1 << 50: "1024TiB"} {
		if got := textfmt.FormatSize(n); got != want {
			t.Errorf("FormatSize(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestRoundedSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 1550: "1.6 kB", 12_340_000: "12.3 MB", 12e9: "12.0 GB", 5e12: "5000.0 GB"} {
		if got := textfmt.RoundedSize(n); got != want {
			t.Errorf("RoundedSize(%d) = %q, want %q", n, got, want)
		}
	}
}

func FuzzSizeRoundTrip(f *testing.F) {
	for _, n := range []int64{0, 1, 1000, 1024, 64 << 20, math.MaxInt64} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n int64) {
		if n < 0 {
			return
		}
		if got, ok := textfmt.ParseSize(textfmt.FormatSize(n)); !ok || got != n {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", textfmt.FormatSize(n), got, ok, n)
		}
	})
}

func TestParsePercent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text             string
		want             float64
		decimal, anyForm bool
	}{
		{"20%", 20, true, true},
		{"0.5%", 0.5, true, true},
		{".5%", 0.5, true, true},
		{"100%", 100, true, true},
		{"100.0%", 100, true, true},
		{"9e1%", 90, false, true},
		{"+50%", 50, false, true},
		{"", 0, false, false},
		{"%", 0, false, false},
		{"20", 0, false, false},
		{"0%", 0, false, false},
		{"-1%", 0, false, false},
		{"100.1%", 0, false, false},
		{"NaN%", 0, false, false},
		{"Inf%", 0, false, false},
		{"20 %", 0, false, false},
	} {
		if got, ok := textfmt.ParsePercent(c.text); ok != c.decimal || ok && got != c.want {
			t.Errorf("ParsePercent(%q) = %v, %v, want %v, %v", c.text, got, ok, c.want, c.decimal)
		}
		if got, ok := textfmt.ParseFloatPercent(c.text); ok != c.anyForm || ok && got != c.want {
			t.Errorf("ParseFloatPercent(%q) = %v, %v, want %v, %v", c.text, got, ok, c.want, c.anyForm)
		}
	}
}

func FuzzPercentRoundTrip(f *testing.F) {
	for _, n := range []float64{0.1, 1, 33.3, 100, 1e-9} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n float64) {
		if !(n > 0 && n <= 100) {
			return
		}
		text := textfmt.FormatPercent(n)
		if got, ok := textfmt.ParsePercent(text); !ok || got != n {
			t.Errorf("ParsePercent(%q) = %v, %v, want %v", text, got, ok, n)
		}
		if got, ok := textfmt.ParseFloatPercent(text); !ok || got != n {
			t.Errorf("ParseFloatPercent(%q) = %v, %v, want %v", text, got, ok, n)
		}
	})
}
