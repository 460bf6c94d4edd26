package detect

import "slices"

// StopByAny is [Detector.Stop]. If no rule of the pack explains the stop, the other
// built-in packs are asked: a shell may have run an assistant. Only rules that are a
// program's own count, in the last 5 lines, and the verdict's note names the pack. An
// exit code of success is doubted only if the pack is generic, because a pack that is
// made for the command knows how it says that it failed.
func (d *Detector) StopByAny(code int, signaled bool) Stop {
	d.mu.Lock()
	defer d.mu.Unlock()
	stop, _ := d.judge(code, signaled)
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
			continue // a test compiles all of them
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

// readBy returns what another pack says of the last lines.
func (d *Detector) readBy(pack *Pack, code int, signaled bool) Stop {
	other := New(pack, Options{Location: d.options.Location, Lines: d.options.Lines, At: d.options.At})
	other.foreign = true
	kept, _ := d.kept()
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
	stop, _ := other.judge(code, signaled)
	return stop
}
