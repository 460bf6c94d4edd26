package machine

import (
	"errors"
	"fmt"
	"math"
)

// ErrFormat says that something was stored by a newer version.
var ErrFormat = errors.New("stored by a newer version")

// Machine is the state of a shard.
type Machine struct {
	seq       uint64 // the entry applied last
	at        int64  // of it
	sinceBoot int64
	boot      string

	runs      map[ID]*Run
	all       []*Run // the same, in no order; see Snapshot
	defs      map[Hash]*Definition
	used      map[Hash]int64 // when a definition was last started from, or a run of it finished
	keys      map[string]keyed
	ended     []expiry // keys of runs that are closed, oldest first
	workflows map[string]*Workflow
	schedules map[string]*Schedule
	parked    map[string]map[place]struct{} // by handler
	timers    timers
	busy      []*Queue
	suspects  []place // that are due, in the order of compareSuspects
	changed   []*Run
	purged    []ID
	snapshot  *Snapshot
	snaps     uint32
	load      Load // of what is cold
}

type keyed struct {
	id    ID
	of    *Workflow
	ended int64
}

type expiry struct {
	key string
	at  int64
}

// Schedule is a workflow that is started by the calendar.
type Schedule struct {
	Name string
	Due  int64 // the next start, by the wall clock
	Data []byte
}

// New returns the state of an empty log.
func New() *Machine {
	return &Machine{
		runs: map[ID]*Run{}, defs: map[Hash]*Definition{}, used: map[Hash]int64{}, keys: map[string]keyed{},
		workflows: map[string]*Workflow{}, schedules: map[string]*Schedule{}, parked: map[string]map[place]struct{}{},
	}
}

// Seq returns the entry that was applied last.
func (m *Machine) Seq() uint64 { return m.seq }

// Clock returns what the last entry said of its time, and on which boot.
func (m *Machine) Clock() (h Header, boot string) {
	return Header{At: m.at, SinceBoot: m.sinceBoot}, m.boot
}

// Run returns a run that is in memory.
func (m *Machine) Run(id ID) (*Run, bool) {
	r, ok := m.runs[id]
	return r, ok
}

// Len returns how many runs are in memory.
func (m *Machine) Len() int { return len(m.all) }

// ByKey returns the run that was started with the key.
func (m *Machine) ByKey(key string) (ID, bool) {
	k, ok := m.keys[key]
	return k.id, ok
}

// Definition returns the definition with the hash.
func (m *Machine) Definition(h Hash) (*Definition, bool) {
	d, ok := m.defs[h]
	return d, ok
}

// Workflows returns what there is to know of each workflow, by name.
func (m *Machine) Workflows() map[string]*Workflow { return m.workflows }

// Schedules returns the schedules by name.
func (m *Machine) Schedules() map[string]*Schedule { return m.schedules }

// All returns the runs in memory, in no order. It is valid until the next change.
func (m *Machine) All() []*Run { return m.all }

// Next returns when the first timer is due.
func (m *Machine) Next() int64 {
	if t, ok := m.timers.first(); ok {
		return t.due
	}
	return math.MaxInt64
}

// Waiting returns how many timers there are.
func (m *Machine) Waiting() int { return len(m.timers.heap) }

// Due takes the timers that are due, at most so many, and puts their steps into
// their queues. It returns the runs whose time is over: they need a record.
// What it does is not recorded, because it follows from the time.
func (m *Machine) Due(now int64, most int) (expired []*Run) {
	for range most {
		t, ok := m.timers.first()
		if !ok || t.due > now {
			break
		}
		m.timers.unset(t.run, t.step)
		if t.step == deadline {
			expired = append(expired, t.run)
			continue
		}
		m.enqueue(t.run, int(t.step))
		m.show(t.run)
	}
	return expired
}

// TakeChanged returns the runs that have changed since the last call. Each of
// them is dirty until it was Seen.
func (m *Machine) TakeChanged() []*Run {
	changed := m.changed
	m.changed = nil
	return changed
}

// Seen says that the reader of changes has what the run is now.
func (r *Run) Seen() { r.dirty = false }

