package output

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// captured writes the text in pieces of random sizes, and returns the stream.
func captured(text []byte, limit int, random *rand.Rand) Stream {
	c := &Capture{Limit: limit}
	for len(text) > 0 {
		n := min(1+random.IntN(2*limit+3), len(text))
		_, _ = c.Write(text[:n])
		text = text[n:]
	}
	return c.Stream("stdout")
}

func TestCaptureKeepsTheBeginningAndTheEnd(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for limit := 1; limit < 20; limit++ {
		for size := range 70 {
			text := make([]byte, size)
			for i := range text {
				text[i] = "ab\nc"[random.IntN(4)]
			}
			s := captured(text, limit, random)
			call := fmt.Sprintf("%d of %q", limit, text)
			if s.Size != int64(size) || s.Lines != int64(bytes.Count(text, newline)) {
				t.Fatalf("%s: size %d, %d lines", call, s.Size, s.Lines)
			}
			if size <= limit {
				if string(s.Head) != string(text) || len(s.Tail) > 0 {
					t.Fatalf("%s = %q and %q, want everything", call, s.Head, s.Tail)
				}
				continue
			}
			if len(s.Head)+len(s.Tail) != limit || len(s.Tail) != limit/2 {
				t.Fatalf("%s = %q and %q, want %d bytes, half of them from the end", call, s.Head, s.Tail, limit)
			}
			if !bytes.HasPrefix(text, s.Head) || !bytes.HasSuffix(text, s.Tail) || s.Omitted() != int64(size-limit) {
				t.Fatalf("%s = %q and %q, %d omitted", call, s.Head, s.Tail, s.Omitted())
			}
		}
	}
}

func TestCaptureCutsBetweenCharacters(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	text := []byte(strings.Repeat("aé€😀", 100))
	for limit := 8; limit < 60; limit++ {
		s := captured(text, limit, random)
		if !utf8.Valid(s.Head) || !utf8.Valid(s.Tail) || len(s.Head) < limit/2-3 || len(s.Tail) < limit/2-3 {
			t.Errorf("limit %d: %q and %q", limit, s.Head, s.Tail)
		}
	}
	binary := bytes.Repeat([]byte{0xff, 0x80, 0x80, 0x80, 0x80}, 100) // not UTF-8
	if s := captured(binary, 50, random); len(s.Head)+len(s.Tail) < 44 {
		t.Errorf("of binary bytes, %d and %d are kept, want about 50", len(s.Head), len(s.Tail))
	}
}

func TestCaptureNeedsLittleMemory(t *testing.T) {
	t.Parallel()
	c := &Capture{Limit: 64 << 10}
	line := bytes.Repeat([]byte("x"), 1<<20) // lines of 1 MiB
	for range 64 {
		_, _ = c.Write(line)
		_, _ = c.Write(newline)
	}
	if got := cap(c.head) + cap(c.ring); got > 4*c.Limit {
		t.Errorf("a capture of 64 KiB has %d bytes after 64 MiB", got)
	}
	if s := c.Stream(""); s.Lines != 64 || s.Size != 64<<20+64 {
		t.Errorf("%d lines, %d bytes", s.Lines, s.Size)
	}
}
