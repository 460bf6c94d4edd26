package process

import (
	"bytes"
	"regexp"
)

// maxLine limits the matched part of a line, so that output without line ends needs little memory.
const maxLine = 1 << 20

// lines looks for a matching line in a stream that arrives in pieces.
type lines struct {
	match   *regexp.Regexp // nil matches nothing
	prefix  []byte         // literal text with which every match begins; may be empty
	partial []byte         // beginning of an incomplete line
	found   bool
}

func newLines(match *regexp.Regexp) *lines {
	l := &lines{match: match}
	if match != nil {
		prefix, _ := match.LiteralPrefix()
		l.prefix = []byte(prefix)
	}
	return l
}

// write processes the next piece of the stream.
func (l *lines) write(p []byte) {
	if l.match == nil || l.found {
		return
	}
	head, rest, ended := bytes.Cut(p, []byte{'\n'})
	l.appendPartial(head)
	if !ended {
		return
	}
	l.test(l.partial)
	l.partial = l.partial[:0]
	whole := bytes.LastIndexByte(rest, '\n') + 1
	l.scan(rest[:whole])
	l.appendPartial(rest[whole:])
}

func (l *lines) appendPartial(p []byte) {
	l.partial = append(l.partial, p[:min(len(p), maxLine-len(l.partial))]...)
}

// scan processes complete lines.
func (l *lines) scan(p []byte) {
	// A search for a constant is fifty times as fast as matching line by line.
	if len(l.prefix) > 0 && !bytes.Contains(p, l.prefix) {
		return
	}
	for len(p) > 0 && !l.found {
		end := bytes.IndexByte(p, '\n')
		l.test(p[:end])
		p = p[end+1:]
	}
}

// finish processes the last line if it has no line end. Call it at the end of the stream.
func (l *lines) finish() {
	if len(l.partial) > 0 {
		l.test(l.partial)
	}
}

func (l *lines) test(line []byte) {
	line = bytes.TrimSuffix(line[:min(len(line), maxLine)], []byte{'\r'})
	l.found = l.found || l.match.Match(line)
}

// maxTail limits the length of a last line. A longer one lacks its beginning.
const maxTail = 4 << 10

// tail keeps the end of a stream that arrives in pieces.
type tail struct{ end []byte }

// write processes the next piece of the stream.
func (t *tail) write(p []byte) {
	t.end = append(t.end, p[max(len(p)-maxTail, 0):]...)
	if over := len(t.end) - maxTail; over > 0 {
		t.end = t.end[:copy(t.end, t.end[over:])]
	}
}

// line returns the last line that is not blank; "" if there is none.
func (t *tail) line() string {
	text := bytes.TrimSpace(t.end)
	return string(bytes.TrimSpace(text[bytes.LastIndexByte(text, '\n')+1:]))
}
