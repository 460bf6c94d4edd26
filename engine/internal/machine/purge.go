package machine

import "slices"

// applyPurged removes the keys of runs that ended before At, the dead runs that died
// before Due and are not in Data, and definitions that were not used since. It must not
// depend on which finished runs are in memory: that is not recorded.
func (m *state) applyPurged(rec *Record) {
	m.ended = slices.DeleteFunc(m.ended, func(e expiry) bool {
		if e.at >= rec.At {
			return false
		}
		if r := m.runs[m.keys[e.key].id]; r != nil && r.knows(m.seq) {
			return false // it ends later
		}
		delete(m.keys, e.key)
		return true
	})
	for _, d := range m.defs {
		d.open = false
	}
	keep := map[ID]bool{}
	for data := rec.Data; len(data) >= len(ID{}); data = data[len(ID{}):] {
		keep[ID(data[:len(ID{})])] = true
	}
	var dead []*Run
	for _, r := range m.all {
		switch known := r.knows(m.seq); {
		case r.Closed() && !r.Finished() && r.Ended < rec.Due && !known && !keep[r.ID]:
			dead = append(dead, r)
		case known || !r.Finished():
			r.Def.open = true
		}
	}
	for _, r := range dead {
		if k := m.keys[r.Key]; k.id == r.ID {
			delete(m.keys, r.Key)
		}
		// In a snapshot that the run is written to when it is removed, it must not know
		// this entry, which may have changed it too.
		r.version = min(r.version, m.seq-1)
		m.remove(r)
		m.purged = append(m.purged, r.ID)
	}
	m.definitionSet.purge(min(rec.At, rec.Due))
}
