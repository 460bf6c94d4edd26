package screen

import (
	"bytes"
	"strconv"
)

// tabWidth is the distance of tab stops. Full-screen programs set no others.
const tabWidth = 8

// control executes a control character.
func (s *Screen) control(c byte) {
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

// escape executes an escape sequence, with its intermediate byte or 0.
func (s *Screen) escape(inter, c byte) {
	switch inter {
	case '(':
		s.graphics[0] = c == '0'
	case ')':
		s.graphics[1] = c == '0'
	}
	if inter != 0 {
		return
	}
	switch c {
	case '7':
		s.page().saved = s.at
	case '8':
		s.restore()
	case 'D':
		s.lineFeed()
	case 'E':
		s.at.x = 0
		s.lineFeed()
	case 'M':
		s.reverseFeed()
	case 'c':
		s.reset(len(s.rows()))
	}
}

// restore moves the cursor to its saved position.
func (s *Screen) restore() {
	saved := s.page().saved
	s.moveTo(saved.x, saved.y)
	s.at.pending = saved.pending && s.at.x == s.cols-1
}

// sequence executes a control sequence.
func (s *Screen) sequence(params []byte, c byte) {
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
			s.mode(n, c == 'h')
		}
	case private == '?' && (c == 'J' || c == 'K'), private == 0:
		s.execute(list, c)
	}
}

// softReset executes DECSTR, which programs send at their end to clean up.
func (s *Screen) softReset() {
	s.top, s.under = 0, len(s.rows())
	s.wrap, s.insert, s.origin = true, false, false
	s.graphics, s.shift = [2]bool{}, 0
}

// numbers parses the parameters of a sequence; a missing one is 0.
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

// mode sets a private mode of the terminal.
func (s *Screen) mode(n int, on bool) {
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

// home moves the cursor to a position, which is relative to the scroll region in origin mode.
func (s *Screen) home(x, y int) {
	if s.origin {
		y = min(y+s.top, s.under-1)
	}
	s.moveTo(x, y)
}

// execute executes a control sequence that does not set a mode.
func (s *Screen) execute(list []int, c byte) {
	first := list[0]
	n := max(first, 1)
	second := 0
	if len(list) > 1 {
		second = list[1]
	}
	switch c {
	case 'A':
		s.moveUp(n)
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
		s.moveUp(n)
		s.at.x = 0
	case 'G', '`':
		s.moveTo(n-1, s.at.y)
	case 'H', 'f':
		s.home(max(second, 1)-1, n-1)
	case 'd':
		s.home(s.at.x, n-1)
	case 'I':
		s.moveTo((s.at.x/tabWidth+n)*tabWidth, s.at.y)
	case 'Z':
		s.moveTo((max(s.at.x-1, 0)/tabWidth-n+1)*tabWidth, s.at.y)
	case 'J':
		s.eraseScreen(first)
	case 'K':
		s.eraseLine(first)
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
	}
}

// putAgain repeats the last character.
func (s *Screen) putAgain() {
	graphics := s.graphics
	s.graphics = [2]bool{}
	s.put(s.last)
	s.graphics = graphics
}

func (s *Screen) moveUp(n int) {
	least := 0
	if s.at.y >= s.top {
		least = s.top
	}
	s.moveTo(s.at.x, max(s.at.y-n, least))
}

func (s *Screen) moveDown(n int) {
	most := len(s.rows()) - 1
	if s.at.y < s.under {
		most = s.under - 1
	}
	s.moveTo(s.at.x, min(s.at.y+n, most))
}

// scrollArea sets the scroll region; rows are counted from 1.
func (s *Screen) scrollArea(first, last int) {
	rows := len(s.rows())
	if last == 0 || last > rows {
		last = rows
	}
	if first = max(first, 1); first >= last {
		return
	}
	s.top, s.under = first-1, last
	s.home(0, 0)
}

// eraseScreen erases from the cursor (0), up to it (1), or everything.
func (s *Screen) eraseScreen(which int) {
	first, under := 0, len(s.rows())
	switch which {
	case 0:
		s.eraseLine(0)
		first = s.at.y + 1
	case 1:
		s.eraseLine(1)
		under = s.at.y
	case 3: // the scrollback, which is not stored
		return
	}
	for y := first; y < under; y++ {
		clearRow(&s.rows()[y])
	}
	s.at.pending = false
}

// eraseLine erases from the cursor (0), up to it (1), or the line.
func (s *Screen) eraseLine(which int) {
	switch which {
	case 0:
		s.erase(s.at.x, s.cols)
	case 1:
		s.erase(0, s.at.x+1)
	default:
		s.erase(0, s.cols)
	}
	s.at.pending = false
}

// erase erases cells in the row of the cursor.
func (s *Screen) erase(from, to int) {
	r := &s.rows()[s.at.y]
	for x := from; x < min(to, s.cols); x++ {
		s.set(r, x, blank)
	}
	if to >= s.cols {
		r.wrapped = false
	}
}

// shiftCells inserts or deletes cells at the cursor.
func (s *Screen) shiftCells(insert bool, n int) {
	r := &s.rows()[s.at.y]
	area := r.cells[s.at.x:]
	n = min(n, len(area))
	if insert {
		copy(area[n:], area)
		clear(area[:n])
	} else {
		copy(area, area[n:])
		clear(area[len(area)-n:])
	}
	r.wrapped, s.at.pending = false, false
}
