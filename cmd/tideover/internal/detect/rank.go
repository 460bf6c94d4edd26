package detect

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// Matches that are at most together lines apart belong to one message, of which the most important
// match counts. A match that is farther below is a new message.
const together = 5

func beside(a, b *match) bool { return max(a.count-b.end, b.count-a.end) <= together }

// ranking decides which matches count.
type ranking struct {
	list    []match // in the order of the output
	lines   *lineRing
	done    bool // the program succeeded: its exit code is 0, and no event reports a failure
	foreign bool // as in [Detector]
	certain bool // the exit code has a meaning
}

// void sets the verdict of every match that does not count. alive is the index of the last message
// that the program continues by itself, if no sign of progress follows it; -1 if there is none.
func (r *ranking) void() (alive int) {
	alive = -1
	for i := range r.list {
		m := &r.list[i]
		if m.rule.Alive && m.failing && r.done && r.below(m) == 0 { // its last words are an error
			m.rule = grammarRules()[false][m.class]
		}
		m.verdict = r.outdated(m)
		switch {
		case m.verdict != "":
			continue
		case m.rule.Alive:
			m.verdict, alive = "alive: the program continues by itself", i
		case m.rule.MovedOn:
			m.verdict, alive = "moved on: the program made progress", -1
		default:
			continue
		}
		for j := range r.list[:i] {
			if before := &r.list[j]; before.verdict == "" && r.voids(m, before) {
				before.verdict = "superseded: the program continued after it"
			}
		}
	}
	return alive
}

// outdated returns why a match is too far above the end of the output to count; "" if it counts. The
// less specific the message, the nearer to the end it must be. If the program succeeded, the message
// must be specific and among the last lines, and must not be quoted.
func (r *ranking) outdated(m *match) string {
	older := r.lines.count - m.end
	switch {
	case m.rule.trust == ByEvent && older > r.lines.limit:
		return "superseded: too many lines follow"
	case m.rule.trust == ByEvent:
		return ""
	case older >= r.lines.limit:
		return "outside of the last lines"
	case m.rule.Alive, m.rule.MovedOn, m.said:
		return ""
	}
	if why := r.contradicted(m); why != "" {
		return why
	}
	if r.foreign || m.grammar && m.spoken && !m.known {
		return r.ofOther(m)
	}
	return r.ofProgram(m)
}

// ofProgram returns why a message of the program does not count; "" if it counts.
func (r *ranking) ofProgram(m *match) string {
	switch {
	case m.unsure && r.below(m) > 0:
		return "not understood, and more lines follow"
	case m.grammar && r.isCode(m):
		return "ignored: the line is code"
	case !m.own() && r.lines.count-m.end >= lastGeneric:
		return "too far up for a generic message"
	default:
		return ""
	}
}

// ofOther returns why a message of another program, which the program may have run, does not count; "" if it counts.
func (r *ranking) ofOther(m *match) string {
	switch {
	case !r.foreign && r.certain:
		return "ignored: the exit code says why"
	case r.lines.count-m.end >= lastWords:
		return "too far up for a message of another program"
	case r.quoted(m):
		return "ignored: the line is in prose or code"
	default:
		return ""
	}
}

// contradicted returns why a match does not count because the program succeeded; "" if it counts.
func (r *ranking) contradicted(m *match) string {
	switch {
	case !r.done:
		return ""
	case !m.own():
		return "ignored: the exit code means success"
	case r.below(m) >= lastOfDone:
		return "ignored: the exit code means success, and more lines follow"
	case r.quoted(m):
		return "ignored: the exit code means success, and the line is in prose or code"
	}
	return ""
}

// voids reports whether a sign of progress cancels an earlier match.
func (r *ranking) voids(sign, before *match) bool {
	event := before.rule.trust == ByEvent
	switch {
	case sign.rule.trust == ByEvent:
		return sign.rule.Alive || event || before.said
	case event, before.grammar && before.rule.Terminal && r.lines.count-sign.end < lastWords:
		return false
	case sign.rule.MovedOn:
		return !before.own() || r.done || r.foreign || before.grammar && !before.known
	default:
		// The sign says that something is retrying, which may be any tool that the program ran. If it
		// has no reason, it does not cancel a limit with a stated end, unless more output follows.
		return sign.rule.Reason != Unknown || !before.own() || before.reading.until.IsZero() || r.lines.count-sign.end > lastWords
	}
}

// choose returns the index of the match that decides; -1 if none counts. It is the last match, or a
// more important one near it; events come before text. fallback is the index of the last match of a
// fallback rule, which decides if no other does; -1 if there is none.
func choose(list []match) (best, fallback int) {
	last := lastMatch(list, false)
	best = last
	for i := last - 1; i >= 0; i-- {
		m := &list[i]
		if m.verdict == "" && !m.rule.Fallback && m.isEvent() == list[last].isEvent() && beside(m, &list[last]) && m.weight() > list[best].weight() {
			best = i
		}
	}
	return best, lastMatch(list, true)
}

// lastMatch returns the index of the last match that counts, of fallback rules or of other rules; -1
// if there is none. Events come before text.
func lastMatch(list []match, fallback bool) int {
	last := -1
	for i := range list {
		if list[i].verdict == "" && list[i].rule.Fallback == fallback && (last < 0 || list[i].isEvent() || !list[last].isEvent()) {
			last = i
		}
	}
	return last
}

