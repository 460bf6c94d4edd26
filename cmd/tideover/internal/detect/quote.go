package detect

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// codeFence begins and ends a code block in Markdown.
var codeFence = []byte("```")

// errorHead matches a line that only announces an error.
var errorHead = lazyregexp.New(`(?i)^(?:[a-z_-]+ )?[\w.]*error:$`)

// quoted reports whether a matching line is probably part of an answer: it is in a code block, the
// line above announces it, or prose follows. The same holds for a line after an event that reports
// success, because such a program reports everything with events. Following lines that a specific
// rule matches are not prose.
func (r *ranking) quoted(m *match) bool {
	if r.lines.line(m.count).code {
		return true
	}
	if m.count > 1 {
		if above := r.lines.line(m.count - 1); !above.event && bytes.HasSuffix(above.text, []byte(":")) && !errorHead.Match(above.text) {
			return true
		}
	}
	for i := range r.list {
		if before := &r.list[i]; before.isEvent() && before.rule.Alive && before.order < m.order {
			return true
		}
	}
	for count := m.end + 1; count <= r.lines.count; count++ {
		if e := r.lines.line(count); !e.event && isProse(e.text) && !isMessage(r.list, count) {
			return true
		}
	}
	return false
}

// isMessage reports whether a specific rule matches the line.
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
// result. Any other symbol before the text makes it a message.
func looksLikeCode(raw []byte) bool {
	rest := bytes.TrimLeft(raw, " \t")
	indented := len(raw)-len(rest) >= 2 || len(raw) > 0 && raw[0] == '\t'
	switch first, _ := utf8.DecodeRune(rest); {
	case len(rest) == 0, first == 0x1b:
		return false
	case strings.ContainsRune("✓✔√☑", first):
		return true
	case strings.ContainsRune("✗✘✕✖×●○", first), first < utf8.RuneSelf:
		return indented
	default:
		return false
	}
}
