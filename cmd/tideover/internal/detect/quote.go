package detect

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// codeFence is how a block of code begins and ends in Markdown.
var codeFence = []byte("```")

// errorHead is a line that only says that an error follows.
var errorHead = lazyregexp.New(`(?i)^(?:[a-z_-]+ )?[\w.]*error:$`)

// quoted reports whether a line that matches stands in a block of code, is announced
// by the line above it, or is followed by prose. Then it may be a part of an answer. So
// may a line after an event that says that all is well: the program says by events what
// it has to say.
// What follows does not count as prose if a rule of the program's own matches it.
func (d *Detector) quoted(m *match, list []match) bool {
	if d.lineAt(m.count).code {
		return true
	}
	if m.count > 1 {
		if above := d.lineAt(m.count - 1); !above.event && bytes.HasSuffix(above.text, []byte(":")) && !errorHead.Match(above.text) {
			return true
		}
	}
	for i := range list {
		if before := &list[i]; before.isEvent() && before.rule.Alive && before.order < m.order {
			return true
		}
	}
	for count := m.end + 1; count <= d.count; count++ {
		if e := d.lineAt(count); !e.event && isProse(e.text) && !isMessage(list, count) {
			return true
		}
	}
	return false
}

// lineAt returns a line of the ring.
func (d *Detector) lineAt(count int) *entry { return &d.ring[count%len(d.ring)] }

// isMessage reports whether a rule of the program's own matches the line.
func isMessage(list []match, count int) bool {
	for i := range list {
		if m := &list[i]; m.count <= count && count <= m.end && m.own() && !m.rule.MovedOn {
			return true
		}
	}
	return false
}

// isProse reports whether a line reads as a part of a text for people: three words or
// more, or the end of a sentence.
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

// looksLikeCode reports whether a line begins as a line of code does, with two spaces
// or more, or as the result of a test does. Any other sign before the text makes it a
// message on a screen.
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
