package view

import (
	"testing"
	"unicode/utf8"
)

func TestPattern(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                       "",
		"connection refused":                     "connection refused",
		"status 503":                             "status #",
		"timeout after 1m30.5s":                  "timeout after #",
		"dial 10.0.0.1:8080: no":                 "dial #: no",
		"dial [::1]:443":                         "dial [::#]:#",
		"run 01JABCDEFGH0123456789ABCDE is gone": "run # is gone",
		"id 550e8400-e29b-41d4-a716-446655440000, deadbeef": "id #, #",
		"ptr 0xc000012345":                         "ptr #",
		`open "/tmp/a b": no such file`:            `open "…": no such file`,
		"unknown field 'x' and `y`":                "unknown field '…' and `…`",
		"can't find it, won't try":                 "can't find it, won't try",
		`an open "quote`:                           `an open "quote`,
		"s3 over h2 by ipv6, utf8, but r2d2x":      "s3 over h2 by ipv6, utf8, but #",
		"  many \t spaces ":                        "many spaces",
		"\n panic: x 1\n\ngoroutine 7":             "panic: x #",
		"exit code 4: gone after 3s":               "exit code 4: gone after #",
		"exit status 17":                           "exit status 17",
		"exit code 137, which stands for signal 9": "exit code 137, which stands for signal #",
		"exit code 1234":                           "exit code #",
		"at 2026-11-15T05:29:00Z":                  "at #",
		"\xff\x00bad 5":                            "\uFFFD\x00bad #",
		"7 of 9":                                   "# of #",
		"🌊 42 waves":                               "🌊 # waves",
	} {
		if got := Pattern(text); got != want {
			t.Errorf("Pattern(%q) = %q, want %q", text, got, want)
		}
	}
}

// FuzzPattern checks that patterns are short, valid UTF-8 and equal to their own pattern: a filter
// accepts both texts and patterns.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"", "a 1", `x "y`, "`'`", "'a'b'", "00000000-0000-0000-0000-000000000000x", "\xff#.1", "1.#-x9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := Pattern(text)
		if len(p) > maxPattern || !utf8.ValidString(p) || Pattern(p) != p {
			t.Errorf("Pattern(%q) = %q, whose pattern is %q", text, p, Pattern(p))
		}
	})
}
