package pages

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestVisible(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain text stays", "a ü 漢 🙂\n\tb", "a ü 漢 🙂\n\tb"},
		{"an escape of a terminal", "\x1b[31mred\x1b[0m", "␛[31mred␛[0m"},
		{"NUL, bell, carriage return, delete", "\x00\a\r\x7f", "␀␇␍␡"},
		{"the other escape", "\u009b31m", "[U+009B]31m"},
		{"direction turned around", "abc\u202egnp.exe", "abc[U+202E]gnp.exe"},
		{"directions isolated", "\u2066x\u2069\u200f\u061c", "[U+2066]x[U+2069][U+200F][U+061C]"},
		{"nothing that takes no room", "a\u200bb\ufeffc\u00add", "a[U+200B]b[U+FEFF]c[U+00AD]d"},
		{"tags", "\U000e0041", "[U+E0041]"},
		{"line separators", "a\u2028b", "a[U+2028]b"},
		{"bytes that are no UTF-8", "a\xffb\xc3", `a\xffb\xc3`},
		{"the character for those", "\ufffd", "\ufffd"},
		{"spaces of other widths stay", "a\u00a0b\u3000c", "a\u00a0b\u3000c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(visible([]byte(c.in))); got != c.want {
				t.Errorf("visible(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
}

func FuzzVisible(f *testing.F) {
	f.Add([]byte("a\x1b[0m\u202e\xff\ufffd"))
	f.Fuzz(func(t *testing.T, in []byte) {
		out := visible(bytes.Clone(in))
		if !utf8.Valid(out) {
			t.Errorf("visible(%q) = %q, which is not UTF-8", in, out)
		}
		for _, r := range string(out) {
			if hidden(r) && r != utf8.RuneError {
				t.Errorf("visible(%q) = %q, which has %U", in, out, r)
			}
		}
		if again := visible(out); !bytes.Equal(again, out) {
			t.Errorf("visible(%q) = %q, want it to stay", out, again)
		}
	})
}

func TestPretty(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":[1,"x"]}`:        "{\n  \"a\": [\n    1,\n    \"x\"\n  ]\n}",
		"\"a\u202eb\"":         `"a\u202eb"`,
		"\"\U000e0041\u007f\"": `"\udb40\udc41\u007f"`,
		"no JSON":              "no JSON",
		``:                     ``,
		`12345678901234567890`: `12345678901234567890`,
		`"<script>alert(1)"`:   `"<script>alert(1)"`,
	} {
		if got := pretty(in); got != want {
			t.Errorf("pretty(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzPretty(f *testing.F) {
	f.Add("{\"a\": \"\u202e\U000e0041\x7f\"}")
	f.Add("0\r")
	f.Fuzz(func(t *testing.T, in string) {
		if !json.Valid([]byte(in)) || !utf8.ValidString(in) {
			return
		}
		out := pretty(in)
		var a, b any
		if json.Unmarshal([]byte(in), &a) != nil {
			return // in contains a number that is too large for float64
		}
		if err := json.Unmarshal([]byte(out), &b); err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("pretty(%q) = %q, which is other JSON: %v", in, out, err)
		}
	})
}

func TestShort(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "abc …"},
		{"ab\ncd", 9, "ab …"},
		{"äöüß", 3, "äöü …"},
		{"", 3, ""},
	} {
		if got := firstLine(c.in, c.n); got != c.want {
			t.Errorf("firstLine(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
	if got := head(strings.Repeat("x", 26)); got != "xxxxxxxxxxxxxx" {
		t.Errorf("head of an id: %q", got)
	}
}

func TestCauseOfAnError(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	for text, want := range map[string][2]string{
		"418": {"", "418"},
		"dial tcp 10.0.0.1:5432: connect: connection refused": {"dial tcp 10.0.0.1:5432:", " connect: connection refused"},
		"step \"pay\": exit code 3: no money":                 {"", "step \"pay\": exit code 3: no money"},
		"parse: " + long:                                      {"parse:", " " + long[:93] + " … " + long[:100]},
		"first: line\nsecond":                                 {"", "first: line …"},
	} {
		if got := newCause(text); got.Start != want[0] || got.Cause != want[1] {
			t.Errorf("newCause(%q) = %q, %q, want %q", text, got.Start, got.Cause, want)
		}
	}
	if newCause("") != nil {
		t.Error("no error has a cause")
	}
}
