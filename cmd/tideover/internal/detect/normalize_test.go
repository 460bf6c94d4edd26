package detect

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/textfmt"
)

func normalized(line string) (list []string) {
	n := normalizer{yield: func(line []byte) { list = append(list, string(line)) }}
	n.line([]byte(line))
	return list
}

func TestNormalize(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		line string
		want []string
	}{
		"plain text":                            {"a b", []string{"a b"}},
		"nothing":                               {"", nil},
		"keys that were echoed":                 {"^@^[^C Please try again", []string{"Please try again"}},
		"a word after a caret":                  {"^Error", []string{"^Error"}},
		"spaces":                                {"  a \t  b  ", []string{"a b"}},
		"Unicode spaces":                        {"4\u202fPM\u00a0(UTC)\u3000x", []string{"4 PM (UTC) x"}},
		"curly quotes, dashes, dots":            {"You’ve “hit” – it…", []string{`You've "hit" - it...`}},
		"bullets inside":                        {"a ∙ b • c · d", []string{"a · b · c · d"}},
		"bullets and signs around":              {"⚠️ ● ⎿ a ✗", []string{"a"}},
		"an item of a list":                     {" • a • b", []string{"- a · b"}},
		"an item of a list in a frame":          {"│ • a │", []string{"- a"}},
		"a frame":                               {"│ a  │", []string{"a"}},
		"a border":                              {"╭──────╮", nil},
		"colours":                               {"\x1b[1;31ma\x1b[0m b\x1b[38;2;1;2;3mc", []string{"a bc"}},
		"a hyperlink":                           {"\x1b]8;;http://x\x1b\\a\x1b]8;;\x07 b", []string{"a b"}},
		"a title without an end":                {"\x1b]0;a", []string{"0;a"}},
		"a device string":                       {"\x1bPq#0\x1b\\a", []string{"a"}},
		"a character set":                       {"\x1b(Ba\x1b=b", []string{"ab"}},
		"an escape at the end":                  {"a\x1b", []string{"a"}},
		"half a sequence":                       {"a\x1b[3", []string{"a"}},
		"a line written again":                  {"old text\rnew", []string{"new"}},
		"a return at the end":                   {"text\r", []string{"text"}},
		"a line cleared":                        {"old\x1b[2Knew", []string{"new"}},
		"a return by column":                    {"old\x1b[Gnew", []string{"new"}},
		"a gap by column":                       {"a\x1b[20Gb\x1b[3Cc", []string{"a b c"}},
		"backspaces":                            {"abx\b\bcé\bd", []string{"acd"}},
		"too many backspaces":                   {"a\b\b\bb", []string{"b"}},
		"the cursor moved to other lines":       {"\x1b[1;1Ha\x1b[2;1Hb\x1b[1Ac\x1bMd", []string{"a", "b", "c", "d"}},
		"characters that are not seen":          {"a\u200b\ufeff\x00\x01b", []string{"ab"}},
		"bytes that are not UTF-8":              {"a\xff\xfeb", []string{"a\uFFFD\uFFFDb"}},
		"a sequence broken off by another byte": {"\x1b[3\x01a", []string{"a"}},
	} {
		if got := normalized(tc.line); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q gives %q, want %q", name, tc.line, got, tc.want)
		}
	}
}

func TestLongLinesKeepBothEnds(t *testing.T) {
	t.Parallel()
	got := string(appendShort(nil, []byte("start"+strings.Repeat("é", maxKept)+"end")))
	if len(got) > maxKept || !strings.HasPrefix(got, "start") || !strings.HasSuffix(got, "end") || !utf8.ValidString(got) {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	if got := textfmt.TruncateWithin(strings.Repeat("é", 300), 100, "..."); len(got) > 100 || !utf8.ValidString(got) {
		t.Errorf("clip gives %d bytes: %q", len(got), got)
	}
}

func FuzzNormalize(f *testing.F) {
	for _, line := range []string{"a", "\x1b[31ma\x1b[0m", "\x1b]0;t\x07a", "│ a │", "a\rb", "é\b", "\x1b[", "\xff"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		for _, got := range normalized(line) {
			if got == "" || !utf8.ValidString(got) || strings.ContainsAny(got, "\x1b\r\b\x00") || got != strings.TrimSpace(got) {
				t.Fatalf("%q gives %q", line, got)
			}
			if again := normalized(got); len(again) != 1 || again[0] != got {
				t.Fatalf("%q gives %q, and that gives %q", line, got, again)
			}
		}
	})
}
