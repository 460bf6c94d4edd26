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
	text    string // what was matched
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

// joining is a match of lines that is being extended.
type joining struct {
	*lineMatcher
	kept  []entry
	i     int    // index of its first line
	best  *match // nil before the lines are known to be a message
	looks int    // lines below the first that its time has been read with
}

// matchAt matches the line at index i, together with continuation lines, which the program or the terminal may have broken
// between words or inside of a word.
func (l *lineMatcher) matchAt(kept []entry, i int) *match {
	m := &joining{lineMatcher: l, kept: kept, i: i, best: l.matchText(string(kept[i].text), kept[i], kept[max(0, i-maxAbove):i])}
	spaced, tight := string(kept[i].text), string(kept[i].text)
	for n := 1; m.continues(n) && n <= maxLines && len(spaced) < maxJoined; n++ {
		more := string(kept[i+n].text)
		spaced, tight = spaced+" "+more, tight+more
		if m.best != nil && m.best.timing.open(m.best.text) {
			l.completeTime(m.best, kept[i+n])
			m.looks = n
		} else if m.isWhole(n) || !m.extend(n, spaced, tight) {
			break
		}
	}
	if m.best == nil {
		return nil
	}
	m.dropCutTime()
	m.addAdvice()
	return m.best
}

// continues reports whether the line n below the first may be a continuation.
func (m *joining) continues(n int) bool {
	if m.i+n >= len(m.kept) {
		return false
	}
	e, first := &m.kept[m.i+n], &m.kept[m.i]
	return !e.event && e.said == first.said && (!e.said || e.number == first.number)
}

// isWhole reports whether no line from n on belongs to the message, whatever it says.
func (m *joining) isWhole(n int) bool {
	if m.best != nil {
		return m.best.grammar && (m.best.rule.Alive || m.best.reading.isSet())
	}
	before, more := m.kept[m.i+n-1].text, m.kept[m.i+n].text
	return n > m.wrapped || bytes.IndexByte([]byte(".!?:"), before[len(before)-1]) >= 0 || quotedForm.Match(more)
}

// extend adds the lines up to n below the first if they say more together. It returns false if line n is a message of its
// own.
func (m *joining) extend(n int, spaced, tight string) bool {
	first, e := m.kept[m.i], m.kept[m.i+n]
	above := m.kept[max(0, m.i-maxAbove):m.i]
	joined := agree(m.matchText(spaced, first, above), m.matchText(tight, first, above))
	if alone := m.matchText(string(e.text), e, m.kept[max(0, m.i+n-maxAbove):m.i+n]); alone != nil {
		if m.best == nil || joined == nil || !joined.reading.isSet() || len(findTimes(string(e.text), e.at, m.zone)) > 0 {
			return false
		}
	}
	if joined != nil && joined.completes(m.best) {
		joined.end, m.best = e.count, joined
	}
	return true
}

// addAdvice adds the lines below that only say what to do.
func (m *joining) addAdvice() {
	if !m.best.grammar || weak(m.best.class) {
		return
	}
	for n := 1 + m.best.end - m.best.count; m.continues(n); n++ {
		e := &m.kept[m.i+n]
		if !advice.Match(e.text) || len(findTimes(string(e.text), e.at, m.zone)) > 0 {
			return
		}
		m.best.end++
	}
}

// dropCutTime removes a time at the end of a line that has no end yet, or that may go on in a line that was not read.
func (m *joining) dropCutTime() {
	b := m.best
	n := max(b.end-b.count, m.looks)
	last := m.kept[m.i+n]
	atEnd := bytes.HasSuffix(last.text, []byte(b.reading.stated))
	if b.grammar {
		atEnd = b.timing.open(b.text)
	}
	if b.reading.isSet() && atEnd && (last.cut && b.reading.as != "epoch" || m.continues(n+1) && m.goesOn(n+1)) {
		b.reading = reading{note: "the time is not used, because it may not be complete"}
	}
}

// goesOn reports whether the time at the end of the message may go on in line n.
func (m *joining) goesOn(n int) bool {
	if m.best.grammar {
		return true
	}
	joined := m.matchText(m.best.text+string(m.kept[m.i+n].text), m.kept[m.i], nil)
	return joined != nil && joined.reading.isSet() && !joined.reading.until.Equal(m.best.reading.until)
}

// completes reports whether m, a match of several lines, replaces part, a match of fewer of these
// lines, because it says more. part may be nil.
func (m *match) completes(part *match) bool {
	switch {
	case part == nil:
		return m.own() || m.reading.isSet() && !m.grammar
	case part.rule.Terminal && !part.grammar, part.rule.Alive, part.rule.MovedOn, m.rule.Alive:
		return false
	case part.grammar && m.grammar && weak(part.class) && !weak(m.class):
		return true
	case !m.reading.isSet():
		return false
	case !part.reading.isSet():
		return m.rule.Reason == part.rule.Reason || part.class == spendClass || part.class == creditsClass
	default: // part of a time may parse as a time, too
		return m.rule == part.rule && strings.HasPrefix(m.reading.stated, part.reading.stated+" ")
	}
}

