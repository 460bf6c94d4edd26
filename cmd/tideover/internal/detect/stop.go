package detect

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Stop is why a command stopped.
type Stop struct {
	Reason   Reason    `json:"reason"`
	Terminal bool      `json:"terminal"`          // no wait helps
	Until    time.Time `json:"until,omitzero"`    // when it may go on; zero means that it is not stated
	Stated   string    `json:"stated,omitempty"`  // the words that Until was read from
	As       string    `json:"as,omitempty"`      // the form they were taken for; rule means that the rule says it
	Note     string    `json:"note,omitempty"`    // what else there is to say, such as why a time was not used
	Trust    Trust     `json:"trust"`             // what it rests on
	Pack     string    `json:"pack"`              // of the rule; with no rule, the one that was used
	Rule     string    `json:"rule,omitempty"`    // "" if the exit code decided
	Line     string    `json:"line,omitempty"`    // the line that matched, normalised and cut
	Number   int       `json:"number,omitempty"`  // of the line, from 1
	Meaning  string    `json:"meaning,omitempty"` // of the exit code
}

// match is a line that a rule matched.
type match struct {
	rule    *rule
	reading reading
	line    string
	number  int
	count   int
	verdict string // for an explanation
}

// Stop says why the command stopped, given how it ended: its exit code, which is
// negative if it is not known, or with signaled the number of the signal, with
// or without the 128 that a shell adds. What was written without a line end
// counts as a line. It may be asked again, and more may be written after.
func (d *Detector) Stop(code int, signaled bool) Stop {
	d.mu.Lock()
	defer d.mu.Unlock()
	stop, _ := d.judge(code, signaled)
	return stop
}

// judge decides, and returns the matches with what became of them.
func (d *Detector) judge(code int, signaled bool) (Stop, []match) {
	d.endLines()
	list := append(slices.Clone(d.events), d.matchLines()...)
	slices.SortStableFunc(list, func(a, b match) int { return cmp.Compare(a.count, b.count) })
	alive := d.void(list)
	byExit := d.exit(code, signaled)
	best := choose(list)
	switch {
	case best >= 0:
		return d.verdict(list, best), list
	case alive >= 0 && gaveUp(list[alive], d.count, byExit.Reason):
		return d.givenUp(list, alive, byExit), list
	default:
		return byExit, list
	}
}

// endLines ends the lines that are held, because the output has ended.
func (d *Detector) endLines() {
	for _, s := range d.streams {
		if len(s.partial) > 0 {
			s.end(cmp.Or(d.options.At, d.at, time.Now()))
		}
	}
}

// matchLines matches the text that counts, or all that was traced.
func (d *Detector) matchLines() (list []match) {
	candidates := d.traced
	if !d.options.Explain {
		candidates = d.last()
	}
	for _, e := range candidates {
		if e.event {
			continue
		}
		m := d.matchText(string(e.text), e)
		if m == nil {
			continue
		}
		// A program that fits its messages to the width of the screen may have
		// put the time on the next line.
		if m.reading.until.IsZero() && !m.rule.Terminal && !m.rule.Alive && len(e.next) > 0 {
			if both := d.matchText(string(e.text)+" "+string(e.next), e); both != nil && both.rule.Reason == m.rule.Reason && !both.reading.until.IsZero() {
				m.reading = both.reading
			}
		}
		list = append(list, *m)
	}
	return list
}

// matchText matches a text with the rules for lines, nil if none fits.
func (d *Detector) matchText(text string, e entry) *match {
	lower := strings.ToLower(text)
	for _, r := range d.pack.lines {
		if !r.near(lower) {
			continue
		}
		if got, ok := r.matchLine(text, e.at, d.options.Location); ok {
			return &match{rule: r, reading: got, line: shown(e.text), number: e.number, count: e.count}
		}
	}
	return nil
}

// void gives a verdict to every match that does not count, and returns the last
// sign of life, -1 if there is none.
func (d *Detector) void(list []match) (alive int) {
	alive = -1
	for i := range list {
		m := &list[i]
		switch older := d.count - m.count; {
		case m.rule.trust == ByEvent && older > d.options.Lines:
			m.verdict = "superseded: more than the last lines follow"
		case m.rule.trust != ByEvent && older >= d.options.Lines:
			m.verdict = "outside of the last lines"
		case m.rule.Alive:
			m.verdict, alive = "alive: the program goes on by itself", i
		}
	}
	for i := range max(alive, 0) {
		if m := &list[i]; m.verdict == "" && m.count < list[alive].count {
			m.verdict = "superseded: the program went on after it"
		}
	}
	return alive
}

// choose returns the match that counts most: the most trusted, then one that
// says never, then the last. It is -1 if none counts.
func choose(list []match) int {
	best := -1
	for i, m := range list {
		if m.verdict != "" {
			continue
		}
		if best < 0 || m.rule.trust > list[best].rule.trust ||
			m.rule.trust == list[best].rule.trust && (m.rule.Terminal || !list[best].rule.Terminal) {
			best = i
		}
	}
	return best
}

// verdict is what a match says. If it states no time, the last one that gives
// the same reason and does is asked: a message may have two lines.
func (d *Detector) verdict(list []match, best int) Stop {
	m := &list[best]
	got, from := m.reading, -1
	for i, other := range list {
		if i == best || other.verdict != "" {
			continue
		}
		list[i].verdict = "counts less than line " + strconv.Itoa(m.number)
		if m.reading.until.IsZero() && !m.rule.Terminal && !other.reading.until.IsZero() && other.rule.Reason == m.rule.Reason {
			got, from = other.reading, i
		}
	}
	if from >= 0 {
		list[from].verdict = "states the time for line " + strconv.Itoa(m.number)
	}
	m.verdict = "decides"
	if !got.until.IsZero() {
		got.until = got.until.In(d.options.Location)
	}
	return Stop{
		Reason: m.rule.Reason, Terminal: m.rule.Terminal, Until: got.until, Stated: got.stated, As: got.as, Note: got.note,
		Trust: m.rule.trust, Pack: m.rule.pack, Rule: m.rule.ID, Line: m.line, Number: m.number,
	}
}
