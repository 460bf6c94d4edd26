package textfmt_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/textfmt"
)

func TestTruncate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in                                string
		size                              int
		plain, mark, within, valid, three string // three has "..." for the mark, and counts it
	}{
		{"", 5, "", "", "", "", ""},
		{"short", 5, "short", "short", "short", "short", "short"},
		{"longer", 5, "longe", "longe…", "lo…", "longe…", "lo..."},
		{"ééé", 5, "éé", "éé…", "é…", "éé…", "é..."},
		{"a日本語", 6, "a日", "a日…", "a…", "a日…", "a..."},
		{"\xffabcdef", 5, "\xffabcd", "\xffabcd…", "\xffa…", "abcd…", "\xffa..."},
		{"\x80\x80\x80\x80", 3, "", "…", "…", "…", "..."},
		{"abc", 0, "", "…", "…", "…", "..."},
	} {
		for _, f := range []struct{ name, got, want string }{
			{"Truncate", textfmt.Truncate(c.in, c.size), c.plain},
			{"TruncateMark", textfmt.TruncateMark(c.in, c.size, "…"), c.mark},
			{"TruncateWithin", textfmt.TruncateWithin(c.in, c.size, "…"), c.within},
			{"TruncateWithin ...", textfmt.TruncateWithin(c.in, c.size, "..."), c.three},
			{"TruncateValid", textfmt.TruncateValid(c.in, c.size, "…"), c.valid},
		} {
			if f.got != f.want {
				t.Errorf("%s(%q, %d) = %q, want %q", f.name, c.in, c.size, f.got, f.want)
			}
		}
	}
}

func TestClip(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in                        string
		n                         int
		plain, within, two, ascii string // two has ".." for the mark
	}{
		{"", 3, "", "", "", ""},
		{"abc", 3, "abc", "abc", "abc", "abc"},
		{"abcdef", 5, "abcde…", "abcd…", "abc..", "ab..."},
		{"abcdef", 3, "abc…", "ab…", "a..", "abc"},
		{"abcdef", 1, "a…", "…", "..", "a"},
		{"abcdef", 0, "…", "", "", ""},
		{"日本語日本", 4, "日本語日…", "日本語…", "日本..", "\xe6..."},
	} {
		for _, f := range []struct{ name, got, want string }{
			{"Clip", textfmt.Clip(c.in, c.n), c.plain},
			{"ClipWithin …", textfmt.ClipWithin(c.in, c.n, "…"), c.within},
			{"ClipWithin ..", textfmt.ClipWithin(c.in, c.n, ".."), c.two},
			{"ClipASCII", textfmt.ClipASCII(c.in, c.n), c.ascii},
		} {
			if f.got != f.want {
				t.Errorf("%s(%q, %d) = %q, want %q", f.name, c.in, c.n, f.got, f.want)
			}
		}
	}
	if got := textfmt.ClipWithin("abc", -1, "…"); got != "" {
		t.Errorf("ClipWithin of a negative width = %q", got)
	}
}

// FuzzTruncate checks the limits, and that a valid text stays valid.
func FuzzTruncate(f *testing.F) {
	f.Add("héllo, 世界", 4)
	f.Add("\xff\x80", 1)
	f.Fuzz(func(t *testing.T, s string, n int) {
		if n < 0 || n > 1000 {
			return
		}
		got := textfmt.Truncate(s, n)
		if len(got) > n || !strings.HasPrefix(s, got) || utf8.ValidString(s) && (!utf8.ValidString(got) || len(s) > n && len(got) < n-3) {
			t.Errorf("Truncate(%q, %d) = %q", s, n, got)
		}
		if got := textfmt.TruncateWithin(s, n, "…"); len(got) > max(n, len("…")) {
			t.Errorf("TruncateWithin(%q, %d) = %q", s, n, got)
		}
		if got := textfmt.TruncateValid(s, n, ""); len(s) > n && (!utf8.ValidString(got) || len(got) > n) {
			t.Errorf("TruncateValid(%q, %d) = %q", s, n, got)
		}
		if got := utf8.RuneCountInString(textfmt.Clip(s, n)); got > n+1 {
			t.Errorf("Clip(%q, %d) has %d characters", s, n, got)
		}
		if got := utf8.RuneCountInString(textfmt.ClipWithin(s, n, "…")); got > n {
			t.Errorf("ClipWithin(%q, %d) has %d characters", s, n, got)
		}
	})
}