// Behind returns how many runs have changed since the reader of changes saw them.
func (m *Machine) Behind() int { return len(m.changed) }

// Dirty reports whether the reader of changes has yet to see the run.
func (r *Run) Dirty() bool { return r.dirty }

// touch marks the run as changed.
func (m *Machine) touch(r *Run) {
	r.version, r.restored = m.seq, false
	if !r.dirty {
		r.dirty = true
		m.changed = append(m.changed, r)
	}
	m.show(r)
}

// show keeps the counts.
func (m *Machine) show(r *Run) {
	w := r.Def.workflow
	if now := r.State(); now != r.shown {
		w.Counts[r.shown]--
		w.Counts[now]++
		r.shown = now
		if !r.dirty {
			r.dirty = true
			m.changed = append(m.changed, r)
		}
	}
}

// define adds a definition.
func (m *Machine) define(d *Definition) {
	if _, known := m.defs[d.hash]; known {
		return
	}
	w := m.workflow(d.Name)
	d.workflow = w
	for i := range d.Steps {
		d.Steps[i].queue = w.queue(d.Steps[i].Name)
	}
	m.defs[d.hash] = d
}

func (m *Machine) workflow(name string) *Workflow {
	w := m.workflows[name]
	if w == nil {
		w = &Workflow{Name: name}
		m.workflows[name] = w
	}
	return w
}

func (w *Workflow) queue(step string) *Queue {
	for _, q := range w.queues {
		if q.Step == step {
			return q
		}
	}
	q := &Queue{Workflow: w, Step: step}
	w.queues = append(w.queues, q)
	return q
}

// add puts the run into memory.
func (m *Machine) add(r *Run) {
	r.index = int32(len(m.all))
	m.all = append(m.all, r)
	m.runs[r.ID] = r
	r.Def.runs++
	r.shown = r.State()
	r.Def.workflow.Counts[r.shown]++
}

// claim says that the run has its key.
func (m *Machine) claim(r *Run) {
	if r.Key != "" {
		m.keys[r.Key] = keyed{id: r.ID, of: r.Def.workflow}
	}
}

// Forget takes a run out of memory that is finished and has been seen by the
// reader of changes. Its key stays until it is purged.
func (m *Machine) Forget(r *Run) error {
	if !r.Finished() {
		return fmt.Errorf("run %s is not finished", r.ID)
	}
	if m.runs[r.ID] == r { // and was not purged meanwhile
		m.drop(r)
	}
	return nil
}

func (m *Machine) drop(r *Run) {
	if m.snapshot != nil {
		m.snapshot.leaving(r)
	}
	m.timers.unset(r, deadline)
	for i := range r.Steps {
		m.timers.unset(r, int32(i))
		m.leave(r, i)
		m.unpark(r, i)
	}
	last := m.all[len(m.all)-1]
	m.all[r.index] = last
	last.index = r.index
	m.all[len(m.all)-1] = nil
	m.all = m.all[:len(m.all)-1]
	delete(m.runs, r.ID)
	r.Def.runs--
	r.Def.workflow.Counts[r.shown]--
}

// Parked yields the steps that wait for the handler.
func (m *Machine) Parked(handler string, yield func(*Run, int)) {
	for p := range m.parked[handler] {
		yield(p.run, int(p.step))
	}
}

// ParkedHandlers returns the handlers that are waited for.
func (m *Machine) ParkedHandlers() map[string]int {
	n := make(map[string]int, len(m.parked))
	for h, set := range m.parked {
		n[h] = len(set)
	}
	return n
}

func (m *Machine) park(r *Run, step int) {
	h := r.Def.Steps[step].Handler
	if m.parked[h] == nil {
		m.parked[h] = map[place]struct{}{}
	}
	m.parked[h][place{r, int32(step)}] = struct{}{}
}

func (m *Machine) unpark(r *Run, step int) {
	h := r.Def.Steps[step].Handler
	if set := m.parked[h]; set != nil {
		delete(set, place{r, int32(step)})
		if len(set) == 0 {
			delete(m.parked, h)
		}
	}
}
