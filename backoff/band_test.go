package backoff

import (
	"math"
	"testing"
)

func TestBandText(t *testing.T) {
	tests := []struct {
		text string
		want Band
		back string // the canonical spelling; "" means text
	}{
		{"none", None, ""},
		{"full", Full, ""},
		{"equal", Equal, ""},
		{"true", Wide, "50%"},
		{"20%", Band{0.8, 1.2}, ""},
		{"10%", Band{0.9, 1.1}, ""},
		{"33%", Band{0.67, 1.33}, ""},
		{"100%", Band{0, 2}, ""},
		{"0%", None, "none"},
		{"+0%", None, "none"},
		{"+50%", Band{1, 1.5}, ""},
		{"+250%", Band{1, 3.5}, ""},
		{"0.5..1.5", Wide, "50%"},
		{"0..1", Full, "full"},
		{"0.5..1", Equal, "equal"},
		{"1..1", Band{1, 1}, ""},
		{"0.25..0.75", Band{0.25, 0.75}, ""},
		{"1.5..3", Band{1.5, 3}, ""},
		{"0.00001..1000000", Band{1e-5, 1e6}, ""},
	}
	for _, tt := range tests {
		got, err := ParseBand(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("ParseBand(%q) = %v, %v, want %v", tt.text, got, err, tt.want)
		}
		back := tt.back
		if back == "" {
			back = tt.text
		}
		if got.String() != back {
			t.Errorf("ParseBand(%q).String() = %q, want %q", tt.text, got, back)
		}
	}
}

func TestBandTextRefuses(t *testing.T) {
	for _, text := range []string{
		"", "20", "-20%", "101%", "0.5..", "..1", "1..0.5", "0..0", "NaN..1", "Inf..Inf", "1e3%",
		"0.5...1.5", "+%", "%", "0..2000000", "full ", "Full", "1..1..1",
	} {
		if b, err := ParseBand(text); err == nil {
			t.Errorf("ParseBand(%q) = %v, want an error", text, b)
		}
	}
}

func TestBandValidateRefuses(t *testing.T) {
	for _, b := range []Band{
		{math.NaN(), 1},
		{0, math.NaN()},
		{-0.1, 1},
		{0.5, 0.4},
		{0, math.Inf(1)},
		{math.Inf(1), math.Inf(1)},
	} {
		if err := b.Validate(); err == nil {
			t.Errorf("Band{%v, %v}.Validate() = nil, want an error", b.Lo, b.Hi)
		}
	}
}

func FuzzParseBand(f *testing.F) {
	for _, s := range []string{"none", "full", "20%", "+50%", "0.5..1.5", "33.333333333333%", "1..1", "true"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := ParseBand(s)
		if err != nil {
			return
		}
		if err := b.Validate(); err != nil {
			t.Fatalf("ParseBand(%q) = %v is not valid: %v", s, b, err)
		}
		if got, err := ParseBand(b.String()); err != nil || got != b {
			t.Fatalf("ParseBand(%q) = %v, whose text %q reads as %v, %v", s, b, b.String(), got, err)
		}
	})
}
