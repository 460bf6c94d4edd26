package limit

import (
	"strings"
	"testing"
	"time"
)

func TestFrequencyText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		want Frequency
		same bool // String writes the text back
	}{
		{"50/min", Frequency{50, time.Minute}, true},
		{"10/s", Frequency{10, time.Second}, true},
		{"3/h", Frequency{3, time.Hour}, true},
		{"1000/d", Frequency{1000, day}, true},
		{"1/1.5s", Frequency{1, 1500 * time.Millisecond}, true},
		{"2/48h", Frequency{2, 2 * day}, true},
		{"2/1h30m", Frequency{2, 90 * time.Minute}, true},
		{"2/2d", Frequency{2, 2 * day}, false},
		{"1/60s", Frequency{1, time.Minute}, false},
		{"007/1m0s", Frequency{7, time.Minute}, false},
	} {
		got, err := ParseRate(tt.text)
		if err != nil || got != tt.want {
			t.Errorf("ParseRate(%q) = %v, %v, want %v", tt.text, got, err, tt.want)
		}
		if s := got.String(); tt.same && s != tt.text {
			t.Errorf("ParseRate(%q).String() = %q", tt.text, s)
		}
	}
}

func TestParseRateErrorsQuoteTheWordAndSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, want string }{
		{"", "want events per"},
		{"50", "want events per"},
		{"/s", "want events per"},
		{"50/", "want events per"},
		{"+5/s", "want events per"},
		{"0.5/s", "want events per"},
		{"5/m", "want events per"},
		{"5/-d", "want events per"},
		{"99999999999999999999/s", "want events per"},
		{"0/s", "0 events: want at least 1"},
		{"1/-1s", "a span of -1s is not above zero"},
		{"0/0s", "0 events: want at least 1; a span of 0s is not above zero"},
		{"1/367d", "a span of 8808h0m0s is above 8784h0m0s"},
		{"2/1ns", "more than one event per nanosecond"},
	} {
		_, err := ParseRate(tt.text)
		if err == nil || !strings.HasPrefix(err.Error(), `rate "`+tt.text+`": `) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParseRate(%q) error = %v, want the word and %q", tt.text, err, tt.want)
		}
	}
}

func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"50/min", "10/s", "1/1.5s", "3/2d", "1/1h0m1s", "2/1ns", "x/y", "/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		freq, err := ParseRate(s)
		if err != nil {
			if !strings.Contains(err.Error(), "rate") {
				t.Errorf("ParseRate(%q) error = %v, want it to name the rate", s, err)
			}
			return
		}
		if err := freq.Validate(); err != nil {
			t.Errorf("ParseRate(%q) = %v, which is invalid: %v", s, freq, err)
		}
		if again, err := ParseRate(freq.String()); err != nil || again != freq {
			t.Errorf("ParseRate(%q) = %v, %v, want %v", freq.String(), again, err, freq)
		}
	})
}
