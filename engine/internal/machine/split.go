package machine

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/codec"
)

// Layout assigns runs, keys and schedules to the shards of a cluster, by the same rules as the
// engine does when it starts runs.
type Layout struct {
	shards    int
	schedules map[string]string // workflow of each schedule, by its name; "" if it is not known
	together  map[string]bool   // workflows whose runs are all in one shard
	pauses    map[string]Pause  // paused workflows, by name: every shard has all of them
}

// NewLayout returns a layout for this many shards. It knows the schedules and the paused workflows
// of the machines.
func NewLayout(shards int, from ...*Machine) *Layout {
	l := &Layout{shards: shards, schedules: map[string]string{}, together: map[string]bool{}, pauses: map[string]Pause{}}
	for _, m := range from {
		for name := range m.schedules {
			l.schedules[name] = ""
		}
		for name, p := range m.pauses() {
			if known, ok := l.pauses[name]; !ok || p.At < known.At {
				l.pauses[name] = p
			}
		}
	}
	return l
}

// Together assigns all runs of a workflow to one shard, so that one owner can count them.
func (l *Layout) Together(workflow string) { l.together[workflow] = true }

// Starts sets the workflow that a schedule starts.
func (l *Layout) Starts(schedule, workflow string) { l.schedules[schedule] = workflow }

// OfRun returns the shard of a run.
func (l *Layout) OfRun(r *Run) int {
	if r.Key == "" && !l.together[r.Def.Name] {
		return r.ID.Slot() % l.shards
	}
	return l.OfKey(r.Key, r.Def.Name)
}

// OfKey returns the shard of a run of a workflow with this key. A second start with the key goes
// to the same shard. A run that a schedule started is in the shard of the schedule.
func (l *Layout) OfKey(key, workflow string) int {
	if name, ok := scheduleOf(key); ok {
		if _, known := l.schedules[name]; known {
			return l.OfSchedule(name)
		}
	}
	if l.together[workflow] {
		return WorkflowSlot(workflow) % l.shards
	}
	return KeySlot(key) % l.shards
}

// WorkflowSlot returns the slot of a workflow whose runs are all in one shard.
func WorkflowSlot(name string) int { return KeySlot("workflow " + name) }

// scheduleOf returns the name of the schedule that started a run with this key. ok is false if
// the key does not have the form that schedules use.
func scheduleOf(key string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, "schedule/")
	i := strings.LastIndexByte(rest, '/')
	if !ok || i < 0 {
		return "", false
	}
	_, err := time.Parse(time.RFC3339, rest[i+1:])
	return rest[:i], err == nil
}

// OfSchedule returns the shard of a schedule. If all runs of its workflow are in one shard, the
// schedule is in that shard too: it starts runs in its own shard.
func (l *Layout) OfSchedule(name string) int {
	if w := l.schedules[name]; l.together[w] {
		return WorkflowSlot(w) % l.shards
	}
	return KeySlot(name) % l.shards
}

// Check returns an error if a run, key or schedule of the machine does not belong in the shard, or if
// other workflows are paused than in the source.
func (l *Layout) Check(shard int, m *Machine) error {
	for _, r := range m.all {
		if at := l.OfRun(r); at != shard {
			return fmt.Errorf("run %s is in shard %d and belongs in %d", r.ID, shard, at)
		}
	}
	for key, k := range m.keys {
		if at := l.OfKey(key, k.of.Name); at != shard {
			return fmt.Errorf("key %q is in shard %d and belongs in %d", key, shard, at)
		}
	}
	for name := range m.schedules {
		if at := l.OfSchedule(name); at != shard {
			return fmt.Errorf("schedule %q is in shard %d and belongs in %d", name, shard, at)
		}
	}
	if got := m.pauses(); !maps.Equal(got, l.pauses) {
		return fmt.Errorf("shard %d has the paused workflows %v, and all shards must have %v", shard, got, l.pauses)
	}
	return nil
}

