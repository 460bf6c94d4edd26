package detect

import "bytes"

// escape processes the escape sequence at the start of raw and returns the rest. It handles only
// effects that change the visible text.
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
		if len(args) == 0 || bytes.Equal(args, []byte("1")) {
			if seen(raw[end+1:]) {
				n.buf = n.buf[:0]
			}
		} else {
			n.space()
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
