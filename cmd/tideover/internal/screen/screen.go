// Package screen emulates the screen of a terminal: it processes the output of a program, and returns
// the text on the screen row by row, in whichever order the program drew it.
//
// The model has no colours, no scrollback and no reflow. Escape sequences that do not move the
// cursor, write or erase are ignored.
package screen

import (
	"strings"
	"sync"
)

// The largest size of a screen. Text outside of it is drawn at the edge.
const (
	maxCols = 1000
	maxRows = 500
)

// blank is an empty cell, and rest is the second half of a wide character.
const (
	blank rune = 0
	rest  rune = -1
)

// row is a row of the screen.
type row struct {
	cells   []rune
	wrapped bool // the line continues in the next row
}

// position is the position of the cursor.
type position struct {
	x, y    int
	pending bool // the last column was written, so the next character starts a row
}

// page is one of the two pages of a terminal: the main or the alternate screen.
type page struct {
	rows  []row
	saved position // cursor position to restore
}

// Screen is the screen of a terminal. It is safe for concurrent use.
type Screen struct {
	mu         sync.Mutex
	cols       int
	pages      [2]page // the main and the alternate screen
	alternate  bool    // the alternate screen is active
	at         position
	top, under int // scroll region: rows from top to under-1

	wrap, insert, origin bool    // modes: wrap long lines, insert characters, cursor positions relative to the scroll region
	graphics             [2]bool // the character sets G0 and G1 are line-drawing sets
	shift                int     // index of the active character set
	last                 rune    // last written character

	parser
}

// New returns an empty screen. Sizes outside of the allowed range are changed to the nearest allowed
// size.
func New(cols, rows int) *Screen {
	s := &Screen{}
	s.cols = min(max(cols, 1), maxCols)
	s.reset(min(max(rows, 1), maxRows))
	return s
}

// reset restores the initial state.
func (s *Screen) reset(rows int) {
	for i := range s.pages {
		s.pages[i] = page{rows: make([]row, rows)}
		for y := range s.pages[i].rows {
			s.pages[i].rows[y].cells = make([]rune, s.cols)
		}
	}
	s.alternate, s.at, s.last = false, position{}, blank
	s.softReset()
}

// Resize changes the size of the screen. It removes rows at the top if the cursor would be below the
// screen otherwise.
func (s *Screen) Resize(cols, rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cols, rows = min(max(cols, 1), maxCols), min(max(rows, 1), maxRows)
	if cols == s.cols && rows == len(s.page().rows) {
		return
	}
	over := max(0, s.at.y-rows+1)
	for i := range s.pages {
		p := &s.pages[i]
		if p == s.page() {
			p.rows = p.rows[over:]
		}
		for len(p.rows) < rows {
			p.rows = append(p.rows, row{})
		}
		p.rows = p.rows[:rows:rows]
		for y := range p.rows {
			r := &p.rows[y]
			cells := make([]rune, cols)
			copy(cells, r.cells)
			r.cells = cells
			r.wrapped = r.wrapped && cols == s.cols
		}
	}
	s.cols, s.top, s.under = cols, 0, rows
	s.moveTo(s.at.x, s.at.y-over)
}

// page returns the active page.
func (s *Screen) page() *page {
	if s.alternate {
		return &s.pages[1]
	}
	return &s.pages[0]
}

// rows returns the rows of the active page.
func (s *Screen) rows() []row { return s.page().rows }

// Lines returns the text of the screen, from top to bottom and without trailing spaces. Rows that
// the terminal has wrapped are joined.
func (s *Screen) Lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	var b strings.Builder
	for _, r := range s.rows() {
		for _, c := range r.cells {
			switch c {
			case blank:
				b.WriteByte(' ')
			case rest:
			default:
				b.WriteRune(c)
			}
		}
		if !r.wrapped {
			list = append(list, strings.TrimRight(b.String(), " "))
			b.Reset()
		}
	}
	if b.Len() > 0 {
		list = append(list, strings.TrimRight(b.String(), " "))
	}
	return list
}

// Write processes output of the program. It never fails.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range p {
		s.feed(s, c)
	}
	return len(p), nil
}

// put writes a character at the cursor.
func (s *Screen) put(c rune) {
	if s.graphics[s.shift] {
		c = lineDrawing(c)
	}
	width := widthOf(c)
	if width == 0 || width > s.cols {
		return
	}
	s.last = c
	if s.wrap && (s.at.pending || s.at.x+width > s.cols) {
		s.rows()[s.at.y].wrapped = true
		s.at.x, s.at.pending = 0, false
		s.lineFeed()
	}
	s.at.x = min(s.at.x, s.cols-width)
	r := &s.rows()[s.at.y]
	if s.insert {
		copy(r.cells[s.at.x+width:], r.cells[s.at.x:])
	}
	r.set(s.at.x, c)
	if width == 2 {
		r.set(s.at.x+1, rest)
	}
	s.at.x += width
	if s.at.x >= s.cols {
		s.at.x, s.at.pending = s.cols-1, true
		r.wrapped = false
	}
}

