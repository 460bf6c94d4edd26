package detect

import (
	"bytes"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/lazyregexp"
)

const (
	screenWrapped = 6 // rows that may have the rest of a message: screens are narrow
	screenProse   = 2 // rows of text that may follow a message; more of them are an answer
)

// OnScreen is a limit that stands on the screen of a program that still runs.
type OnScreen struct {
	Stop
	Choice bool // below it the program asks which of several things to do
}

// FindOnScreen looks for a limit among the lines that a program shows on its screen,
// blank ones included, and returns the last one that is not over. Only what the program
// itself is known to say counts; for the pack generic, what any of the assistants is
// known to say. A message in a text, in the output of a tool, or one after which the
// program went on is none. Times without a zone are those of the zone.
func (p *Pack) FindOnScreen(lines []string, at time.Time, zone *time.Location) (OnScreen, bool) {
	rows := readScreen(lines)
	if p.Name() != "generic" {
		return p.findOnScreen(rows, at, zone)
	}
	var best OnScreen
	var found bool
	for _, name := range Names() {
		pack, err := Builtin(name)
		if err != nil || name == "generic" {
			continue
		}
		if got, ok := pack.findOnScreen(rows, at, zone); ok && got.Pack == name && (!found || got.better(best.Stop)) {
			best, found = got, true
		}
	}
	return best, found
}

// screenRow is a line of a screen.
type screenRow struct {
	text   []byte // normalised; empty if the row is blank or a border
	border bool   // it is the edge of a box, or a rule
	marked bool   // a sign stands before the text: it is no continuation of the row above
	prompt bool   // the user types here, or has typed this
	code   bool   // it stands in a block of code
}

// The signs that programs put before what their user types.
const promptSigns = ">›❯»$%"

// horizontal are the characters of borders, beside those of Unicode's block for boxes.
const horizontal = "-=_~+*"

// readScreen reads the lines of a screen.
func readScreen(lines []string) []screenRow {
	rows := make([]screenRow, 0, len(lines))
	var n normalizer
	fenced := false
	for _, line := range lines {
		var r screenRow
		n.yield = func(text []byte) { r.text = appendShort(nil, text) }
		line = withoutFrame(line)
		first, _ := utf8.DecodeRuneInString(strings.TrimLeft(line, " "))
		switch {
		case isBorder(line):
			r.border = true
		default:
			n.line([]byte(line))
			r.marked = first >= utf8.RuneSelf && ornament(first)
			r.prompt = strings.ContainsRune(promptSigns, first)
		}
		fence := bytes.HasPrefix(r.text, codeFence)
		r.code = fenced || fence
		fenced = fenced != fence
		rows = append(rows, r)
	}
	return rows
}

// withoutFrame returns the line without the sides of a box around it.
func withoutFrame(line string) string {
	const sides = "│┃║▌▐▏▕|"
	line = strings.TrimSpace(line)
	first, size := utf8.DecodeRuneInString(line)
	if !strings.ContainsRune(sides, first) || size == 0 {
		return line
	}
	line = line[size:]
	if last, size := utf8.DecodeLastRuneInString(line); size > 0 && strings.ContainsRune(sides, last) {
		line = line[:len(line)-size]
	}
	return line
}

// isBorder reports whether the line is the edge of a box or a rule, which may have a
// title.
func isBorder(line string) bool {
	drawn, ruled, others := 0, 0, 0
	for _, r := range line {
		switch {
		case r == ' ':
		case r >= 0x2500 && r < 0x2580 && r != '│' && r != '┃' && r != '║', r == '▔', r == '▁', r == '▀', r == '▄':
			drawn++
		case strings.ContainsRune(horizontal, r):
			ruled++
		default:
			others++
		}
	}
	return drawn >= 2 || ruled >= 3 && others == 0
}

