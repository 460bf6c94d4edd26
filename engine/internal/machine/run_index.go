package machine

// runIndex has the runs that are in memory, by id and by key.
type runIndex struct {
	table idTable
	all   []*Run           // the runs in no particular order; Snapshot walks them by index
	keys  map[string]keyed // also keys of finished runs that are not in memory any more
	ended []expiry         // keys of finished runs, oldest end first
}

// keyed is the run that was started with a key.
type keyed struct {
	id    ID
	of    *Workflow
	ended int64 // when the run finished; 0 if it has not, and the key does not expire
}

// expiry is the key of a finished run. Purge removes it some time after the run has ended.
type expiry struct {
	key string
	at  int64 // when the run ended
}

// Run returns a run that is in memory.
func (x *runIndex) Run(id ID) (*Run, bool) {
	r := x.byID(id)
	return r, r != nil
}

// byID returns a run that is in memory; nil if there is none with this id.
func (x *runIndex) byID(id ID) *Run {
	s := x.table.find(&id, x.all)
	if s == nil {
		return nil
	}
	return x.all[s.next-1]
}

// Len returns the number of runs in memory.
func (x *runIndex) Len() int { return len(x.all) }

// All returns the runs in memory, in no particular order. The slice is valid until the next
// change of the state.
func (x *runIndex) All() []*Run { return x.all }

// Keyed returns the run that was started with the key, and the name of its workflow.
func (x *runIndex) Keyed(key string) (id ID, workflow string, ok bool) {
	k, ok := x.keys[key]
	if !ok {
		return id, "", false
	}
	return k.id, k.of.Name, true
}

// Orphans calls yield with every step whose attempt is running according to the state. To a
// process that has just taken over the shard, these attempts are lost.
func (x *runIndex) Orphans(yield func(*Run, int)) {
	for _, r := range x.all {
		if r.running == 0 {
			continue
		}
		for i, s := range r.Live() {
			if s.Status == Running {
				yield(r, i)
			}
		}
	}
}

// insert adds the run, without its key.
func (x *runIndex) insert(r *Run) {
	r.index = int32(len(x.all))
	x.all = append(x.all, r)
	x.table.add(&r.ID, r.index)
}

// drop removes the run. Its key stays.
func (x *runIndex) drop(r *Run) {
	last := x.all[len(x.all)-1]
	x.table.remove(&r.ID, x.table.find(&r.ID, x.all))
	if last != r {
		x.table.find(&last.ID, x.all).next = r.index + 1
	}
	x.all[r.index] = last
	last.index = r.index
	x.all[len(x.all)-1] = nil
	x.all = x.all[:len(x.all)-1]
}

// claimKey registers the key of the run, if it has one.
func (x *runIndex) claimKey(r *Run) {
	if r.Key != "" {
		x.keys[r.Key] = keyed{id: r.ID, of: r.Def.workflow}
	}
}

// addExpired adds the key of a finished run, which may not be in memory any more.
func (x *runIndex) addExpired(e expiry, id ID, of *Workflow) {
	x.keys[e.key] = keyed{id, of, e.at}
	x.ended = append(x.ended, e)
}
