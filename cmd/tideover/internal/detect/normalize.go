package detect

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// maxKept limits the stored bytes of a line. Of a longer line, only the beginning and the end are
// stored, because patterns are anchored there.
const maxKept = 4 << 10

// normalizer converts output to the plain lines that a terminal would show. It reuses its buffer,
// so that ordinary lines need no allocation.
type normalizer struct {
	buf   []byte
	yield func(line []byte)
}

// line processes a line of output without its line end, and yields the visible lines: none if it is
// blank, several if it moves the cursor up or down.
func (n *normalizer) line(raw []byte) {
	if plain(raw) {
		n.emit(raw)
		return
	}
	n.buf = n.buf[:0]
	for len(raw) > 0 {
		switch c := raw[0]; {
		case c == 0x1b:
			raw = n.escape(raw)
			continue
		case c == '\r':
			// The text after a carriage return overwrites the line, if there is any.
			if seen(raw[1:]) {
				n.buf = n.buf[:0]
			}
		case c == '\b':
			_, size := utf8.DecodeLastRune(n.buf)
			n.buf = n.buf[:len(n.buf)-size]
		case c == '\t', c == ' ':
			n.space()
		case c < ' ', c == 0x7f:
		case c < utf8.RuneSelf:
			n.buf = append(n.buf, c)
		default:
			r, size := utf8.DecodeRune(raw)
			n.rune(r)
			raw = raw[size:]
			continue
		}
		raw = raw[1:]
	}
	n.emit(n.buf)
}

// plain reports whether the line is printable ASCII without double spaces, so that it needs only
// trimming.
func plain(line []byte) bool {
	before := byte(0)
	for _, c := range line {
		if c < ' ' || c >= 0x7f || c == ' ' && before == ' ' {
			return false
		}
		before = c
	}
	return true
}

// seen reports whether the text has visible characters before the next carriage return.
func seen(text []byte) bool {
	i := bytes.IndexFunc(text, func(r rune) bool { return r == '\r' || r > ' ' })
	return i >= 0 && text[i] != '\r'
}

func (n *normalizer) space() {
	if len(n.buf) > 0 && n.buf[len(n.buf)-1] != ' ' {
		n.buf = append(n.buf, ' ')
	}
}

// rune adds a character that is not ASCII. It replaces variants of quotes, dashes and dots by the
// characters that patterns use.
func (n *normalizer) rune(r rune) {
	switch r {
	case '‘', '’', 'ʼ', '‛', '′':
		n.buf = append(n.buf, '\'')
	case '“', '”', '„', '″':
		n.buf = append(n.buf, '"')
	case '–', '—', '‐', '‑', '−':
		n.buf = append(n.buf, '-')
	case '…':
		n.buf = append(n.buf, "..."...)
	case '•':
		// At the beginning it is a list item: prose, not a message.
		if len(bytes.TrimFunc(n.buf, ornament)) == 0 {
			n.buf = append(n.buf, '-')
		} else {
			n.buf = append(n.buf, "·"...)
		}
	case '∙', '⋅', '‧', '・', '·':
		n.buf = append(n.buf, "·"...)
	default:
		switch {
		case unicode.IsSpace(r):
			n.space()
		case unicode.Is(unicode.Cf, r), unicode.IsControl(r), unicode.Is(unicode.Variation_Selector, r):
		default:
			n.buf = utf8.AppendRune(n.buf, r)
		}
	}
}

// emit removes the ornaments around the line and yields it, unless nothing is left.
func (n *normalizer) emit(line []byte) {
	line = bytes.TrimFunc(line, ornament)
	for echoed(line) {
		line = bytes.TrimFunc(line[2:], ornament)
	}
	if len(line) > 0 {
		n.yield(line)
	}
}

// echoed reports whether the line begins with an echoed control key, such as ^@ or ^C. In a text such
// as ^Cannot, the letter belongs to the word.
func echoed(line []byte) bool {
	if len(line) < 2 || line[0] != '^' {
		return false
	}
	letter := 'A' <= line[1] && line[1] <= 'Z'
	word := len(line) > 2 && 'a' <= line[2] && line[2] <= 'z'
	return letter && !word || bytes.IndexByte([]byte("@[\\]^_?"), line[1]) >= 0
}

// ornament reports whether programs put the character before or after a message: borders, bullets,
// warning signs, spinners.
func ornament(r rune) bool {
	return r == ' ' || r == '·' || r >= utf8.RuneSelf && unicode.Is(unicode.So, r)
}

// appendShort appends a line, without its middle if it is long.
func appendShort(dst, line []byte) []byte {
	if len(line) <= maxKept {
		return append(dst, line...)
	}
	const half = maxKept/2 - len("...")
	head, tail := line[:half], line[len(line)-half:]
	for len(head) > 0 && !utf8.RuneStart(line[len(head)]) {
		head = head[:len(head)-1]
	}
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	return append(append(append(dst, head...), "..."...), tail...)
}

// escape processes the escape sequence at the start of raw and returns the text after it. It handles
// only sequences that change the visible text, and skips all others.
func (n *normalizer) escape(raw []byte) []byte {
	if len(raw) < 2 {
		return nil
	}
	switch raw[1] {
	case '[':
		return n.control(raw[2:])
	case ']', 'P', 'X', '^', '_': // a title, a hyperlink, a picture
		return afterString(raw[2:])
	case 'D', 'E', 'M': // down, next line, up
		n.flush()
		return raw[2:]
	case '(', ')', '*', '+', '#', '%', ' ':
		return raw[min(3, len(raw)):]
	default:
		return raw[2:]
	}
}

// control processes a control sequence, after its introducer.
func (n *normalizer) control(raw []byte) []byte {
	end := 0
	for end < len(raw) && raw[end] >= 0x20 && raw[end] < 0x40 {
		end++
	}
	if end == len(raw) {
		return nil
	}
	args := raw[:end]
	switch raw[end] {
	case 'A', 'B', 'E', 'F', 'H', 'f', 'd': // to another line
		n.flush()
	case 'J', 'K':
		if bytes.HasPrefix(args, []byte("2")) {
			n.buf = n.buf[:0]
		}
	case 'G', '`':
		// A move to the first column rewrites the line; any other move is a gap.
		if len(args) > 0 && !bytes.Equal(args, []byte("1")) {
			n.space()
		} else if seen(raw[end+1:]) {
			n.buf = n.buf[:0]
		}
	case 'C', 'a':
		n.space()
	}
	if raw[end] < 0x40 || raw[end] > 0x7e { // not a sequence: the text continues
		return raw[end:]
	}
	return raw[end+1:]
}

func (n *normalizer) flush() {
	n.emit(n.buf)
	n.buf = n.buf[:0]
}

// afterString returns the text after a terminal string, which ends with BEL or ESC \. If the string
// does not end, only its introducer is removed, so that no message is lost.
func afterString(raw []byte) []byte {
	switch i := bytes.IndexAny(raw, "\a\x1b"); {
	case i >= 0 && raw[i] == '\a':
		return raw[i+1:]
	case i >= 0 && bytes.HasPrefix(raw[i:], []byte("\x1b\\")):
		return raw[i+2:]
	default:
		return raw
	}
}
