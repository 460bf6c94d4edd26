package machine

import (
	"iter"
	"maps"
	"slices"
)

// definitionSet has the definitions that runs in memory follow or new ones may, and
// the workflows by name.
type definitionSet struct {
	defs      map[Hash]*Definition
	used      map[Hash]int64 // when a definition was last started from, or a run of it finished
	workflows map[string]*Workflow
}

// Definition returns the definition with the hash.
func (s *definitionSet) Definition(h Hash) (*Definition, bool) {
	d, ok := s.defs[h]
	return d, ok
}

// Definitions yields the hashes of the definitions that are known.
func (s *definitionSet) Definitions() iter.Seq[Hash] { return maps.Keys(s.defs) }

// Workflows returns the workflows by name.
func (s *definitionSet) Workflows() map[string]*Workflow { return s.workflows }

// Learn makes a definition known that another machine knows.
func (s *definitionSet) Learn(h Hash, from *Machine) {
	if used, stored := from.used[h]; stored {
		s.use(h, used)
	}
	if _, known := s.defs[h]; known {
		return
	}
	d := *from.defs[h]
	d.Steps = slices.Clone(d.Steps) // they know their queues
	d.runs, d.open = 0, false
	s.define(&d)
}

// stored reports whether the log has the definition, so that a run can start from it.
func (s *definitionSet) stored(h Hash) bool {
	_, stored := s.used[h]
	return stored
}

// use records that the definition was used then.
func (s *definitionSet) use(h Hash, at int64) { s.used[h] = max(s.used[h], at) }

// define adds a definition.
func (s *definitionSet) define(d *Definition) {
	if _, known := s.defs[d.hash]; known {
		return
	}
	w := s.workflow(d.Name)
	d.workflow = w
	for i := range d.Steps {
		d.Steps[i].queue = w.queue(d.Steps[i].Name)
	}
	s.defs[d.hash] = d
}

// workflow returns the workflow of that name, which it adds if it is new.
func (s *definitionSet) workflow(name string) *Workflow {
	w := s.workflows[name]
	if w == nil {
		w = &Workflow{Name: name}
		s.workflows[name] = w
	}
	return w
}

// purge removes the definitions that were last used before the time and that no run in
// memory follows. Those that are open are followed by a run that is not finished.
func (s *definitionSet) purge(before int64) {
	for h, d := range s.defs {
		if d.open || s.used[h] >= before {
			continue
		}
		delete(s.used, h) // so that it is stored again before the next start
		if d.runs == 0 {
			delete(s.defs, h)
		}
	}
}