// findOnScreen is FindOnScreen for one pack.
func (p *Pack) findOnScreen(rows []screenRow, at time.Time, zone *time.Location) (OnScreen, bool) {
	d := New(p, Options{Location: zone, Lines: len(rows), At: at})
	d.wrapped = screenWrapped
	d.at = at
	for i := range rows {
		d.number++
		d.push(rows[i].text, len(rows[i].text) == 0) // an event ends a message, as a blank row does
	}
	list := d.matchLines()
	for i := len(list) - 1; i >= 0; i-- {
		m := &list[i]
		first, end := m.count-1, m.end-1 // as indices of rows
		limit := m.rule.Reason == RateLimit || m.rule.Terminal
		if !limit || !m.own() || m.rule.trust != ByLine || m.rule.Alive || m.rule.MovedOn || m.rule.Fallback {
			continue
		}
		if quotedOnScreen(rows, list, first, end) || wentOn(rows, list[i+1:], m) {
			continue
		}
		return OnScreen{Stop: d.verdict(list[i:i+1], 0), Choice: asksBelow(rows[end+1:])}, true
	}
	return OnScreen{}, false
}

// toolCall is a row that says which tool is called with what. The rows below are what
// the tool said.
var toolCall = lazyregexp.New(`^[A-Z][\w.:-]*\(`)

// quotedOnScreen reports whether a message is a part of a text or of the output of a
// tool.
func quotedOnScreen(rows []screenRow, list []match, first, end int) bool {
	if rows[first].code || rows[first].prompt {
		return true
	}
	for first > 0 && isMessage(list, first) { // the row above, whose count is first
		first--
	}
	if first > 0 {
		above := &rows[first-1]
		if toolCall.Match(above.text) {
			return true
		}
		if !rows[first].marked && len(above.text) > 0 && !above.prompt && isProse(above.text) {
			return true // it is a part of the paragraph
		}
	}
	if !rows[first].marked && announced(rows[:first]) {
		return true
	}
	if below := end + 1; below < len(rows) && len(rows[below].text) > 0 && !rows[below].marked {
		first, _ := utf8.DecodeRune(rows[below].text)
		return unicode.IsLower(first) && isProse(rows[below].text) // the sentence goes on
	}
	return false
}

// announced reports whether the last row with text ends as if something were quoted
// next.
func announced(rows []screenRow) bool {
	for i := len(rows) - 1; i >= 0 && !rows[i].border; i-- {
		if text := rows[i].text; len(text) > 0 {
			return bytes.HasSuffix(text, []byte(":")) && !errorHead.Match(text)
		}
	}
	return false
}

// wentOn reports whether the program did something after the message: it says that it
// retries by itself, its user has asked for something else, or it has answered. What
// follows the place where the user types says nothing about that.
func wentOn(rows []screenRow, below []match, m *match) bool {
	for i := range below {
		if sign := &below[i]; sign.rule.Alive && (sign.rule.Reason != Unknown || m.reading.until.IsZero()) {
			return true
		}
	}
	rest := rows[m.end:]
	for len(rest) > 0 && len(rest[0].text) > 0 && !rest[0].marked && !rest[0].prompt {
		rest = rest[1:] // the rest of the message
	}
	end := len(rest)
	if i := lastRow(rest, func(r *screenRow) bool { return r.prompt }); i >= 0 {
		end = i
	} else if i := lastRow(rest, func(r *screenRow) bool { return r.border }); i >= 0 {
		end = i
	}
	prose := 0
	for i := range rest[:end] {
		switch r := &rest[i]; {
		case r.prompt && len(r.text) > 1:
			return true
		case len(r.text) > 0 && isProse(r.text):
			prose++
		}
	}
	return prose > screenProse
}

func lastRow(rows []screenRow, is func(*screenRow) bool) int {
	for i := len(rows) - 1; i >= 0; i-- {
		if is(&rows[i]) {
			return i
		}
	}
	return -1
}

// choice is a row of a list of which the user is to choose one.
var choice = lazyregexp.New(`^(?:[>›❯»] ?)?1[.)] \S`)

// asksBelow reports whether the program asks its user to choose.
func asksBelow(rows []screenRow) bool {
	for i := range rows {
		if choice.Match(rows[i].text) {
			return true
		}
	}
	return false
}
