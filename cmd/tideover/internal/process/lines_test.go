package process

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// found writes the text in pieces of the given size, and reports whether a line matched.
func found(match, text string, piece int) bool {
	l := newLines(regexp.MustCompile(match))
	for p := range slices.Chunk([]byte(text), piece) {
		l.write(p)
	}
	l.finish()
	return l.found
}

func TestLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLine)
	for _, tt := range []struct {
		name, match, text string
		want              bool
	}{
		{"nothing", ".", "", false},
		{"a constant", "bc", "a\nabcd\n", true},
		{"no constant across lines", "ab", "a\nb\nc\n", false},
		{"a constant in the last line", "cd", "a\nb\nccd", true},
		{"a line", "^b$", "a\nb\nc\n", true},
		{"the last line without an end", "^c$", "a\nb\nc", true},
		{"a line end of DOS", "^b$", "a\r\nb\r\n", true},
		{"no match across lines", "a.*b", "a\nb\n", false},
		{"an empty line", "^$", "a\n\nb\n", true},
		{"no empty line at the end", "^$", "a\n", false},
		{"the first MiB of a long line", "^x+$", long + "y\n", true},
		{"not what follows it", "y", long + "y\n", false},
		{"the line after a long one", "^z$", long + "yyy\nz\n", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pieces := []int{1, 2, 7, 4096, len(tt.text) + 1}
			if len(tt.text) > maxLine { // in single bytes it would take long
				pieces = []int{4099, 65536, len(tt.text) + 1}
			}
			for _, piece := range pieces {
				if got := found(tt.match, tt.text, piece); got != tt.want {
					t.Errorf("in pieces of %d: %v, want %v", piece, got, tt.want)
				}
			}
		})
	}
}

func TestTheLastLineIsKept(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxTail)
	for text, want := range map[string]string{
		"": "", "\n \n": "", "one": "one", "one\ntwo\n": "two", "one\r\n\n  \n": "one", "a\n" + long + "y\n": long[2:] + "y", long + "\nend": "end",
	} {
		for _, piece := range []int{1, 7, 4096, len(text) + 1} {
			var kept tail
			for p := range slices.Chunk([]byte(text), piece) {
				kept.write(p)
			}
			if got := kept.line(); got != want {
				t.Errorf("last line of %.20q in pieces of %d: %.20q, want %.20q", text, piece, got, want)
			}
		}
	}
}

func TestLinesKeepNoMoreThanTheyLookAt(t *testing.T) {
	t.Parallel()
	l := newLines(regexp.MustCompile("never"))
	piece := []byte(strings.Repeat("x", 1<<16))
	for range 64 {
		l.write(piece)
	}
	if len(l.partial) > maxLine || cap(l.partial) > 2*maxLine {
		t.Errorf("kept %d bytes in %d for a line of 4 MiB", len(l.partial), cap(l.partial))
	}
}

func FuzzLines(f *testing.F) {
	f.Add("a\nb\r\nc", 2)
	f.Fuzz(func(t *testing.T, text string, piece int) {
		const match = `^[a-c]$|^$`
		piece = max(1, min(piece, 100))
		want := false
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
			want = want || regexp.MustCompile(match).MatchString(line)
		}
		if got := found(match, text, piece); got != want {
			t.Errorf("found(%q, %q, %d) = %v, want %v", match, text, piece, got, want)
		}
	})
}
