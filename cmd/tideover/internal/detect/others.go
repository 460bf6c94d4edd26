package detect

import "slices"

// StopByAny is [Detector.Stop] with a second try: if no rule of the pack explains the stop, the
// other built-in packs are used, because a shell may have run an assistant. Only their specific
// rules count, in the last 5 lines, and the note of the verdict names the pack. Exit code 0 is
// doubted only if the pack is generic, because a specific pack knows how its program reports a
// failure.
func (d *Detector) StopByAny(code int, signaled bool) Stop {
	d.mu.Lock()
	defer d.mu.Unlock()
	stop, _ := d.decide(code, signaled)
	switch {
	case stop.Rule != "":
		return stop
	case stop.Reason == Crashed, stop.Reason == Unknown:
	case stop.Reason == Completed && d.pack.Name() == "generic":
	default:
		return stop
	}
	var stops []Stop
	for _, name := range Names() {
		if name == "generic" || name == d.pack.Name() || name == d.pack.spec.Extends {
			continue
		}
		pack, err := Builtin(name)
		if err != nil {
			continue // never happens: a test compiles all packs
		}
		if other := d.readBy(pack, code, signaled); other.Rule != "" && other.Pack == name {
			stops = append(stops, other)
		}
	}
	if best := Best(stops); best >= 0 {
		stop = stops[best]
		if stop.Note != "" {
			stop.Note += "; "
		}
		stop.Note += "by the pack " + stop.Pack
	}
	return stop
}

// readBy returns the verdict of another pack on the last lines.
func (d *Detector) readBy(pack *Pack, code int, signaled bool) Stop {
	other := New(pack, Options{Location: d.options.Location, Lines: d.options.Lines, At: d.options.At})
	other.foreign = true
	kept, _ := d.lines.kept()
	lastEvent := -1
	for i, e := range kept {
		if e.event {
			lastEvent = i
		}
	}
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
	stop, _ := other.decide(code, signaled)
	return stop
}
