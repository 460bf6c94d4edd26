package screen

import (
	"bytes"
	"strconv"
	"unicode/utf8"
)

// parser splits output into characters and escape sequences.
type parser struct {
	state   state
	params  []byte // of a control sequence, including intermediate bytes
	inter   byte   // the intermediate byte of an escape sequence
	partial []byte // beginning of a multi-byte character
}

type state uint8

const (
	inText     state = iota
	inEscape         // after ESC
	inSequence       // after ESC [
	inString         // after ESC ], ESC P and the like, until BEL or ESC \
	inEnd            // after an ESC in such a string
)

// maxParams limits the stored part of a control sequence.
const maxParams = 64

// feed processes the next byte of the output.
func (p *parser) feed(s *Screen, c byte) {
	switch {
	case p.state == inString || p.state == inEnd:
		p.feedString(s, c)
	case c == 0x1b:
		p.begin(inEscape)
	case c == 0x18 || c == 0x1a:
		p.begin(inText)
	case c < ' ':
		p.partial = p.partial[:0]
		control(s, c)
	case p.state == inEscape:
		p.feedEscape(s, c)
	case p.state == inSequence:
		p.feedSequence(s, c)
	default:
		p.feedText(s, c)
	}
}

func (p *parser) begin(next state) {
	p.state, p.params, p.inter, p.partial = next, p.params[:0], 0, p.partial[:0]
}

func (p *parser) feedString(s *Screen, c byte) {
	switch {
	case c == 0x07, c == 0x18, c == 0x1a, p.state == inEnd && c == '\\':
		p.begin(inText)
	case c == 0x1b:
		p.state = inEnd
	case p.state == inEnd: // another sequence starts: the string was cut off
		p.begin(inEscape)
		p.feed(s, c)
	}
}

