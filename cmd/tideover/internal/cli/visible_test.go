package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestWhatOthersWroteIsVisible(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"plain text stays", "connection refused (10.0.0.1:80)", "connection refused (10.0.0.1:80)"},
		{"so do other scripts", "žluťoučký 日本 🙂 e\u0301", "žluťoučký 日本 🙂 e\u0301"},
		{"an escape sequence", "\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`},
		{"the title of the window", "\x1b]0;owned\x07", `\x1b]0;owned\x07`},
		{"a link", "\x1b]8;;http://evil\x1b\\x", `\x1b]8;;http://evil\x1b\x`},
		{"the one-byte forms", "\u009b31m\u009d0;x\u009c", `\x9b31m\x9d0;x\x9c`},
		{"bytes that are no text", "a\x9b\xffz", `a\x9b\xffz`},
		{"a line break", "one\ntideover: done", `one\ntideover: done`},
		{"going back", "real\rfake\b\b", `real\rfake\x08\x08`},
		{"a tab", "a\tb", `a\tb`},
		{"nothing", "a\x00b\x7f", `a\x00b\x7f`},
		{"overrides of the direction", "a\u202eb\u2066c\u200fd\u061c", `a\u202eb\u2066c\u200fd\u061c`},
		{"what is not seen", "a\u200bb\ufeffc\u00ad", `a\u200bb\ufeffc\xad`},
		{"other line breaks", "a\u2028b\u0085c", `a\u2028b\x85c`},
		{"tags", "a\U000e0041b", `a\U000e0041b`},
		{"a character that stands for one that was lost", "a\ufffdb", `a\ufffdb`},
	} {
		if got := visible(c.text); got != c.want {
			t.Errorf("%s: visible(%q) = %q, want %q", c.name, c.text, got, c.want)
		}
	}
	if got := visibleLines("a\x1b\nb"); got != "a\\x1b\nb" {
		t.Errorf("visibleLines = %q", got)
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("\x1b[31m\u202e\xff\U000e0041\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := visible(text)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsGraphic(r) }) {
			t.Errorf("visible(%q) = %q", text, got)
		}
		if visible(got) != got {
			t.Errorf("visible(%q) changes what is visible", got)
		}
		in, err := json.Marshal(map[string]string{text: text})
		if err != nil {
			t.Fatal(err)
		}
		safe := visibleJSON(in)
		var a, b any
		if json.Unmarshal(in, &a) != nil || json.Unmarshal(safe, &b) != nil || !equalJSON(a, b) {
			t.Errorf("%q became %q", in, safe)
		}
		if strings.ContainsFunc(string(safe), func(r rune) bool { return !unicode.IsGraphic(r) }) {
			t.Errorf("visibleJSON(%q) = %q", in, safe)
		}
	})
}

func equalJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}
