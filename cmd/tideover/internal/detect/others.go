package detect

import (
	"slices"
	"strings"
)

// StopByAny is [Detector.Stop] with a second try: if no rule of the pack explains the stop, it tries
// the rules of the other built-in packs, because a shell may have run an assistant. Only their specific rules
// count, in the last 5 lines, and the note of the verdict names the pack. With exit code 0 it tries
// them only if the pack is generic, because a specific pack knows how its program reports a failure.
func (d *Detector) StopByAny(code int) Stop {
	d.mu.Lock()
	defer d.mu.Unlock()
	stop, _ := d.decide(code)
	generic := d.pack.Name() == "generic"
	unexplained := stop.Rule == "" && (stop.Reason == Crashed || stop.Reason == Unknown || stop.Reason == Completed && generic)
	endless := stop.grammar && stop.Reason == RateLimit && stop.Until.IsZero() && generic
	if !unexplained && !endless {
		return stop
	}
	stops := d.othersSay(code)
	if endless {
		stops = slices.DeleteFunc(stops, func(s Stop) bool { return s.Reason != RateLimit || !s.Terminal && s.Until.IsZero() })
	}
	if best := Best(stops); best >= 0 {
		stop = stops[best]
		stop.Note = strings.TrimPrefix(stop.Note+"; by the pack "+stop.Pack, "; ")
	}
	return stop
}

// othersSay returns the verdicts of the other packs that explain the stop.
func (d *Detector) othersSay(code int) (stops []Stop) {
	for _, name := range Names() {
		if name == "generic" || name == d.pack.Name() || name == d.pack.spec.Extends {
			continue
		}
		pack, _ := Builtin(name) // a test compiles all packs
		if other := d.readBy(pack, code); other.Rule != "" && (other.Pack == name || other.spoken) {
			other.Pack = name
			stops = append(stops, other)
		}
	}
	return stops
}

// readBy returns the verdict of another pack on the stored last lines.
func (d *Detector) readBy(pack *Pack, code int) Stop {
	other := New(pack, Options{Location: d.options.Location, Lines: d.options.Lines, At: d.options.At})
	other.foreign, other.matcher.known = true, false
	kept, _ := d.lines.kept()
	lastEvent := lastIndex(kept, func(e entry) bool { return e.event })
	for i, e := range kept {
		other.at, other.number = e.at, e.number
		switch {
		case i == lastEvent:
			other.event(d.whole)
		case e.event:
			other.event(slices.Clone(e.text))
		case !e.said:
			other.push(e.text, false).code = e.code
		}
	}
	stop, _ := other.decide(code)
	return stop
}

// Best returns the index of the most credible verdict of several packs on the same output, in the
// order of [Names]; -1 if there are none. The criteria, in order: a rule that is not a fallback; an
// event before text, and both before the exit code; a rule of a specific pack before one of
// generic, unless the generic match is far below it; more trusted evidence; a later line; a stated
// time.
func Best(stops []Stop) int {
	best := -1
	for i, s := range stops {
		if best < 0 || s.better(stops[best]) {
			best = i
		}
	}
	return best
}

func (s Stop) better(than Stop) bool {
	own, other := s.Pack != "generic", than.Pack != "generic"
	switch {
	case s.fallback && than.Rule != "" && !than.fallback:
		return false
	case than.fallback && s.Rule != "" && !s.fallback:
		return true
	case s.Trust != than.Trust && (max(s.Trust, than.Trust) == ByEvent || min(s.Trust, than.Trust) == ByExit):
		return s.Trust > than.Trust
	case s.Trust == ByExit:
		// An exit code has a meaning only for its program, and the program is unknown here.
		return !own
	case own && !other:
		return s.Number+together >= than.Number
	case other && !own:
		return s.Number > than.Number+together
	case s.Trust != than.Trust:
		return s.Trust > than.Trust
	case s.Number != than.Number:
		return s.Number > than.Number
	default:
		return than.Until.IsZero() && !s.Until.IsZero()
	}
}
