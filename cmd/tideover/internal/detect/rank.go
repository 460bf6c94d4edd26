package detect

// together is within how many lines matches are taken for one story, in which
// the weightier counts. Beyond it a later one is news.
const together = 5

func beside(a, b *match) bool { return max(a.count-b.end, b.count-a.end) <= together }

// void gives a verdict to every match that does not count, and returns the last
// line that says that the program is retrying, or event that says that it goes
// on; -1 if there is none.
func (d *Detector) void(list []match, done bool) (alive int) {
	alive = -1
	for i := range list {
		m := &list[i]
		m.verdict = d.outdated(m, list, done)
		switch {
		case m.verdict != "":
			continue
		case m.rule.Alive:
			m.verdict, alive = "alive: the program goes on by itself", i
		case m.rule.MovedOn:
			m.verdict, alive = "moved on: the program did something else", -1
		default:
			continue
		}
		for j := range list[:i] {
			if before := &list[j]; before.verdict == "" && d.voids(m, before, done) {
				before.verdict = "superseded: the program went on after it"
			}
		}
	}
	return alive
}

// outdated says why a match is too far up to count, "" if it is not. The less is
// known about who said it, the nearer to the end it has to be; and with done, the
// exit code of success, it has to be the program's own last word.
func (d *Detector) outdated(m *match, list []match, done bool) string {
	older := d.count - m.end
	switch {
	case m.rule.trust == ByEvent && older > d.options.Lines:
		return "superseded: more than the last lines follow"
	case m.rule.trust == ByEvent:
		return ""
	case older >= d.options.Lines:
		return "outside of the last lines"
	case m.rule.Alive, m.rule.MovedOn, m.said:
		return ""
	case done && !m.own():
		return "not believed: the exit code says that all is well"
	case done && older >= lastOfDone:
		return "not believed: the exit code says that all is well, and more lines follow"
	case done && d.quoted(m, list):
		return "not believed: the exit code says that all is well, and it stands in prose or in code"
	case d.foreign && older >= lastWords:
		return "too far up for what another program may say"
	case d.foreign && d.quoted(m, list):
		return "not believed: it stands in prose or in code"
	case !m.own() && older >= lastGeneric:
		return "too far up for what any program may say"
	default:
		return ""
	}
}

// voids reports whether a sign of going on takes back what was said before it.
func (d *Detector) voids(sign, before *match, done bool) bool {
	event := before.rule.trust == ByEvent
	switch {
	case sign.rule.trust == ByEvent:
		return sign.rule.Alive || event || before.said
	case event:
		return false
	case sign.rule.MovedOn:
		return !before.own() || done || d.foreign
	default:
		// Anything that the program ran may say that it is retrying. If it
		// does not say what, it does not take back when a limit ends, unless
		// the program is seen to go on.
		return sign.rule.Reason != Unknown || !before.own() || before.reading.until.IsZero() || d.count-sign.end > lastWords
	}
}

// choose returns the match that decides, -1 if none counts: the last, or one
// beside it that weighs more. An event always does. fallback is the last match of a
// rule that decides if no other does.
func choose(list []match) (best, fallback int) {
	last := -1
	fallback = -1
	for i := range list {
		switch {
		case list[i].verdict != "":
		case list[i].rule.Fallback:
			if fallback < 0 || list[i].isEvent() || !list[fallback].isEvent() {
				fallback = i
			}
		case last < 0 || list[i].isEvent() || !list[last].isEvent():
			last = i
		}
	}
	best = last
	for i := last - 1; i >= 0; i-- {
		m := &list[i]
		if m.verdict == "" && !m.rule.Fallback && m.isEvent() == list[last].isEvent() && beside(m, &list[last]) && m.weight() > list[best].weight() {
			best = i
		}
	}
	return best, fallback
}

func (m *match) isEvent() bool { return m.rule.trust == ByEvent }

// weight orders matches that stand beside each other: what the program is known
// to say, then what any may say; of the one, never before until; of the other,
// the answer of a server before a line.
func (m *match) weight() int {
	switch own := m.own(); {
	case own && m.rule.Terminal:
		return 4
	case own:
		return 3
	case m.rule.trust == ByHeader:
		return 2
	case m.rule.Terminal:
		return 1
	default:
		return 0
	}
}
