package cli

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/internal/textfmt"
)

// screen describes the terminal or file that the output goes to.
type screen struct {
	terminal bool
	colour   bool
	width    int // in columns; 0 means unlimited
	now      time.Time
	zone     *time.Location
}

func screenOf(out *os.File) screen {
	s := screen{now: time.Now(), zone: time.Local}
	s.width, _ = strconv.Atoi(os.Getenv("COLUMNS"))
	if process.IsTerminal(out) {
		s.terminal = true
		s.colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if s.width, _ = terminalSize(out); s.width <= 0 {
			s.width = 80
		}
	}
	s.width = max(s.width, 0)
	return s
}

// paint adds the colour with this terminal code to text. It returns text unchanged if the output
// has no colours or the code is empty.
func (s *screen) paint(code, text string) string {
	if !s.colour || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// stateColours has the terminal code of each state's colour. The codes are among the 16 colours
// that every terminal has.
var stateColours = map[string]string{
	"succeeded": "32", "dead": "31", "failed": "31", "canceled": "2", "replaced": "2", "running": "36", "waiting": "33", "scheduled": "34",
	"queued": "34", "needs-handler": "35", "lost": "35", "late": "2", "released": "2", "snoozed": "34", "limited": "33", "paused": "35", "undoing": "33",
	"suspended": "2", "continued": "2", "skipped": "2", "not-begun": "2",
}

// cell is one value of a table, with the terminal code of its colour; an empty code means no
// colour.
type cell struct{ text, colour string }

// table has rows under headings. Control characters in its cells are made visible.
type table struct {
	heads []string
	rows  [][]cell
	below []string // for each row the line below it, indented; "" or missing for none
}

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

func plain(text string) cell { return cell{text, ""} }

func stateCell(state string) cell { return cell{state, stateColours[state]} }

// render returns the lines of the table, with the headings first. It leaves out columns without
// values, and cuts lines at the width of the screen.
func (t *table) render(s *screen) []string {
	widths := make([]int, len(t.heads))
	for _, row := range t.rows {
		for i := range row {
			row[i].text = visible(row[i].text)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
	}
	heads := make([]cell, len(t.heads))
	for i, head := range t.heads {
		heads[i] = cell{head, "1"}
		if widths[i] > 0 {
			widths[i] = max(widths[i], len(head))
		}
	}
	var lines []string
	for i, row := range append([][]cell{heads}, t.rows...) {
		lines = append(lines, s.line(row, widths))
		if i > 0 && i <= len(t.below) && t.below[i-1] != "" {
			text := visible(t.below[i-1])
			if s.width > 0 {
				text = textfmt.ClipWithin(text, s.width-2, "…")
			}
			lines = append(lines, "  "+s.paint("2", text))
		}
	}
	return lines
}

func (s *screen) line(row []cell, widths []int) string {
	var b strings.Builder
	used, pad := 0, 0
	for i, c := range row {
		if widths[i] == 0 {
			continue
		}
		text := c.text
		if s.width > 0 {
			text = textfmt.ClipWithin(text, s.width-used-pad, "…")
		}
		if text != "" {
			b.WriteString(strings.Repeat(" ", pad))
			b.WriteString(s.paint(c.colour, text))
			used, pad = used+pad+utf8.RuneCountInString(text), 0
		}
		pad += widths[i] - utf8.RuneCountInString(text) + 2
	}
	return b.String()
}

// ago formats how long ago a time was, in whole days, hours, minutes or seconds.
func (s *screen) ago(t time.Time) string {
	d := max(s.now.Sub(t), 0)
	for _, u := range []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= u.size {
			return fmt.Sprintf("%d%s", d/u.size, u.name)
		}
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// until formats the time until t; "now" if t is in the past, empty if t is nil.
func (s *screen) until(t *time.Time) string {
	if t == nil {
		return ""
	}
	if d := t.Sub(s.now); d > 0 {
		return textfmt.CoarseDuration(d)
	}
	return "now"
}

// stamp formats a time with its zone.
func (s *screen) stamp(t time.Time) string { return t.In(s.zone).Format("2006-01-02 15:04:05 -07:00") }
