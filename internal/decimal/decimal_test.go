package decimal

import "testing"

func TestParse(t *testing.T) {
	for s, want := range map[string]float64{"0": 0, "12": 12, "0.5": 0.5, ".5": 0.5, "1000000": 1e6, "0.00001": 1e-5} {
		if got, err := Parse(s); err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", ".", "-1", "+1", "1e3", "NaN", "Inf", "0x10", "1_000", "1.2.3", " 1"} {
		if got, err := Parse(s); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", s, got)
		}
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(0.1)
	f.Add(1e-9)
	f.Fuzz(func(t *testing.T, n float64) {
		if !(n >= 0 && n <= 1e300) {
			return
		}
		if got, err := Parse(Format(n)); err != nil || got != n {
			t.Errorf("Parse(Format(%v)) = %v, %v", n, got, err)
		}
	})
}