// set changes a cell, and clears the other half of a wide character.
func (r *row) set(x int, c rune) {
	if r.cells[x] == rest && c != rest && x > 0 {
		r.cells[x-1] = blank
	}
	if x+1 < len(r.cells) && r.cells[x+1] == rest {
		r.cells[x+1] = blank
	}
	r.cells[x] = c
}

// moveTo moves the cursor, limited to the screen.
func (s *Screen) moveTo(x, y int) {
	s.at = position{x: min(max(x, 0), s.cols-1), y: min(max(y, 0), len(s.rows())-1)}
}

// lineFeed moves the cursor down, and scrolls at the end of the scroll region.
func (s *Screen) lineFeed() {
	s.at.pending = false
	switch {
	case s.at.y == s.under-1:
		s.scroll(s.top, 1)
	case s.at.y < len(s.rows())-1:
		s.at.y++
	}
}

// reverseFeed moves the cursor up, and scrolls at the beginning of the scroll region.
func (s *Screen) reverseFeed() {
	s.at.pending = false
	switch {
	case s.at.y == s.top:
		s.scroll(s.top, -1)
	case s.at.y > 0:
		s.at.y--
	}
}

// scroll moves the rows from index from to the end of the scroll region up by n, or down if n is
// negative. New rows are blank.
func (s *Screen) scroll(from, n int) {
	area := s.rows()[from:s.under]
	n = min(max(n, -len(area)), len(area))
	for range max(n, -n) {
		if n > 0 {
			first := area[0]
			copy(area, area[1:])
			area[len(area)-1] = first
			area[len(area)-1].clear()
		} else {
			last := area[len(area)-1]
			copy(area[1:], area)
			area[0] = last
			area[0].clear()
		}
	}
	if from > 0 {
		s.rows()[from-1].wrapped = false
	}
}

// clear erases all cells.
func (r *row) clear() {
	clear(r.cells)
	r.wrapped = false
}

// show switches between the main and the alternate screen. erase clears the alternate screen when it
// is switched on.
func (s *Screen) show(alternate, erase bool) {
	if s.alternate == alternate {
		return
	}
	s.alternate = alternate
	if alternate && erase {
		s.eraseScreen(2)
	}
	s.moveTo(s.at.x, s.at.y)
}

// restore moves the cursor to its saved position.
func (s *Screen) restore() {
	saved := s.page().saved
	s.moveTo(saved.x, saved.y)
	s.at.pending = saved.pending && s.at.x == s.cols-1
}

// softReset executes DECSTR, which programs send at their end to clean up.
func (s *Screen) softReset() {
	s.top, s.under = 0, len(s.rows())
	s.wrap, s.insert, s.origin = true, false, false
	s.graphics, s.shift = [2]bool{}, 0
}

// home moves the cursor to a position, which is relative to the scroll region in origin mode.
func (s *Screen) home(x, y int) {
	if s.origin {
		y = min(y+s.top, s.under-1)
	}
	s.moveTo(x, y)
}

// putAgain writes the last character again. The character was already converted, so putAgain turns
// line-drawing sets off meanwhile.
func (s *Screen) putAgain() {
	graphics := s.graphics
	s.graphics = [2]bool{}
	s.put(s.last)
	s.graphics = graphics
}

// moveDown moves the cursor down by n rows, or up if n is negative. It does not leave the scroll
// region at its upper or lower end.
func (s *Screen) moveDown(n int) {
	first, last := 0, len(s.rows())-1
	if s.at.y >= s.top {
		first = s.top
	}
	if s.at.y < s.under {
		last = s.under - 1
	}
	s.moveTo(s.at.x, min(max(s.at.y+n, first), last))
}

// scrollArea sets the scroll region; rows are counted from 1, and 0 means the default. It ignores an
// invalid region.
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

// eraseScreen erases the screen from the cursor on if which is 0, up to the cursor if it is 1, not at
// all if it is 3, else the whole screen.
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
		s.rows()[y].clear()
	}
	s.at.pending = false
}

// eraseLine erases the line from the cursor on if which is 0, up to the cursor if it is 1, else the
// whole line.
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

// erase erases the cells from column from to column to-1 in the row of the cursor.
func (s *Screen) erase(from, to int) {
	r := &s.rows()[s.at.y]
	for x := from; x < min(to, s.cols); x++ {
		r.set(x, blank)
	}
	if to >= s.cols {
		r.wrapped = false
	}
}

// shiftCells inserts n blank cells at the cursor, or deletes n cells, and shifts the rest of the row.
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
