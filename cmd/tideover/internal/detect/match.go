package detect

import (
	"slices"
	"strings"
	"time"
)

// match is an event, a line, or several lines of one message that a rule matches.
type match struct {
	rule    *rule
	reading reading
	line    string
	number  int
	count   int // lineRing.count of its first line
	end     int // lineRing.count of its last line
	order   int
	said    bool // the text comes from an event
	grammar bool // the grammar matches it, and no rule of a pack
	spoken  bool // the words are those of an assistant, and not of any program
	known   bool // the program is known to be an assistant
	class   class
	unsure  bool   // the text is not understood, but it is an error
	field   bool   // it is a field of an object, which is indented like code
	layers  string // what the layers of the grammar found
	text    string // what the grammar has read
	timing  timing
	cut     bool   // the line has no end yet
	verdict string // why the match counts or not; "" means that it counts so far
}

// own reports whether the message is specific to the program. A rule of the pack generic may match
// the output of any tool that the program ran, unless the text comes from an event.
func (m *match) own() bool { return m.said || m.rule.pack != "generic" || m.spoken || m.known }

// lineMatcher matches lines of text with the rules of a pack.
type lineMatcher struct {
	rules   []*rule
	zone    *time.Location // for times without a zone
	wrapped int            // greatest number of continuation lines of a message
	known   bool           // the program is known to be an assistant
}

// matchLines matches the last lines. traced are recorded lines above them, which it matches for an
// explanation.
func (l *lineMatcher) matchLines(lines *lineRing, traced []entry) (list []match) {
	for _, e := range traced {
		if older := lines.count - e.count; older >= lines.limit && !e.event {
			m := l.matchText(string(e.text), e, nil)
			if m == nil {
				m = l.readText(string(e.text), e)
			}
			if m != nil {
				list = append(list, *m)
			}
		}
	}
	kept, i := lines.kept()
	for ; i < len(kept); i++ {
		if m := l.matchAt(kept, i); m != nil {
			list = append(list, *m)
			i += m.end - m.count
		}
	}
	return list
}

// matchAt matches the line at index i, together with continuation lines: a program that fits its
// messages to the screen width breaks them anywhere. The rules of the pack come before the grammar.
func (l *lineMatcher) matchAt(kept []entry, i int) *match {
	if kept[i].event {
		return l.readEvent(kept, i)
	}
	if m := l.matchRules(kept, i); m != nil {
		return m
	}
	return l.matchGrammar(kept, i)
}

// matchRules matches the line at index i with the rules of the pack.
func (l *lineMatcher) matchRules(kept []entry, i int) *match {
	e, text := kept[i], string(kept[i].text)
	above := kept[max(0, i-maxAbove):i]
	best := l.matchText(text, e, above)
	for n := 1; n <= l.wrapped && i+n < len(kept) && kept[i+n].continues(e); n++ {
		text += " " + string(kept[i+n].text)
		m := l.matchText(text, e, above)
		if m == nil || !m.completes(best) {
			continue
		}
		if best == nil && l.matchOneOf(kept, i+1, i+n) {
			break // a later line matches alone, so it is a message of its own
		}
		m.end = kept[i+n].count
		best = m
	}
	return best
}

// matchOneOf reports whether one of the lines from index first to last matches on its own.
func (l *lineMatcher) matchOneOf(kept []entry, first, last int) bool {
	for i := first; i <= last; i++ {
		text := string(kept[i].text)
		if l.matchText(text, kept[i], kept[max(0, i-maxAbove):i]) != nil || l.readText(text, kept[i]) != nil {
			return true
		}
	}
	return false
}

// continues reports whether the line may be a continuation of first.
func (e *entry) continues(first entry) bool {
	return !e.event && e.said == first.said && (!e.said || e.number == first.number)
}

// completes reports whether m, a match of several lines, replaces part, a match of fewer of these
// lines, because it says more. part may be nil.
func (m *match) completes(part *match) bool {
	stated := !m.reading.until.IsZero()
	switch {
	case part == nil:
		return stated || m.own()
	case part.rule.Terminal, part.rule.Alive, part.rule.MovedOn:
		return false
	case part.reading.until.IsZero():
		return stated && m.rule.Reason == part.rule.Reason
	default: // part of a time may parse as a time, too
		return stated && m.rule == part.rule && strings.HasPrefix(m.reading.stated, part.reading.stated+" ")
	}
}

// matchText matches a text with the rules for lines; nil if none matches. above has the lines above
// it, in which a rule may require a context; nil turns that requirement off.
func (l *lineMatcher) matchText(text string, e entry, above []entry) *match {
	lower := strings.ToLower(text)
	for _, r := range l.rules {
		if !r.near(lower) || !r.inContext(e, above) {
			continue
		}
		if got, ok := r.matchLine(text, e.at, l.zone); ok {
			return &match{
				rule: r, reading: got, line: shown([]byte(text)), number: e.number,
				count: e.count, end: e.count, order: e.order, said: e.said,
			}
		}
	}
	return nil
}

// inContext reports whether the line or one of those above it contains the context of the rule. It
// returns true if the rule has no context, or if above is nil.
func (r *rule) inContext(e entry, above []entry) bool {
	has := func(e entry) bool { return containsAny(strings.ToLower(string(e.text)), r.Context) }
	return len(r.Context) == 0 || above == nil || has(e) || slices.ContainsFunc(above, has)
}

// near reports whether the line, in lower case, contains a literal of the rule.
func (r *rule) near(lower string) bool { return containsAny(lower, r.Literals) }

func containsAny(text string, list []string) bool {
	return slices.ContainsFunc(list, func(part string) bool { return strings.Contains(text, part) })
}

// matchLine reports whether the rule matches a line that contains one of its literals, and returns
// the time in the line.
func (r *rule) matchLine(line string, at time.Time, zone *time.Location) (reading, bool) {
	m := r.pattern.FindStringSubmatch(line)
	if m == nil {
		return reading{}, false
	}
	var got reading
	for i, as := range r.groups {
		if as != "" && m[i] != "" && got.until.IsZero() {
			got = read(m[i], as, at, zone)
		}
	}
	return r.orWait(got, at), true
}

// matchEvent reports whether the rule matches an event, and returns the time in the event.
func (r *rule) matchEvent(event any, at time.Time, zone *time.Location) (reading, bool) {
	if r.event.fails(event) != "" {
		return reading{}, false
	}
	var got reading
	for _, f := range r.until {
		f.path.visit(event, func(v any) bool {
			if text, ok := scalar(v); ok {
				got = read(text, f.as, at, zone)
			}
			return got.until.IsZero()
		})
		if !got.until.IsZero() {
			break
		}
	}
	return r.orWait(got, at), true
}

// orWait returns the stated time, or else the time that the rule itself sets. It returns no time if
// there is nothing to wait for.
func (r *rule) orWait(got reading, at time.Time) reading {
	if got.until.IsZero() && r.wait > 0 {
		got.until, got.stated, got.as = at.Add(r.wait), r.For, asRule
	}
	if got.until.IsZero() && r.at != nil {
		got.until, got.stated, got.as = r.at.next(at), r.At, asRuleTime
	}
	if r.Terminal || r.Alive || r.MovedOn {
		got = reading{}
	}
	return got
}