func (p *parser) feedEscape(s *Screen, c byte) {
	switch {
	case c < 0x30:
		p.inter = c
	case p.inter == 0 && c == '[':
		p.begin(inSequence)
	case p.inter == 0 && (c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_'):
		p.begin(inString)
	default:
		inter := p.inter
		p.begin(inText)
		escape(s, inter, c)
	}
}

func (p *parser) feedSequence(s *Screen, c byte) {
	if c < 0x40 {
		if len(p.params) < maxParams {
			p.params = append(p.params, c)
		}
		return
	}
	p.state = inText
	if c < 0x7f {
		sequence(s, p.params, c)
	}
}

func (p *parser) feedText(s *Screen, c byte) {
	if len(p.partial) == 0 && c < utf8.RuneSelf {
		if c != 0x7f {
			s.put(rune(c))
		}
		return
	}
	if len(p.partial) > 0 && utf8.RuneStart(c) { // the previous character was cut off
		p.partial = p.partial[:0]
		s.put(utf8.RuneError)
		p.feedText(s, c)
		return
	}
	p.partial = append(p.partial, c)
	if utf8.FullRune(p.partial) {
		r, _ := utf8.DecodeRune(p.partial)
		p.partial = p.partial[:0]
		s.put(r)
	}
}

// tabWidth is the distance of tab stops. Sequences that set other tab stops are ignored.
const tabWidth = 8

// control executes a control character.
func control(s *Screen, c byte) {
	switch c {
	case '\r':
		s.at.x, s.at.pending = 0, false
	case '\n', '\v', '\f':
		s.lineFeed()
	case '\b':
		s.moveTo(s.at.x-1, s.at.y)
	case '\t':
		s.moveTo((s.at.x/tabWidth+1)*tabWidth, s.at.y)
	case 0x0e:
		s.shift = 1
	case 0x0f:
		s.shift = 0
	}
}

// escape executes the escape sequence that ends with c. inter is its intermediate byte; 0 for none.
func escape(s *Screen, inter, c byte) {
	switch {
	case inter == '(':
		s.graphics[0] = c == '0'
	case inter == ')':
		s.graphics[1] = c == '0'
	case inter != 0:
	case c == '7':
		s.page().saved = s.at
	case c == '8':
		s.restore()
	case c == 'D':
		s.lineFeed()
	case c == 'E':
		s.at.x = 0
		s.lineFeed()
	case c == 'M':
		s.reverseFeed()
	case c == 'c':
		s.reset(len(s.rows()))
	}
}

// sequence executes the control sequence with these parameters that ends with c.
func sequence(s *Screen, params []byte, c byte) {
	private := byte(0)
	if len(params) > 0 && params[0] >= '<' {
		private, params = params[0], params[1:]
	}
	if i := bytes.IndexFunc(params, func(r rune) bool { return r < '0' }); i >= 0 {
		if params[i] == '!' && c == 'p' {
			s.softReset()
		}
		return
	}
	list := numbers(params)
	switch {
	case private == '?' && (c == 'h' || c == 'l'):
		for _, n := range list {
			setMode(s, n, c == 'h')
		}
	case private == '?' && (c == 'J' || c == 'K'), private == 0:
		execute(s, list, c)
	}
}

// numbers parses the parameters of a sequence; a missing or invalid one is 0.
func numbers(params []byte) (list []int) {
	for part := range bytes.SplitSeq(params, []byte{';'}) {
		first, _, _ := bytes.Cut(part, []byte{':'})
		n, err := strconv.Atoi(string(first))
		if err != nil {
			n = 0
		}
		list = append(list, min(n, 1<<16))
	}
	return list
}

// setMode sets or resets the private mode with number n. Unknown modes are ignored.
func setMode(s *Screen, n int, on bool) {
	switch n {
	case 6:
		s.origin = on
		s.home(0, 0)
	case 7:
		s.wrap = on
	case 47:
		s.show(on, false)
	case 1047:
		s.show(on, true)
	case 1048:
		if on {
			s.page().saved = s.at
		} else {
			s.restore()
		}
	case 1049:
		if on && !s.alternate {
			s.page().saved = s.at
			s.show(true, true)
		} else if !on && s.alternate {
			s.show(false, false)
			s.restore()
		}
	}
}

// execute executes a control sequence that does not set a private mode.
func execute(s *Screen, list []int, c byte) {
	first, second := list[0], 0
	if len(list) > 1 {
		second = list[1]
	}
	switch c {
	case 'H', 'f':
		s.home(max(second, 1)-1, max(first, 1)-1)
	case 'r':
		s.scrollArea(first, second)
	case 's':
		s.page().saved = s.at
	case 'u':
		s.restore()
	case 'h', 'l':
		if first == 4 {
			s.insert = c == 'h'
		}
	case 'J':
		s.eraseScreen(first)
	case 'K':
		s.eraseLine(first)
	default:
		if n := max(first, 1); !moveCursor(s, n, c) {
			changeCells(s, n, c)
		}
	}
}

// moveCursor executes a control sequence that moves the cursor by n or to n, and reports whether
// it is one.
func moveCursor(s *Screen, n int, c byte) bool {
	switch c {
	case 'A':
		s.moveDown(-n)
	case 'B', 'e':
		s.moveDown(n)
	case 'C', 'a':
		s.moveTo(s.at.x+n, s.at.y)
	case 'D':
		s.moveTo(s.at.x-n, s.at.y)
	case 'E':
		s.moveDown(n)
		s.at.x = 0
	case 'F':
		s.moveDown(-n)
		s.at.x = 0
	case 'G', '`':
		s.moveTo(n-1, s.at.y)
	case 'd':
		s.home(s.at.x, n-1)
	case 'I':
		s.moveTo((s.at.x/tabWidth+n)*tabWidth, s.at.y)
	case 'Z':
		s.moveTo((max(s.at.x-1, 0)/tabWidth-n+1)*tabWidth, s.at.y)
	default:
		return false
	}
	return true
}

// changeCells executes a control sequence that erases, inserts, deletes, scrolls or repeats n
// characters or lines.
func changeCells(s *Screen, n int, c byte) {
	switch c {
	case 'X':
		s.erase(s.at.x, s.at.x+n)
	case '@', 'P':
		s.shiftCells(c == '@', n)
	case 'L', 'M':
		if s.at.y >= s.top && s.at.y < s.under {
			if c == 'L' {
				n = -n
			}
			s.scroll(s.at.y, n)
			s.at.x, s.at.pending = 0, false
		}
	case 'S':
		s.scroll(s.top, n)
	case 'T':
		s.scroll(s.top, -n)
	case 'b':
		for range min(n, s.cols*len(s.rows())) {
			if s.last != blank {
				s.putAgain()
			}
		}
	}
}
