package machine

import (
	"slices"
)

// applyPurged forgets the keys of what ended before At, the dead that died before Due
// and are not in Data, and definitions that nobody has used since. What it does must not
// depend on which finished runs are in memory: that is not recorded.
func (m *Machine) applyPurged(rec *Record) {
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
		// In a snapshot that it is written to on leaving it must not know this
		// entry, which may have changed it too.
		r.version = min(r.version, m.seq-1)
		m.drop(r)
		m.purged = append(m.purged, r.ID)
	}
	for h, d := range m.defs {
		if at := m.used[h]; d.open || at >= rec.At || at >= rec.Due {
			continue
		}
		delete(m.used, h) // and so it is stored again before the next start
		if d.runs == 0 {
			delete(m.defs, h)
		}
	}
}

// TakePurged returns the dead runs that were forgotten since the last call.
func (m *Machine) TakePurged() []ID {
	ids := m.purged
	m.purged = nil
	return ids
}
