package detect

import (
	"cmp"
	"slices"
	"strings"
)

// Finding is a line that contains one of the literals of a rule, and the verdict on that line.
type Finding struct {
	Number  int    `json:"number"` // of the line, from 1
	Line    string `json:"line"`
	Pack    string `json:"pack,omitempty"`
	Rule    string `json:"rule"`
	Matched bool   `json:"matched"`          // the rule matched; false if only a literal did
	Layers  string `json:"layers,omitempty"` // what the layers of the grammar found
	Verdict string `json:"verdict"`
}

// Explain is [Detector.Stop] with the lines that were considered, at most the last 500. It needs
// [Options.Explain].
func (d *Detector) Explain(code int) (Stop, []Finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	stop, list := d.decide(code)
	var out []Finding
	events, texts := map[int]bool{}, map[int]bool{} // lines with matches: events by number, because a line may have several; texts by count, because a message may have several lines
	for _, m := range list {
		if m.rule.trust == ByEvent {
			events[m.number] = true
		}
		for count := m.count; count <= m.end && m.rule.trust != ByEvent; count++ {
			texts[count] = true
		}
		out = append(out, Finding{m.number, m.line, m.rule.pack, m.rule.ID, true, m.layers, m.verdict})
	}
	for _, e := range d.traced {
		if e.event && !events[e.number] || !e.event && !texts[e.count] {
			out = append(out, d.almost(e))
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return cmp.Compare(a.Number, b.Number) })
	return stop, out
}

// almost says why a line that contains literals of rules matches none of them.
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
	m, env := readMeaning(string(e.text), e.said || e.mark, d.matcher.known)
	f.Rule, f.Layers = strings.Join(ids, ", "), m.layers(env, timing{})
	f.Verdict = "decoy: contains words of a rule, but is not its message"
	if m.why != "" {
		f.Verdict = "decoy: " + m.why
	}
	if d.lines.count-e.count >= d.lines.limit {
		f.Verdict += "; also outside of the last lines"
	}
	return f
}

// trace records the last lines that contain a literal of a rule.
type trace []entry

// addText records a line of text that contains a literal of a rule.
func (t *trace) addText(e entry, rules []*rule) {
	lower := strings.ToLower(string(e.text))
	m, _ := readMeaning(string(e.text), e.said || e.mark, true)
	if m.class != noClass || m.why != "" || slices.ContainsFunc(rules, func(r *rule) bool { return r.hints(lower) }) {
		t.add(e)
	}
}

// hints reports whether the explanation should mention the rule for a line, which is in lower case:
// the line contains a literal of the rule, and the rule is not a sign of progress.
func (r *rule) hints(lower string) bool { return !r.MovedOn && r.near(lower) }

// add records a line.
func (t *trace) add(e entry) {
	e.text = slices.Clone(e.text)
	*t = append(*t, e)
	*t = (*t)[max(0, len(*t)-maxTraced):]
}

// addEvent records an event that contains a literal of a rule, and why the event does not match
// the first such rule; rules for stops come first. If a line is a list of events, only the first
// event with such a rule is recorded.
func (t *trace) addEvent(event any, e entry, rules []*rule) {
	if n := len(*t); n > 0 && (*t)[n-1].event && (*t)[n-1].number == e.number {
		return
	}
	for _, alive := range []bool{false, true} { // rules for stops first
		for _, r := range rules {
			if r.Alive == alive && r.hints(string(e.text)) {
				e.note = "not the event of " + r.ID + ": " + r.event.fails(event)
				t.add(e)
				return
			}
		}
	}
}
