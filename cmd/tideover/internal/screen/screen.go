// Package screen models the text on the screen of a terminal, so that it can be read in the order
// of its rows, independent of the order in which the program drew them.
//
// The model has no colours, no scrollback and no reflow. Escape sequences that do not move the
// cursor, write or erase are ignored.
package screen

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// The largest size of a screen. Text outside of it is drawn at its edge.
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

// page is one of the two pages of a terminal.
type page struct {
	rows  []row
	saved position
}

// Screen is the screen of a terminal. It is safe for concurrent use.
type Screen struct {
	mu         sync.Mutex
	cols       int
	pages      [2]page // the main and the alternate screen
	alternate  bool    // the alternate screen is active
	at         position
	top, under int // scroll region: rows from top to under-1

	wrap, insert, origin bool
	graphics             [2]bool // the character sets G0 and G1 are line-drawing sets
	shift                int     // index of the active character set
	last                 rune    // last written character

	parser
}

// New returns an empty screen.
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
	s.alternate, s.at = false, position{}
	s.top, s.under = 0, rows
	s.wrap, s.insert, s.origin = true, false, false
	s.graphics, s.shift, s.last = [2]bool{}, 0, blank
}

// Resize gives the screen another size. Rows go at the top, if the cursor would not
// be on the screen otherwise.
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
		if i == s.shown() {
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

func (s *Screen) shown() int {
	if s.alternate {
		return 1
	}
	return 0
}

func (s *Screen) page() *page { return &s.pages[s.shown()] }

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
	s.set(r, s.at.x, c)
	if width == 2 {
		s.set(r, s.at.x+1, rest)
	}
	s.at.x += width
	if s.at.x >= s.cols {
		s.at.x, s.at.pending = s.cols-1, true
		r.wrapped = false
	}
}

// set changes a cell, and clears the other half of a wide character.
func (s *Screen) set(r *row, x int, c rune) {
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

// scroll moves the rows from the given one to the end of the scroll region up by n, or down if n is
// negative. New rows are blank.
func (s *Screen) scroll(from, n int) {
	area := s.rows()[from:s.under]
	n = min(max(n, -len(area)), len(area))
	for range max(n, -n) {
		if n > 0 {
			first := area[0]
			copy(area, area[1:])
			area[len(area)-1] = first
			clearRow(&area[len(area)-1])
		} else {
			last := area[len(area)-1]
			copy(area[1:], area)
			area[0] = last
			clearRow(&area[0])
		}
	}
	if from > 0 {
		s.rows()[from-1].wrapped = false
	}
}

func clearRow(r *row) {
	clear(r.cells)
	r.wrapped = false
}

// show switches between the main and the alternate screen.
func (s *Screen) show(alternate, erase bool) {
	if s.alternate == alternate {
		return
	}
	s.alternate = alternate
	if alternate && erase {
		for y := range s.rows() {
			clearRow(&s.rows()[y])
		}
	}
	s.moveTo(s.at.x, s.at.y)
}

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

// feed processes a byte.
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
		s.control(c)
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
	case c == 0x07, c == 0x18, c == 0x1a:
		p.begin(inText)
	case c == 0x1b:
		p.state = inEnd
	case p.state == inEnd && c == '\\':
		p.begin(inText)
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
		s.escape(inter, c)
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
		s.sequence(p.params, c)
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
