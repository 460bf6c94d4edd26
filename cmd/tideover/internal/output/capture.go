package output

import (
	"bytes"
	"unicode/utf8"
)

// Capture keeps the beginning and the end of a stream that is written to it. It needs at most 1.5
// times Limit bytes of memory. It is not safe for concurrent use.
type Capture struct {
	Limit int // most bytes of the stream that Stream returns

	head  []byte // the first Limit bytes
	ring  []byte // the last bytes after head, at most Limit/2; next is the oldest when it is full
	next  int
	size  int64 // bytes written
	lines int64 // line ends among them
}

// Write implements [io.Writer]. It never fails.
func (c *Capture) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	c.lines += int64(bytes.Count(p, newline))
	n := min(max(c.Limit-len(c.head), 0), len(p))
	c.head = append(c.head, p[:n]...)
	c.keepEnd(p[n:])
	return len(p), nil
}

var newline = []byte{'\n'}

// keepEnd adds bytes to the ring.
func (c *Capture) keepEnd(p []byte) {
	most := c.Limit / 2
	if len(p) > most {
		p = p[len(p)-most:]
	}
	n := min(most-len(c.ring), len(p))
	c.ring = append(c.ring, p[:n]...)
	for p = p[n:]; len(p) > 0; p = p[n:] {
		n = copy(c.ring[c.next:], p)
		c.next = (c.next + n) % most
	}
}

// Beginning returns the first Limit bytes of the stream, and whether there were more.
func (c *Capture) Beginning() (text []byte, more bool) { return c.head, c.size > int64(len(c.head)) }

// Size returns how many bytes were written.
func (c *Capture) Size() int64 { return c.size }

// Stream returns the stream, or its beginning and its end if it has more than Limit bytes. It cuts
// between characters.
func (c *Capture) Stream(name string) Stream {
	s := Stream{Name: name, Size: c.size, Lines: c.lines, Head: c.head}
	if c.size <= int64(len(c.head)) {
		return s
	}
	most := c.Limit / 2
	end := append(append(make([]byte, 0, most), c.ring[c.next:]...), c.ring[:c.next]...)
	if missing := most - len(end); missing > 0 { // the end begins in head
		end = append(append(make([]byte, 0, most), c.head[len(c.head)-missing:]...), end...)
	}
	s.Head, s.Tail = cutEnd(c.head[:c.Limit-most]), cutStart(end)
	return s
}

// cutEnd removes an incomplete character from the end of a text.
func cutEnd(text []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if last := text[len(text)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}

// cutStart removes the rest of a character from the start of a text.
func cutStart(text []byte) []byte {
	for i := 0; i < utf8.UTFMax && i < len(text); i++ {
		if utf8.RuneStart(text[i]) {
			return text[i:]
		}
	}
	return text
}
