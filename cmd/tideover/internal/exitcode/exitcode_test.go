package exitcode_test

import (
	"encoding/json"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
)

func TestParseRange(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]exitcode.Range{"0": {0, 0}, "75": {75, 75}, "100-110": {100, 110}, "5-5": {5, 5}, "200-299": {200, 299}} {
		if got, err := exitcode.ParseRange(text); err != nil || got != want {
			t.Errorf("ParseRange(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-", "-1", "1-", "9-5", "a", "1 - 2", "1-2-3", "4294967296"} {
		if got, err := exitcode.ParseRange(text); err == nil {
			t.Errorf("ParseRange(%q) = %v, want an error", text, got)
		}
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	set := exitcode.Set{{1, 1}, {5, 9}}
	for code := -1; code <= 10; code++ {
		if want := code == 1 || code >= 5 && code <= 9; set.Has(code) != want {
			t.Errorf("Has(%d) = %v, want %v", code, !want, want)
		}
	}
	for _, c := range []struct {
		other exitcode.Set
		code  int
		ok    bool
	}{
		{nil, 0, false},
		{exitcode.Set{{2, 4}, {10, 20}}, 0, false},
		{exitcode.Set{{0, 255}}, 1, true},
		{exitcode.Set{{8, 12}}, 8, true},
	} {
		if code, ok := set.Overlap(c.other); code != c.code || ok != c.ok {
			t.Errorf("Overlap(%v) = %d, %v, want %d, %v", c.other, code, ok, c.code, c.ok)
		}
	}
	if got := set.String(); got != "1,5-9" {
		t.Errorf("String() = %q", got)
	}
}

// TestSetAsJSON checks the JSON of a set, which is stored with steps and must not change.
func TestSetAsJSON(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(exitcode.Set{{1, 1}, {5, 9}})
	if err != nil || string(got) != `["1","5-9"]` {
		t.Errorf("Marshal = %s, %v", got, err)
	}
	var set exitcode.Set
	if err := json.Unmarshal(got, &set); err != nil || set.String() != "1,5-9" {
		t.Errorf("Unmarshal = %v, %v", set, err)
	}
	if err := json.Unmarshal([]byte(`["x"]`), &set); err == nil {
		t.Error("Unmarshal of a word: no error")
	}
}

func FuzzRangeRoundTrip(f *testing.F) {
	f.Add("75")
	f.Add("100-110")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := exitcode.ParseRange(text)
		if err != nil {
			return
		}
		if again, err := exitcode.ParseRange(r.String()); err != nil || again != r || r.First > r.Last {
			t.Errorf("ParseRange(%q) = %v, which parses as %v, %v", text, r, again, err)
		}
	})
}

func TestFlag(t *testing.T) {
	t.Parallel()
	var flag exitcode.Flag
	if flag.Given() || flag.Has(0) {
		t.Error("the zero Flag is set")
	}
	for _, text := range []string{"1, 3 ,5-9", "0", "255"} {
		if err := flag.Set(text); err != nil {
			t.Fatalf("Set(%q): %v", text, err)
		}
	}
	flag.Add(75)
	for code := -1; code <= 256; code++ {
		want := code == 0 || code == 1 || code == 3 || code >= 5 && code <= 9 || code == 75 || code == 255
		if flag.Has(code) != want {
			t.Errorf("Has(%d) = %v, want %v", code, !want, want)
		}
	}
	if got := flag.String(); got != "1, 3 ,5-9,0,255" {
		t.Errorf("String() = %q", got)
	}
	for _, text := range []string{"", ",", "1,", "a", "-1", "1-", "9-5", "256", "1-256", "1 2"} {
		bad := new(exitcode.Flag)
		if err := bad.Set(text); err == nil || bad.Given() {
			t.Errorf("Set(%q) = %v, given %v", text, err, bad.Given())
		}
	}
	none := new(exitcode.Flag)
	if err := none.Set("none"); err != nil || !none.Given() || none.Has(0) || none.String() != "none" {
		t.Errorf("none: %v, %+v", err, none)
	}
}
