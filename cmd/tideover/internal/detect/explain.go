package detect

import (
	"cmp"
	"slices"
	"strings"
)

// Finding is a line that has words of a rule, and what became of it.
type Finding struct {
	Number  int    `json:"number"` // of the line, from 1
	Line    string `json:"line"`
	Pack    string `json:"pack,omitempty"`
	Rule    string `json:"rule"`
	Matched bool   `json:"matched"` // and not only nearly
	Verdict string `json:"verdict"`
}

// Explain is [Detector.Stop] with the lines that were considered, of which it
// remembers the last 500. It needs [Options.Explain].
func (d *Detector) Explain(code int, signaled bool) (Stop, []Finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	stop, list := d.judge(code, signaled)
	var out []Finding
	events, texts := map[int]bool{}, map[int]bool{} // by number and by count: a list of events is one line, a message may be several
	for _, m := range list {
		if m.rule.trust == ByEvent {
			events[m.number] = true
		}
		for count := m.count; count <= m.end && m.rule.trust != ByEvent; count++ {
			texts[count] = true
		}
		out = append(out, Finding{m.number, m.line, m.rule.pack, m.rule.ID, true, m.verdict})
	}
	for _, e := range d.traced {
		if e.event && !events[e.number] || !e.event && !texts[e.count] {
			out = append(out, d.almost(e))
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return cmp.Compare(a.Number, b.Number) })
	return stop, out
}

// almost says why a line that has words of rules matches none of them.
func (d *Detector) almost(e entry) Finding {
	f := Finding{Number: e.number, Line: shown(e.text), Verdict: e.note}
	if e.event {
		return f
	}
	var ids []string
	lower := strings.ToLower(string(e.text))
	for _, r := range d.pack.lines {
		if r.hints(lower) {
			ids = append(ids, r.ID)
			f.Pack = cmp.Or(f.Pack, r.pack)
		}
	}
	f.Rule = strings.Join(ids, ", ")
	f.Verdict = "decoy: has its words, but not in the place of a message"
	if d.count-e.count >= d.options.Lines {
		f.Verdict += "; and outside of the last lines"
	}
	return f
}

// traceText remembers a line of text that has words of a rule.
func (d *Detector) traceText(e entry) {
	lower := strings.ToLower(string(e.text))
	if slices.ContainsFunc(d.pack.lines, func(r *rule) bool { return r.hints(lower) }) {
		d.trace(e)
	}
}

// hints reports whether the words of the line are worth an explanation. Those of
// ordinary work are not.
func (r *rule) hints(lower string) bool { return !r.MovedOn && r.near(lower) }

// trace remembers a line.
func (d *Detector) trace(e entry) {
	e.text = slices.Clone(e.text)
	if len(d.traced) == maxTraced {
		d.traced = append(d.traced[:0], d.traced[1:]...)
	}
	d.traced = append(d.traced, e)
}

// traceEvent remembers an event that has words of a rule, and why it does not
// match the first such rule. Of a list of events it is the first.
func (d *Detector) traceEvent(event any, e entry) {
	if n := len(d.traced); n > 0 && d.traced[n-1].event && d.traced[n-1].number == e.number {
		return
	}
	for _, alive := range []bool{false, true} { // what stops it is of more interest
		for _, r := range d.pack.events {
			if r.Alive == alive && r.hints(string(e.text)) {
				e.note = "not the event of " + r.ID + ": " + r.event.fails(event)
				d.trace(e)
				return
			}
		}
	}
}