// Distribute moves everything out of the given machines and returns a machine for each shard of
// this layout. The given machines must be all shards of the source, which may have another number
// of shards. The new machines have no log entries yet. Steps that were in a queue have timers
// again, with the same due times.
//
// A cold run stays cold, and is read from the snapshot of the source. So the memory that
// Distribute needs does not depend on the size of the inputs.
//
// The given machines keep only their definitions, for reading archives.
func (l *Layout) Distribute(from ...*Machine) ([]*Machine, error) {
	d := distribution{Layout: l, to: make([]*Machine, l.shards), numbers: map[frameRef]uint32{}}
	d.frames = append(d.frames, nil) // the number 0 means that a run is not cold
	for i := range d.to {
		d.to[i] = New()
		d.to[i].Cold(d.load)
		for name, p := range l.pauses {
			d.to[i].workflow(name).setPause(&p)
		}
	}
	for _, m := range from {
		if err := d.moveAll(m); err != nil {
			return nil, err
		}
	}
	for _, m := range d.to {
		slices.SortStableFunc(m.ended, func(a, b expiry) int { return cmp.Compare(a.at, b.at) })
	}
	return d.to, nil
}

// distribution is the state of Distribute.
type distribution struct {
	*Layout
	to      []*Machine
	frames  []func() ([]byte, error) // functions that load frames, by new number
	numbers map[frameRef]uint32      // new numbers of frames
}

// frameRef identifies a frame with cold runs of a source machine.
type frameRef struct {
	of    *Machine
	frame uint32
}

func (d *distribution) load(frame uint32) ([]byte, error) { return d.frames[frame]() }

// moveAll moves everything out of a machine.
func (d *distribution) moveAll(m *Machine) error {
	for _, r := range m.all {
		if err := d.moveRun(m, r); err != nil {
			return err
		}
	}
	for _, e := range m.ended {
		if err := d.moveKey(e, m.keys[e.key]); err != nil {
			return err
		}
	}
	for name, s := range m.schedules {
		to := d.to[d.OfSchedule(name)]
		if _, twice := to.schedules[name]; twice {
			return fmt.Errorf("%w: two shards have schedule %q", ErrEncoding, name)
		}
		to.schedules[name] = s
	}
	for h, def := range m.defs {
		if def.runs == 0 {
			d.to[0].Learn(h, m)
		}
	}
	for name, w := range m.workflows {
		AddTotals(&d.to[0].workflow(name).Totals, w.Totals)
	}
	for _, to := range d.to {
		if m.at >= to.at {
			to.at, to.sinceBoot, to.boot = m.at, m.sinceBoot, m.boot
		}
	}
	defs, used := m.defs, m.used
	m.state = newState()
	m.defs, m.used = defs, used
	return nil
}

// moveRun moves a run of m to its new shard.
func (d *distribution) moveRun(m *Machine, r *Run) error {
	to := d.to[d.OfRun(r)]
	if _, twice := to.Run(r.ID); twice {
		return fmt.Errorf("%w: two shards have run %s", ErrEncoding, r.ID)
	}
	if k, taken := to.keys[r.Key]; taken && !r.Finished() && !r.Continued() {
		return keyTwice(r.Key, k, r.ID, r.Def.Name)
	}
	if r.IsCold() {
		r.cold.frame = d.number(frameRef{m, r.cold.frame})
	}
	hash := r.Def.hash
	to.Learn(hash, m)
	return to.adopt(r, to.defs[hash])
}

// adopt adds a run that comes from another machine. def is the run's definition, of this machine.
func (m *state) adopt(r *Run, def *Definition) error {
	r.Def = def
	if r.flow != nil {
		if err := m.adoptOps(r); err != nil {
			return err
		}
	}
	r.version, r.snap, r.done, r.timer = 0, 0, 0, noTimer
	r.dirty, r.Archived = false, false
	for i := range r.Steps {
		r.Steps[i].timer, r.Steps[i].queued = noTimer, false
	}
	m.install(r)
	return nil
}

// adoptOps gives the operations of a run that comes from another machine the definitions of this
// one.
func (m *state) adoptOps(r *Run) (err error) {
	ops := slices.Clone(r.flow.ops)
	for i := range ops {
		if ops[i].def == nil {
			continue
		}
		if ops[i].def, err = m.operation(ops[i].def.text); err != nil {
			return err
		}
	}
	if r.IsCold() {
		r.flow = m.coldFlow(ops)
	} else {
		r.flow.ops = ops
	}
	return nil
}