func (m *match) isEvent() bool { return m.rule.trust == ByEvent }

// weight orders matches near each other: specific messages before generic ones; among specific
// ones, limits with a time, and permanent before temporary; among generic ones, a response header before a line.
func (m *match) weight() int {
	if m.said || m.rule.pack != "generic" || m.spoken {
		return m.ownWeight()
	}
	switch {
	case m.grammar && weak(m.class):
		return -1
	case m.rule.trust == ByHeader:
		return 2
	case m.rule.Terminal:
		return 1
	default:
		return 0
	}
}

// ownWeight is weight for a message that is specific to the program.
func (m *match) ownWeight() int {
	switch {
	case m.grammar && weak(m.class):
		return -1
	case m.rule.Terminal && !m.grammar:
		return 6
	case m.class == limitClass && m.reading.isSet(), m.class == contextClass:
		return 5
	case m.rule.Terminal:
		return 4
	default:
		return 3
	}
}

// codeFence begins and ends a code block in Markdown.
var codeFence = []byte("```")

// errorHead matches a line that only announces an error, such as "API Error:".
var errorHead = lazyregexp.New(`(?i)^(?:[a-z_-]+ )?[\w.]*error:$`)

// quoted reports whether a matching line is probably part of an answer: it is in a code block, the
// line above announces it, or prose follows. The same holds for a line after an event that reports
// success, because such a program reports everything with events. Following lines that a specific
// rule matches are not prose.
func (r *ranking) quoted(m *match) bool {
	if r.isCode(m) || r.afterEvent(m) {
		return true
	}
	if m.count > 1 {
		if above := r.lines.line(m.count - 1); !above.event && bytes.HasSuffix(above.text, []byte(":")) && !errorHead.Match(above.text) {
			return true
		}
	}
	for count := m.end + 1; count <= r.lines.count; count++ {
		if e := r.lines.line(count); !e.event && isProse(e.text) && !isMessage(r.list, count) && !(m.grammar && aside(string(e.text))) {
			return true
		}
	}
	return false
}

// afterEvent reports whether a line follows an event that reports success, or any event of an unknown program.
func (r *ranking) afterEvent(m *match) bool {
	if m.grammar && !m.known && !m.said {
		kept, _ := r.lines.kept()
		return slices.ContainsFunc(kept, func(e entry) bool { return e.event && e.count < m.count })
	}
	return slices.ContainsFunc(r.list, func(before match) bool { return before.isEvent() && before.rule.Alive && before.order < m.order })
}

// below returns the number of lines below a match that do not belong to the message.
func (r *ranking) below(m *match) (n int) {
	for count := m.end + 1; count <= r.lines.count; count++ {
		if !m.grammar || !aside(string(r.lines.line(count).text)) {
			n++
		}
	}
	return n
}

// isCode reports whether a match is in a block of code, or indented like code.
func (r *ranking) isCode(m *match) bool {
	e := r.lines.line(m.count)
	return e.fenced || e.code && !m.field
}

// isMessage reports whether a specific rule matches the line with this count.
func isMessage(list []match, count int) bool {
	return slices.ContainsFunc(list, func(m match) bool {
		return m.count <= count && count <= m.end && m.own() && !m.rule.MovedOn
	})
}

// isProse reports whether a line reads like prose: three words or more, or the end of a sentence.
func isProse(line []byte) bool {
	if bytes.HasPrefix(line, codeFence) {
		return true
	}
	first := rune(line[0])
	if first < 0x80 && !unicode.IsLetter(first) {
		return false
	}
	return len(bytes.Fields(line)) >= 3 || bytes.IndexByte([]byte(".!?:"), line[len(line)-1]) >= 0
}

// looksLikeCode reports whether a line begins like code, with two spaces or more, or like a test
// result, with a symbol such as ✓. A line that begins with any other symbol may be a message.
func looksLikeCode(raw []byte) bool {
	rest := bytes.TrimLeft(raw, " \t")
	indented := len(raw)-len(rest) >= 2 || len(raw) > 0 && raw[0] == '\t'
	switch first, _ := utf8.DecodeRune(rest); {
	case len(rest) == 0, first == 0x1b:
		return false
	case strings.ContainsRune("✓✔√☑", first):
		return true
	case unicode.IsLetter(first) && first < utf8.RuneSelf:
		return indented && (raw[0] == '\t' || len(raw)-len(rest) >= 4)
	case strings.ContainsRune("✗✘✕✖×●○", first), first < utf8.RuneSelf:
		return indented
	default:
		return false
	}
}

// errorMark reports whether a line begins with the sign of an error.
func errorMark(raw []byte) bool {
	for len(raw) > 0 && raw[0] <= ' ' {
		raw = raw[1:]
	}
	if len(raw) == 0 || raw[0] < utf8.RuneSelf {
		return false
	}
	first, _ := utf8.DecodeRune(bytes.TrimLeft(raw, "│┃ "))
	return strings.ContainsRune("✗✘✕✖■⚠❌⛔🚫", first)
}
