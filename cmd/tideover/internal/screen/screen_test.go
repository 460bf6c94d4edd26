package screen

import (
	"slices"
	"strings"
	"testing"
)

// shownLines returns the lines of a screen of 20 columns and 5 rows, without blank ones at its end.
func shownLines(s *Screen) []string {
	list := s.Lines()
	for len(list) > 0 && list[len(list)-1] == "" {
		list = list[:len(list)-1]
	}
	return list
}

func TestWhatIsShown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"lines":                           {"one\r\ntwo", "one|two"},
		"colours and titles":              {"\x1b]0;title\x07\x1b[1;38;5;9mred\x1b[0m and \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "red and link"},
		"a string that is cut off":        {"\x1b]0;title\x1b[2;3Hx", "|  x"},
		"written again":                   {"old text\rnew", "new text"},
		"backspace":                       {"abc\b\bX", "aXc"},
		"tabs":                            {"a\tb", "a       b"},
		"cursor positions, in any order":  {"\x1b[3;5Hthird\x1b[1;1Hfirst\x1b[2;3fsecond", "first|  second|    third"},
		"cursor moves":                    {"a\x1b[2Bb\x1b[Ac\x1b[3Dd\x1b[2Ce\x1b[5G5\x1b[4d4", "a|d ce5| b|     4"},
		"wrapped by the terminal":         {"the quick brown fox jumps", "the quick brown fox jumps"},
		"a full row and a new line":       {"12345678901234567890\r\nnext", "12345678901234567890|next"},
		"without wrapping":                {"\x1b[?7lthe quick brown fox jumps", "the quick brown foxs"},
		"erased to the end of the line":   {"some text\x1b[5D\x1b[K", "some"},
		"erased to the cursor":            {"some text\x1b[5D\x1b[1K", "     text"},
		"an erased line":                  {"some\r\ntext\x1b[2K\x1b[Gx", "some|x"},
		"erased below":                    {"one\r\ntwo\r\nthree\x1b[2;2H\x1b[J", "one|t"},
		"erased above":                    {"one\r\ntwo\r\nthree\x1b[2;2H\x1b[1J", "|  o|three"},
		"an erased screen":                {"one\r\ntwo\x1b[2J\x1b[Hx", "x"},
		"erased, inserted, deleted cells": {"abcdef\x1b[3G\x1b[2X\x1b[1G\x1b[@\x1b[6G\x1b[P", " ab  f"},
		"insert mode":                     {"bc\r\x1b[4ha\x1b[4l", "abc"},
		"inserted and deleted lines":      {"1\r\n2\r\n3\x1b[2H\x1b[Lx\x1b[1H\x1b[M", "x|2|3"},
		"scrolled":                        {"1\r\n2\r\n3\r\n4\r\n5\r\n6", "2|3|4|5|6"},
		"a part that scrolls":             {"1\r\n2\r\n3\r\n4\r\n5\x1b[2;4r\x1b[4;1H\nx", "1|3|4|x|5"},
		"scrolled down":                   {"1\r\n2\x1b[H\x1bM0", "0|1|2"},
		"scrolled by a sequence":          {"1\r\n2\r\n3\x1b[2S\x1b[T", "|3"},
		"a saved position":                {"ab\x1b7\x1b[3;3Hc\x1b8d", "abd||  c"},
		"the other page":                  {"main\x1b[?1049hfull", "    full"},
		"back from the other page":        {"main\x1b[?1049h\x1b[Hfull\x1b[?1049l!", "main!"},
		"a message after the other page":  {"$ tool\r\n\x1b[?1049h\x1b[Hfull\x1b[?1049lLimit reached", "$ tool|Limit reached"},
		"wide characters":                 {"日本\x1b[5Gx", "日本x"},
		"half of a wide character":        {"日本\x1b[2Gx", " x本"},
		"accents and joiners":             {"e\u0301\u200dx\x1b[3Gy", "exy"},
		"lines of the terminal's own set": {"\x1b(0lqk\x1b(B a\x0e\x1b)0q\x0fq", "┌─┐ a─q"},
		"a repeated character":            {"-\x1b[4bx", "-----x"},
		"characters that are no UTF-8":    {"a\xffb\xe2\x82c", "a\ufffdb\ufffdc"},
		"a reset":                         {"old\x1b[2;4r\x1bcnew", "new"},
		"a soft reset":                    {"\x1b[2;3r\x1b[!p\x1b[5;1Hx\ny", "|||x| y"},
		"an aborted sequence":             {"a\x1b[3\x18b", "ab"},
		"lines from the origin":           {"\x1b[2;4r\x1b[?6h\x1b[1;1Hx", "|x"},
		"unknown sequences":               {"\x1b[>4;2m\x1b[?2026h\x1b[=5ux\x1b[1 qy\x1b#8z", "xyz"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{len(test.text), 1} { // at once, and byte by byte
				s := New(20, 5)
				for part := range slices.Chunk([]byte(test.text), max(size, 1)) {
					_, _ = s.Write(part)
				}
				if got := strings.Join(shownLines(s), "|"); got != test.want {
					t.Errorf("%q in pieces of %d shows %q, want %q", test.text, size, got, test.want)
				}
			}
		})
	}
}

func TestAnotherSize(t *testing.T) {
	t.Parallel()
	s := New(10, 4)
	_, _ = s.Write([]byte("1\r\n2\r\n3\r\n4 is the last"))
	s.Resize(20, 2)
	if got := strings.Join(shownLines(s), "|"); got != "4 is the l|ast" {
		t.Errorf("smaller shows %q", got)
	}
	s.Resize(20, 3)
	_, _ = s.Write([]byte("\r\nnext"))
	if got := strings.Join(shownLines(s), "|"); got != "4 is the l|ast|next" {
		t.Errorf("larger shows %q", got)
	}
	s.Resize(0, -1)
	s.Resize(1<<30, 1<<30)
	if rows := len(s.Lines()); rows != maxRows {
		t.Errorf("the largest screen has %d rows, want %d", rows, maxRows)
	}
}

func FuzzScreen(f *testing.F) {
	f.Add([]byte("\x1b[2;3r\x1b[?6h\x1b[9;9H日\x1b[4h\x1b[9@x\x1b[9L\x1b[?1049h\x1b[9999b"), uint8(3), uint8(2))
	f.Fuzz(func(t *testing.T, text []byte, cols, rows uint8) {
		s := New(20, 5)
		_, _ = s.Write(text[:len(text)/2])
		s.Resize(int(cols), int(rows))
		_, _ = s.Write(text[len(text)/2:])
		if got := len(s.Lines()); got > max(int(rows), 1) {
			t.Errorf("%d lines on %d rows", got, rows)
		}
	})
}