// number returns the number by which the new machines load a frame of a source machine.
func (d *distribution) number(f frameRef) uint32 {
	n, known := d.numbers[f]
	if !known {
		n = uint32(len(d.frames))
		load := f.of.load // moveAll clears it in the machine later
		d.frames = append(d.frames, func() ([]byte, error) { return load(f.frame) })
		d.numbers[f] = n
	}
	return n
}

// moveKey moves the key of a finished run.
func (d *distribution) moveKey(e expiry, k keyed) error {
	to := d.to[d.OfKey(e.key, k.of.Name)]
	if other, taken := to.keys[e.key]; taken {
		return keyTwice(e.key, other, k.id, k.of.Name)
	}
	to.addExpired(e, k.id, to.workflow(k.of.Name))
	return nil
}

// keyTwice returns the error for a key that two runs in different shards have. The data is
// damaged if both are runs of the same workflow. Runs of two workflows may have the same key, if
// all runs of one of the workflows are in one shard.
func keyTwice(key string, k keyed, id ID, workflow string) error {
	if k.of.Name == workflow {
		return fmt.Errorf("%w: key %q belongs to two runs, %s and %s", ErrEncoding, key, k.id, id)
	}
	return fmt.Errorf("key %q belongs to run %s of workflow %s and to run %s of workflow %s, but in the target only one run can have it; "+
		"repeat the move when one of the two runs has ended and is not kept any more", key, k.id, k.of.Name, id, workflow)
}

// Tally counts the contents of a machine, without paused workflows, which every shard has: see
// Layout.Check. The sum over all shards does not depend on the layout.
type Tally struct {
	Runs      [States]int // number of runs in memory, by state
	Orphans   int         // attempts that are running according to the state
	Keys      int
	Schedules int
	Timers    int
	Totals    info.Totals
	Sum       uint64 // checksum of all contents, which does not depend on their order
}

// Tally counts the contents of the machine. Tallies can be compared if they have the same seed.
func (m *Machine) Tally(seed maphash.Seed) (t Tally, err error) {
	var b []byte
	add := func() { t.Sum += maphash.Bytes(seed, b) }
	for _, r := range m.all {
		whole, err := m.whole(r)
		if err != nil {
			return t, err
		}
		plain := *whole
		plain.version = 0
		b = EncodeRun(&plain, append(b[:0], 'r'))
		add()
		t.Runs[r.State()]++
		t.Orphans += int(r.running)
	}
	for key, k := range m.keys {
		b = append(append(b[:0], 'k'), k.id[:]...)
		b = binary.AppendVarint(codec.AppendBytes(b, k.of.Name), k.ended)
		b = append(b, key...)
		add()
	}
	for name, s := range m.schedules {
		b = binary.AppendVarint(codec.AppendBytes(append(b[:0], 's'), name), s.Due)
		b = append(b, s.Data...)
		add()
	}
	for name, w := range m.workflows {
		// A total may be the sum over several shards, so the checksum must be linear in it.
		for i, n := range fieldsOf(&w.Totals) {
			b = append(append(b[:0], 't', byte(i)), name...)
			t.Sum += maphash.Bytes(seed, b) * *n
		}
		AddTotals(&t.Totals, w.Totals)
	}
	t.Keys, t.Schedules, t.Timers = len(m.keys), len(m.schedules), m.Waiting()
	return t, nil
}

// Add adds the tally of another shard.
func (t *Tally) Add(o Tally) {
	for i, n := range o.Runs {
		t.Runs[i] += n
	}
	t.Orphans += o.Orphans
	t.Keys += o.Keys
	t.Schedules += o.Schedules
	t.Timers += o.Timers
	AddTotals(&t.Totals, o.Totals)
	t.Sum += o.Sum
}

// Empty reports whether no run was ever started and there are no schedules.
func (t *Tally) Empty() bool { return *t == Tally{} }
