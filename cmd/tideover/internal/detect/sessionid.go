package detect

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
)

// Session describes how a program prints its session id, and how it reports that a session does not
// exist.
type Session struct {
	ID   []SessionID   `yaml:"id" json:"id,omitempty"`
	Gone []SessionGone `yaml:"gone" json:"gone,omitempty"`
}

// SessionID is where a program prints its session id. It has exactly one of Event and Line.
type SessionID struct {
	Event    map[string]any `yaml:"event" json:"event,omitempty"` // as in [Rule]
	Path     string         `yaml:"path" json:"path,omitempty"`   // of the id in the event
	Line     string         `yaml:"line" json:"line,omitempty"`   // pattern with the group id
	Literals []string       `yaml:"literals" json:"literals"`     // as in [Rule]
	Examples []string       `yaml:"examples" json:"examples,omitempty"`
}

// SessionGone is the message of a program that is asked to resume a session that does not exist. It
// has exactly one of Event and Line.
type SessionGone struct {
	Event    map[string]any `yaml:"event" json:"event,omitempty"` // as in [Rule]
	Line     string         `yaml:"line" json:"line,omitempty"`   // a pattern
	Literals []string       `yaml:"literals" json:"literals"`     // as in [Rule]
	Examples []string       `yaml:"examples" json:"examples,omitempty"`
}

// sessionRule is a compiled [SessionID] or [SessionGone].
type sessionRule struct {
	event    condition // nil for a line
	path     path      // of the id in the event
	pattern  *regexp.Regexp
	group    int // of the id in the pattern
	literals [][]byte
	gone     bool
}

// sessionReader looks for messages about the session.
type sessionReader struct {
	rules  []*sessionRule
	onID   func(id string) // as in [Options]; may be nil
	id     string          // the first session id that was printed in the first maxIDLine lines; "" if there was none
	goneAt int             // count of the line that reports a missing session; 0 for none
	lower  []byte          // reused buffer for a line in lower case
}

// idGroup is the name of the pattern group with the session id.
const idGroup = "id"

// The session id is searched in the first maxIDLine lines only: later output may quote the id of
// another session.
const maxIDLine = 50

// plausibleID matches session ids. They become arguments of commands, so they must not look like
// flags.
var plausibleID = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_.:-]{3,127}$`)

// addSession adds the pack's rules about the session.
func (p *Pack) addSession(s Session) (errs []error) {
	add := func(name string, i int, spec SessionID, gone bool) {
		r, err := compileSessionRule(spec, gone)
		if err != nil {
			errs = append(errs, fmt.Errorf("session.%s[%d]: %w", name, i, err))
			return
		}
		p.session = append(p.session, r)
	}
	for i, id := range s.ID {
		add("id", i, id, false)
	}
	for i, gone := range s.Gone {
		add("gone", i, SessionID{Event: gone.Event, Line: gone.Line, Literals: gone.Literals, Examples: gone.Examples}, true)
	}
	return errs
}

// compileSessionRule compiles a [SessionID] or, if gone is set, a [SessionGone], whose fields spec
// has.
func compileSessionRule(spec SessionID, gone bool) (*sessionRule, error) {
	r := &sessionRule{gone: gone}
	var err error
	switch {
	case (len(spec.Event) > 0) == (spec.Line != ""):
		return nil, errors.New("want exactly one of event and line")
	case spec.Line != "":
		r.pattern, err = compilePattern(spec.Line)
	default:
		r.event, err = compileCondition(spec.Event)
	}
	addLiterals(&r.literals, spec.Literals)
	err = errors.Join(err, checkLiterals(spec.Literals, spec.Line != ""))
	if err == nil && !gone {
		err = r.compileID(spec)
	}
	if err != nil {
		return nil, err
	}
	return r, r.checkExamples(spec.Examples)
}

// compileID sets the path of the id in an event, or its group in a pattern.
func (r *sessionRule) compileID(spec SessionID) (err error) {
	if r.pattern == nil {
		if r.path, err = parsePath(spec.Path); err != nil {
			err = fmt.Errorf("path: %w", err)
		}
		return err
	}
	r.group = r.pattern.SubexpIndex(idGroup)
	switch {
	case spec.Path != "":
		return errors.New("path: only allowed for an event: in a line, use the group id, as in (?P<id>[0-9a-f-]+)")
	case r.group < 0:
		return errors.New("line: the group id is missing, as in (?P<id>[0-9a-f-]+)")
	}
	return nil
}

// checkExamples returns an error for examples that the rule does not match.
func (r *sessionRule) checkExamples(examples []string) error {
	for i, example := range examples {
		d := New(&Pack{session: []*sessionRule{r}}, Options{})
		_, _ = d.Stream().Write([]byte(example + "\n")) // never fails
		if d.session.id == "" && !d.SessionGone() {
			return fmt.Errorf("examples[%d]: the rule does not match %q", i, textfmt.TruncateWithin(example, maxShown, "..."))
		}
	}
	return nil
}

// StatesSessionID reports whether the pack knows where the program prints its session id.
func (p *Pack) StatesSessionID() bool {
	return slices.ContainsFunc(p.session, func(r *sessionRule) bool { return !r.gone })
}

// readLine looks for session messages in a line of text. above is the number of lines above it; said
// means that the text comes from an event.
func (s *sessionReader) readLine(line []byte, above int, said bool) {
	if len(s.rules) == 0 {
		return
	}
	s.lower = appendLower(s.lower[:0], line)
	for _, r := range s.rules {
		switch {
		case r.pattern == nil || !hasAny(s.lower, r.literals):
		case !r.gone && (s.id != "" || said): // events have their own rules for the id
		default:
			if m := r.pattern.FindSubmatch(line); m != nil {
				s.found(r, string(m[r.group]), above)
			}
		}
	}
}

// readEvent looks for session messages in an event. above is the number of lines above it.
func (s *sessionReader) readEvent(line []byte, above int) {
	var events []any
	for _, r := range s.rules {
		if r.pattern != nil || !r.gone && s.id != "" || !hasAny(line, r.literals) {
			continue
		}
		if events == nil {
			events = decode(line)
		}
		for _, event := range events {
			if r.event.fails(event) == "" {
				s.found(r, r.idInEvent(event), above)
			}
		}
	}
}

// appendLower appends the text with ASCII letters in lower case.
func appendLower(to, text []byte) []byte {
	for _, c := range text {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		to = append(to, c)
	}
	return to
}

func hasAny(line []byte, literals [][]byte) bool {
	return slices.ContainsFunc(literals, func(l []byte) bool { return bytes.Contains(line, l) })
}

// idInEvent returns the id in an event that the rule matches; "" if there is none.
func (r *sessionRule) idInEvent(event any) (id string) {
	r.path.visit(event, func(v any) bool {
		id, _ = scalar(v)
		return id == ""
	})
	return id
}

// found records a match of the rule: the id, or that the session does not exist. above is the
// number of lines above the matching line.
func (s *sessionReader) found(r *sessionRule, id string, above int) {
	switch id = strings.TrimSpace(id); {
	case r.gone:
		s.goneAt = above + 1 // the count of the current line
	case s.id == "" && above < maxIDLine && plausibleID.MatchString(id):
		s.id = id
		if s.onID != nil {
			s.onID(id)
		}
	}
}
