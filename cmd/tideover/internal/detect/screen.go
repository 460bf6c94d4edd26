package detect

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/lazyregexp"
)

const (
	screenWrapped = 6 // continuation rows of a message: screens are narrow
	screenProse   = 2 // rows of prose that may follow a message; more rows mean that the program continued with an answer
)

// OnScreen is a limit on the screen of a running program.
type OnScreen struct {
	Stop
	Choice bool // the program asks the user to choose
}

// FindOnScreen returns the last limit on the screen of a program. lines are all rows of the screen,
// including blank ones. Only specific messages count; for the pack generic, those of all assistants.
// A message in prose, in the output of a tool, or one after which the program continued does not
// count. at is the present time, and zone is for times without a zone.
func (p *Pack) FindOnScreen(lines []string, at time.Time, zone *time.Location) (OnScreen, bool) {
	rows := readScreen(lines)
	if p.Name() != "generic" {
		return p.findOnScreen(rows, at, zone)
	}
	var best OnScreen
	var found bool
	for _, name := range Names() {
		pack, _ := Builtin(name) // a test compiles all packs
		if name != "generic" && !slices.ContainsFunc(pack.lines, func(r *rule) bool { return r.pack == name }) {
			continue // it adds nothing to the grammar
		}
		if got, ok := pack.findOnScreen(rows, at, zone); ok && (got.Pack == name || got.grammar) && (!found || got.better(best.Stop)) {
			best, found = got, true
		}
	}
	return best, found
}

// screenRow is a row of a screen.
type screenRow struct {
	text   []byte // normalised; empty if the row is blank or a border
	border bool   // edge of a box, or a horizontal rule
	marked bool   // begins with a symbol, so it does not continue the row above
	prompt bool   // input of the user
	code   bool   // inside a code block
}

// promptSigns are symbols before the input of the user.
const promptSigns = ">›❯»$%"

// horizontal has the characters of borders besides the box-drawing characters of Unicode.
const horizontal = "-=_~+*"

// readScreen parses the rows of a screen.
func readScreen(lines []string) []screenRow {
	rows := make([]screenRow, 0, len(lines))
	var n normalizer
	fenced := false
	for _, line := range lines {
		var r screenRow
		n.yield = func(text []byte) { r.text = appendShort(nil, text) }
		line = withoutFrame(line)
		first, _ := utf8.DecodeRuneInString(strings.TrimLeft(line, " "))
		if r.border = isBorder(line); !r.border {
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

// withoutFrame removes the sides of a box around the line.
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

// isBorder reports whether the line is the edge of a box or a horizontal rule. It may contain a
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

// findOnScreen is FindOnScreen with the rules of this pack only.
func (p *Pack) findOnScreen(rows []screenRow, at time.Time, zone *time.Location) (OnScreen, bool) {
	d := New(p, Options{Location: zone, Lines: len(rows), At: at})
	d.matcher.wrapped = screenWrapped
	d.at = at
	for i := range rows {
		d.number++
		d.push(rows[i].text, len(rows[i].text) == 0) // a blank row ends a message, like an event
	}
	list := d.matcher.matchLines(&d.lines, nil)
	for i := len(list) - 1; i >= 0; i-- {
		m := &list[i]
		first, end := m.count-1, m.end-1 // as indices of rows
		limit := m.rule.Reason == RateLimit || m.rule.Terminal
		if !limit || m.rule.pack == "generic" && !m.spoken || m.rule.trust != ByLine || m.rule.Alive || m.rule.MovedOn || m.rule.Fallback {
			continue
		}
		if quotedOnScreen(rows, list, first, end) || wentOn(rows, list[i+1:], m) {
			continue
		}
		asks := slices.ContainsFunc(rows[end+1:], func(r screenRow) bool { return choice.Match(r.text) })
		return OnScreen{Stop: verdict(list[i:i+1], 0, d.options.Location), Choice: asks}, true
	}
	return OnScreen{}, false
}

// toolCall matches a row that shows the call of a tool. The rows below are its output.
var toolCall = lazyregexp.New(`^[A-Z][\w.:-]*\(`)

// quotedOnScreen reports whether a message is part of prose or of the output of a tool.
func quotedOnScreen(rows []screenRow, list []match, first, end int) bool {
	if rows[first].code || rows[first].prompt {
		return true
	}
	for first > 0 && isMessage(list, first) { // the row above, whose count equals first
		first--
	}
	if first > 0 && belongsTo(&rows[first], &rows[first-1]) || !rows[first].marked && announced(rows[:first]) {
		return true
	}
	if below := end + 1; below < len(rows) && len(rows[below].text) > 0 && !rows[below].marked {
		first, _ := utf8.DecodeRune(rows[below].text)
		return unicode.IsLower(first) && isProse(rows[below].text) // the sentence continues
	}
	return false
}

// belongsTo reports whether a row continues the paragraph or the output of a tool above it.
func belongsTo(r, above *screenRow) bool {
	paragraph := !r.marked && len(above.text) > 0 && !above.prompt && isProse(above.text)
	return paragraph || toolCall.Match(above.text)
}

// announced reports whether the last row with text announces a quotation: it ends with a colon.
func announced(rows []screenRow) bool {
	for i := len(rows) - 1; i >= 0 && !rows[i].border; i-- {
		if text := rows[i].text; len(text) > 0 {
			return bytes.HasSuffix(text, []byte(":")) && !errorHead.Match(text)
		}
	}
	return false
}

// wentOn reports whether the program continued after the message: it retries by itself, the user
// has typed another request, or there is an answer. Rows below the input field do not count.
func wentOn(rows []screenRow, below []match, m *match) bool {
	for i := range below {
		if sign := &below[i]; sign.rule.Alive && (sign.rule.Reason != Unknown || m.reading.until.IsZero()) {
			return true
		}
	}
	rest := rows[m.end:]
	for len(rest) > 0 && len(rest[0].text) > 0 && !rest[0].marked && !rest[0].prompt {
		rest = rest[1:] // continuation of the message
	}
	end := len(rest)
	if i := lastIndex(rest, func(r screenRow) bool { return r.prompt }); i >= 0 {
		end = i
	} else if i := lastIndex(rest, func(r screenRow) bool { return r.border }); i >= 0 {
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

// lastIndex returns the index of the last element for which is returns true; -1 if there is none.
func lastIndex[T any](list []T, is func(T) bool) int {
	for i, v := range slices.Backward(list) {
		if is(v) {
			return i
		}
	}
	return -1
}

// choice matches the first row of a numbered list of options, of which the user must choose one.
var choice = lazyregexp.New(`^(?:[>›❯»] ?)?1[.)] \S`)
