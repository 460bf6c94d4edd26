package cli

import (
	"fmt"
	"strings"
)

// roff builds a manual page in the roff language. It uses only requests that every man has.
type roff struct{ strings.Builder }

func (p *roff) line(s string) { p.WriteString(s + "\n") }

func (p *roff) title(name, section, source string) {
	p.line(fmt.Sprintf(`.TH "%s" "%s" "" "%s" "tideover manual"`, escape(name), section, escape(source)))
	p.line(".nh\n.ad l") // no hyphenation or justification: names of flags and files stay whole
}

func (p *roff) section(name string) { p.line(".SH " + escape(name)) }

// item writes a term, which must be escaped already, and its explanation.
func (p *roff) item(term, meaning string) {
	p.line(".TP\n" + term)
	p.line(escape(strings.Join(strings.Fields(meaning), " ")))
}

// text writes help text. Paragraphs are filled; indented lines are tables or examples and stay as
// they are.
func (p *roff) text(s string) {
	var block []string
	for line := range strings.SplitSeq(strings.Trim(s, "\n"), "\n") {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			block = append(block, line)
			continue
		}
		p.literal(block)
		block = nil
		if strings.TrimSpace(line) == "" {
			p.line(".PP")
			continue
		}
		p.line(escape(line))
	}
	p.literal(block)
}

// literal writes lines without filling.
func (p *roff) literal(lines []string) {
	if len(lines) == 0 {
		return
	}
	p.line(".nf")
	for _, line := range lines {
		p.line(escape(strings.TrimRight(line, " ")))
	}
	p.line(".fi")
}

func bold(s string) string   { return `\fB` + escape(s) + `\fR` }
func italic(s string) string { return `\fI` + escape(s) + `\fR` }

// escape escapes a line of text, so that man shows it unchanged: no requests, no escape sequences,
// and ASCII characters that can be copied into a shell.
func escape(s string) string {
	var b strings.Builder
	for i, c := range s {
		switch {
		case (c == '.' || c == '\'') && i == 0:
			b.WriteString(`\&` + roffChar(c))
		case c == '\n' || c == '\r':
			b.WriteByte(' ')
		default:
			b.WriteString(roffChar(c))
		}
	}
	return b.String()
}

// roffChar returns the roff form of a character.
func roffChar(c rune) string {
	switch c {
	case '\\':
		return `\e`
	case '-':
		return `\-`
	case '\'':
		return `\(aq`
	case '"':
		return `\(dq`
	case '`':
		return `\(ga`
	case '^':
		return `\(ha`
	case '~':
		return `\(ti`
	}
	if c > '~' {
		return fmt.Sprintf(`\[u%04X]`, c)
	}
	return string(c)
}
