package machine

// changeSet has the runs that the reader of changes has yet to see. The reader is the
// part of the engine that keeps the lists of runs.
type changeSet struct {
	changed []*Run
	purged  []ID
}

// changeMark says of a run whether the reader of changes has yet to see it.
type changeMark struct{ dirty bool }

// Seen records that the reader of changes has the present state of the run.
func (c *changeMark) Seen() { c.dirty = false }

// Dirty reports whether the reader of changes has yet to see the run.
func (c *changeMark) Dirty() bool { return c.dirty }

// Soil makes the run one that the reader of changes has yet to see.
func (c *changeMark) Soil() { c.dirty = true }

// TakeChanged returns the runs that have changed since the last call. Each of
// them is dirty until it was Seen.
func (c *changeSet) TakeChanged() []*Run {
	changed := c.changed
	c.changed = nil
	return changed
}

// TakePurged returns the dead runs that were purged since the last call.
func (c *changeSet) TakePurged() []ID {
	ids := c.purged
	c.purged = nil
	return ids
}

// Behind returns how many runs have changed since the reader of changes saw them.
func (c *changeSet) Behind() int { return len(c.changed) }

// Change makes TakeChanged return the run.
func (c *changeSet) Change(r *Run) {
	r.dirty = true
	c.changed = append(c.changed, r)
}

// markChanged is Change for a run that may be in the set already.
func (c *changeSet) markChanged(r *Run) {
	if !r.dirty {
		c.Change(r)
	}
}
