package detect

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// Stop is why a command stopped.
type Stop struct {
	Reason   Reason    `json:"reason"`
	Terminal bool      `json:"terminal"`          // no wait helps
	Until    time.Time `json:"until,omitzero"`    // when it may go on; zero means that it is not stated
	Stated   string    `json:"stated,omitempty"`  // the words that Until was read from
	As       string    `json:"as,omitempty"`      // the form they were taken for; rule and rule-time mean that the rule says it
	Note     string    `json:"note,omitempty"`    // what else there is to say, such as why a time was not used
	Trust    Trust     `json:"trust"`             // what it rests on
	Pack     string    `json:"pack"`              // of the rule; with no rule, the one that was used
	Rule     string    `json:"rule,omitempty"`    // "" if the exit code decided
	Line     string    `json:"line,omitempty"`    // the line that matched, normalised and cut
	Number   int       `json:"number,omitempty"`  // of the line, from 1
	Meaning  string    `json:"meaning,omitempty"` // of the exit code

	fallback bool // the rule decides if no other does
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
	slices.SortFunc(list, func(a, b match) int { return cmp.Compare(a.order, b.order) })
	byExit := d.exit(code, signaled)
	alive := d.void(list, byExit.Reason == Completed && !saysFailed(list))
	best, fallback := choose(list)
	switch {
	case best >= 0:
		return d.verdict(list, best), list
	case alive >= 0 && gaveUp(list[alive], d.count, byExit.Reason):
		return d.givenUp(list, alive, byExit), list
	case fallback >= 0 && (byExit.Reason == Completed || byExit.Reason == Crashed || byExit.Reason == Unknown):
		return d.verdict(list, fallback), list
	default:
		return byExit, list
	}
}

// saysFailed reports whether the last event that says how the program fares says
// that it failed. Then an exit code of success means nothing.
func saysFailed(list []match) (failed bool) {
	for i := range list {
		switch m := &list[i]; {
		case m.isEvent() && m.rule.Fallback:
			failed = true
		case m.isEvent() && m.rule.Alive:
			failed = false
		}
	}
	return failed
}

// endLines ends the lines that are held, because the output has ended.
func (d *Detector) endLines() {
	for _, s := range d.streams {
		if len(s.partial) > 0 {
			s.end(cmp.Or(d.options.At, d.at, time.Now()))
		}
	}
}

// verdict is what a match says. If it states no time, the last one beside it that
// gives the same reason and does is asked: a message may have two lines.
func (d *Detector) verdict(list []match, best int) Stop {
	m := &list[best]
	got, from := m.reading, -1
	for i, other := range list {
		if i == best || other.verdict != "" {
			continue
		}
		list[i].verdict = "counts less than line " + strconv.Itoa(m.number)
		if m.reading.until.IsZero() && !m.rule.Terminal && !other.reading.until.IsZero() && other.rule.Reason == m.rule.Reason && beside(m, &other) {
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
		fallback: m.rule.Fallback,
	}
}
