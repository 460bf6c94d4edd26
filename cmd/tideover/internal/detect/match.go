package detect

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// match is an event, a line, or several lines of one message that a rule or the grammar matches.
type match struct {
	rule    *rule
	reading reading
	line    string
	number  int
	count   int // lineRing.count of its first line
	end     int // lineRing.count of its last line
	order   int
	said    bool   // the text comes from an event
	verdict string // why the match counts or not; "" means that it counts so far

	// Of the grammar.
	grammar bool // it matches, and no rule of a pack
	spoken  bool // the words are those of an assistant, and not of any program
	known   bool // the program is known to be an assistant
	failing bool // the program retries, and the text reports an error
	unsure  bool // the text is not understood, but it is an error
	field   bool // it is a field of an object, which is indented like code
	class   class
	layers  string // what the layers found
	text    string // what it has read
	timing  timing // the time in it
}

// own reports whether the message is specific to the program. A rule of the pack generic may match
// the output of any tool that the program ran, unless the text comes from an event.
func (m *match) own() bool { return m.said || m.rule.pack != "generic" || m.spoken || m.known }

// lineMatcher matches lines of text with the rules of a pack and with the grammar.
type lineMatcher struct {
	rules   []*rule
	zone    *time.Location // for times without a zone
	wrapped int            // greatest number of lines that continue the first before it is known to be a message
	known   bool           // the program is known to be an assistant
}

const (
	maxJoined = 4 * maxKept // bytes of the lines of a message
	maxLines  = 8           // lines of a message
)

// matchLines matches the last lines. traced are recorded lines above them, which it matches for an
// explanation.
func (l *lineMatcher) matchLines(lines *lineRing, traced []entry) (list []match) {
	for _, e := range traced {
		if older := lines.count - e.count; older >= lines.limit && !e.event {
			if m := l.matchText(string(e.text), e, nil); m != nil {
				list = append(list, *m)
			}
		}
	}
	kept, i := lines.kept()
	for ; i < len(kept); i++ {
		match := l.matchAt
		if kept[i].event {
			match = l.matchEventAt
		}
		if m := match(kept, i); m != nil {
			list = append(list, *m)
			i += m.end - m.count
		}
	}
	return list
}

// matchAt matches the line at index i, together with continuation lines, which the program or the terminal may have broken
// between words or inside of a word.
func (l *lineMatcher) matchAt(kept []entry, i int) *match {
	e, above := kept[i], kept[max(0, i-maxAbove):i]
	best := l.matchText(string(e.text), e, above)
	spaced, tight := string(e.text), string(e.text)
	for n := 1; n <= maxLines && i+n < len(kept) && kept[i+n].continues(e) && len(spaced) < maxJoined; n++ {
		before, more := kept[i+n-1].text, string(kept[i+n].text)
		spaced, tight = spaced+" "+more, tight+more
		if best != nil && best.timing.open(best.text) {
			l.completeTime(best, kept[i+n])
			continue
		}
		sentenceEnds := bytes.IndexByte([]byte(".!?:"), before[len(before)-1]) >= 0
		if best == nil && (n > l.wrapped || sentenceEnds || quotedForm.MatchString(more)) || best != nil && best.grammar && (best.rule.Alive || !best.reading.until.IsZero()) {
			break
		}
		m := agree(l.matchText(spaced, e, above), l.matchText(tight, e, above))
		alone := l.matchText(more, kept[i+n], kept[max(0, i+n-maxAbove):i+n]) // a message of its own
		if alone != nil && (best == nil || m == nil || m.reading.until.IsZero() || len(findTimes(more, e.at, l.zone)) > 0) {
			break
		}
		if m != nil && m.completes(best) {
			m.end, best = kept[i+n].count, m
		}
	}
	if best == nil {
		return nil
	}
	for n := i + 1 + best.end - best.count; best.grammar && !weak(best.class) && n < len(kept) && kept[n].continues(e); n++ { // what follows only says what to do
		if !advice.Match(kept[n].text) || len(findTimes(string(kept[n].text), e.at, l.zone)) > 0 {
			break
		}
		best.end++
	}
	last := kept[i+best.end-best.count]
	atEnd := best.grammar && best.reading.as != "epoch" && best.timing.open(best.text) || !best.grammar && bytes.HasSuffix(last.text, []byte(best.reading.stated))
	if last.cut && atEnd && !best.reading.until.IsZero() {
		best.reading = reading{note: "the time is not used, because the line has no end"}
	}
	return best
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
		return m.own() || stated && !m.grammar
	case part.rule.Terminal && !part.grammar, part.rule.Alive, part.rule.MovedOn, m.rule.Alive:
		return false
	case part.grammar && m.grammar && weak(part.class) && !weak(m.class):
		return true
	case part.reading.until.IsZero():
		return stated && (m.rule.Reason == part.rule.Reason || part.class == spendClass || part.class == creditsClass)
	default: // part of a time may parse as a time, too
		return stated && m.rule == part.rule && strings.HasPrefix(m.reading.stated, part.reading.stated+" ")
	}
}