// completeTime reads the time at the end of a text again, together with the next line, which may be joined with a space or
// without one. The longer expression counts. If both are longer and differ, or there is none, no time is stated.
func (l *lineMatcher) completeTime(m *match, next entry) {
	spaced, tight := m.text+" "+string(next.text), m.text+string(next.text)
	a, b := timeAt(findTimes(spaced, next.at, l.zone), m.timing.start), timeAt(findTimes(tight, next.at, l.zone), m.timing.start)
	m.text = spaced
	switch {
	case b.isSet() && (!a.isSet() || a.until.Equal(m.timing.until) && b.end-b.start > a.end-a.start):
		a, m.text = b, tight
	case b.isSet() && !b.until.Equal(a.until) && !b.until.Equal(m.timing.until), !b.isSet() && b.end > m.timing.end:
		a = timing{reading: reading{note: "the time may be read in two ways"}}
	}
	if a.stated != m.timing.stated {
		m.end, m.line = next.count, shown([]byte(spaced))
	}
	if m.rule.Reason == RateLimit && !m.rule.Alive {
		m.reading = a.reading
	}
	m.timing = a
}

// timeAt returns the time that begins at an offset of a text.
func timeAt(list []timing, start int) timing {
	for _, t := range list {
		if t.start == start {
			return t
		}
	}
	return timing{}
}

// agree returns the match of lines that may be joined with a space or without one: the one that states a time. If they
// state different times, it states none.
func agree(spaced, tight *match) *match {
	switch {
	case spaced == nil:
		return tight
	case tight == nil, !tight.reading.isSet():
		return spaced
	case !spaced.reading.isSet():
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
				m.rule, m.reading, m.text = r, got, text
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
	m, env := readMeaning(text, e.said || e.mark, l.known)
	var t timing
	if m.class != noClass || m.alive || m.limit != "" || waitForm.MatchString(env.text) {
		t = statedTime(findTimes(text, e.at, l.zone))
	}
	if !l.classify(&m, env, text, t, e) {
		return false
	}
	to.rule, to.class, to.layers, to.text, to.timing = grammarRules()[m.alive][m.class], m.class, m.layers(env, t), text, t
	to.grammar, to.known, to.unsure, to.field, to.spoken = true, l.known, m.unsure, env.json, m.isSpoken(env, text)
	to.failing = l.known && m.class != noClass && (strings.TrimLeft(env.form, "0123456789 :·-") != "" || weak(m.class))
	if to.rule.Reason == RateLimit && !m.alive {
		to.reading = t.reading
	}
	return true
}

// classify sets the class of a text by its time and its envelope, and reports whether it is a message.
func (l *lineMatcher) classify(m *meaning, env envelope, text string, t timing, e entry) bool {
	switch announces := env.form == "" && strings.HasSuffix(text, ":"); {
	case weak(m.class) && !e.said && (!l.known || announces): // any program says it, or a quotation follows
		return false
	case m.class == noClass && m.why == "" && !m.alive:
		l.guess(m, env, text, t, e)
	case t.isEnd() && !m.alive && slices.Contains([]class{spendClass, creditsClass, throttledClass}, m.class):
		m.class = limitClass // time brings it back
	}
	if t.isEnd() || stops[m.class].Reason == Terminal {
		m.alive = false // the end of the limit counts, or no retry helps
	}
	return m.class != noClass || m.alive
}

// guess sets the class of a text without a predicate: it says only when to try again, or it is an error. It leaves the class
// if it is no message.
func (l *lineMatcher) guess(m *meaning, env envelope, text string, t timing, e entry) {
	isError := l.known && !m.prose && (env.form != "" || e.said || e.mark)
	switch {
	case l.known && m.limit != "" && t.isEnd() && choices.MatchString(text[t.end:]):
		m.class, m.subject, m.certain = limitClass, m.limit, true
	case t.stated != "" && waitForm.MatchString(env.text):
		m.class, m.own = waitClass, strings.Contains(strings.ToLower(text), "please")
	case isError && m.limit != "":
		m.class, m.subject, m.unsure = limitClass, m.limit, true
	case isError:
		m.class, m.unsure = failureClass, true
	}
}

// isSpoken reports whether an assistant says it, and not any program.
func (m *meaning) isSpoken(env envelope, text string) bool {
	if !m.certain || weak(m.class) {
		return m.class == waitClass && m.own
	}
	return !m.bare || m.own || env.status == "529" || spokenForm.MatchString(text)
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