// completeTime reads the time at the end of a text again, together with the next line, which may be joined with a space or
// without one. The longer expression counts. If both are longer and differ, or there is none, no time is stated.
func (l *lineMatcher) completeTime(m *match, next entry) {
	var found timing
	spaced := m.text + " " + string(next.text)
	for _, text := range []string{spaced, m.text + string(next.text)} {
		for _, t := range findTimes(text, next.at, l.zone) {
			longer := t.until.IsZero() && t.end > m.timing.end
			differ := longer || !found.until.IsZero() && !t.until.Equal(found.until)
			switch {
			case t.start != m.timing.start || t.until.IsZero() && !longer:
			case longer, differ && !found.until.Equal(m.timing.until) && !t.until.Equal(m.timing.until):
				m.reading, m.timing = reading{note: "the time may be read in two ways: " + found.stated + ", " + t.stated}, timing{}
				return
			case found.until.IsZero(), differ && found.until.Equal(m.timing.until), !differ && t.end-t.start > found.end-found.start:
				found, m.text = t, text
			}
		}
	}
	if found.stated != m.timing.stated {
		m.end, m.line = next.count, shown([]byte(spaced))
	}
	if m.rule.Reason == RateLimit && !m.rule.Alive {
		m.reading = found.reading
	}
	m.timing = found
}

// agree returns the match of lines that may be joined with a space or without one: the one that states a time. If they
// state different times, it states none.
func agree(spaced, tight *match) *match {
	switch {
	case spaced == nil:
		return tight
	case tight == nil, tight.reading.until.IsZero():
		return spaced
	case spaced.reading.until.IsZero():
		return tight
	case !spaced.reading.until.Equal(tight.reading.until):
		spaced.reading, spaced.timing = reading{note: "the time may be read in two ways"}, timing{}
	}
	return spaced
}

// matchText matches a text with the rules for lines, and then with the grammar; nil if none matches. above has the lines
// above it, in which a rule may require a context; nil turns that requirement off.
func (l *lineMatcher) matchText(text string, e entry, above []entry) *match {
	m := &match{line: shown([]byte(text)), number: e.number, count: e.count, end: e.count, order: e.order, said: e.said}
	lower := strings.ToLower(text)
	for _, r := range l.rules {
		if r.near(lower) && r.inContext(e, above) {
			if got, ok := r.matchLine(text, e.at, l.zone); ok {
				m.rule, m.reading = r, got
				return m
			}
		}
	}
	if l.readText(m, text, e) {
		return m
	}
	return nil
}

var (
	// spokenForm matches names of errors that only assistants print.
	spokenForm = lazyregexp.New(`(?i)\bapi error\b|\blitellm\.`)
	// waitForm matches the beginning of a text that only says when to try again.
	waitForm = lazyregexp.New(`(?i)^(?:please |sorry, )?(?:try again|retry)\b`)
	// choices matches what follows the end of a limit if the limit is reached: what the user may do now.
	choices = lazyregexp.New(`^ ?· (?:contact|upgrade|switch|wait|to |/[a-z])`)
)

// readText reads a text with the grammar, and reports whether it is a message.
func (l *lineMatcher) readText(to *match, text string, e entry) bool {
	isError := e.said || e.mark
	m, env := readMeaning(text, isError, l.known)
	var t timing
	if m.class != noClass || m.alive || m.limit != "" || waitForm.MatchString(env.text) {
		t = statedTime(findTimes(text, e.at, l.zone))
	}
	ends := t.ofEnd && !t.until.IsZero()
	switch {
	case (m.class == spendClass || m.class == creditsClass) && ends, m.class == throttledClass && ends && !m.alive:
		m.class = limitClass
	case weak(m.class) && !e.said && env.form == "" && strings.HasSuffix(text, ":"): // it announces a quotation
		return false
	case m.class != noClass, m.alive && m.why == "":
	case m.limit != "" && m.why == "" && l.known && ends && choices.MatchString(text[t.end:]):
		m.class, m.subject, m.certain = limitClass, m.limit, true
	case t.stated != "" && waitForm.MatchString(env.text) && m.why == "":
		m.class, m.own = waitClass, strings.Contains(strings.ToLower(text), "please")
	case l.known && m.why == "" && !m.prose && (env.form != "" || isError):
		m.class, m.unsure = failureClass, true
		if m.limit != "" {
			m.class, m.subject = limitClass, m.limit
		}
	default:
		return false
	}
	if !l.known && !e.said && weak(m.class) && m.class != waitClass {
		return false
	}
	m.alive = m.alive && !ends && stops[m.class].Reason != Terminal // no retry helps, or the end of the limit counts
	to.rule, to.class, to.layers, to.text, to.timing = grammarRules()[m.alive][m.class], m.class, m.layers(env, t), text, t
	to.grammar, to.known, to.unsure, to.field = true, l.known, m.unsure, env.json
	to.failing = l.known && m.class != noClass && (strings.TrimLeft(env.form, "0123456789 :·-") != "" || weak(m.class))
	to.spoken = m.certain && !weak(m.class) && (!m.bare || m.own || env.status == "529" || spokenForm.MatchString(text)) || m.class == waitClass && m.own
	if to.rule.Reason == RateLimit && !m.alive {
		to.reading = t.reading
	}
	return true
}

// matchEventAt reads an event that reports an error, of an assistant without a rule for it.
func (l *lineMatcher) matchEventAt(kept []entry, i int) *match {
	e := kept[i]
	if !l.known || i+1 < len(kept) && kept[i+1].said && kept[i+1].number == e.number { // the pack knows its text
		return nil
	}
	text := eventText(e.text)
	if text == "" {
		return nil
	}
	e.said = true
	m := &match{line: shown([]byte(text)), number: e.number, count: e.count, end: e.count, order: e.order, said: true}
	if !l.readText(m, text, e) { // the words of prose do not change that it is an error
		m.rule, m.grammar, m.known = grammarRules()[false][failureClass], true, true
	}
	return m
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
