package machine

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
)

// world simulates the owner of a machine: it has the clock and the log. Like the engine, it applies
// records before their entry is complete. A second machine, shadow, only gets the complete entries;
// both must have the same state.
type world struct {
	t      testing.TB
	m      *Machine
	shadow *Machine
	rng    *rand.Rand
	now    int64
	boot   int64 // elapsed time since the boot
	log    [][]byte
	entry  Entry
	open   bool
	ids    uint64
	gone   map[ID]bool // forgotten once; it comes back with a replay
	judge  *judge      // nil for none
}

const epoch = int64(1_800_000_000) * 1e9

func newWorld(t testing.TB) *world {
	t.Helper()
	return &world{
		t: t, m: New(), shadow: New(), rng: rand.New(rand.NewPCG(1, 2)), now: epoch, boot: int64(time.Hour),
		gone: map[ID]bool{},
	}
}

func (w *world) pass(d time.Duration) {
	w.now += int64(d)
	w.boot += int64(d)
}

func (w *world) begin() {
	if !w.open {
		w.open = true
		w.entry.Reset(w.now, w.boot)
		w.m.Begin(uint64(len(w.log))+1, Header{At: w.now, SinceBoot: w.boot})
	}
}

// emit applies a record and adds it to the current entry.
func (w *world) emit(rec Record) {
	w.t.Helper()
	w.begin()
	w.entry.Add(&rec)
	before := Undecided
	if r, ok := w.m.Run(rec.Run); ok {
		before = r.Outcome
	}
	if err := w.m.Apply(&rec); err != nil {
		w.t.Fatalf("Apply(%+v) = %v", rec, err)
	}
	if r, ok := w.m.Run(rec.Run); ok && rec.Kind != Retry {
		after := r.Outcome
		if after == before {
			after = Undecided
		}
		if after != rec.Ends {
			w.t.Fatalf("Apply(%+v) made of outcome %d a %d, and the record says that it ends as %d", rec, before, r.Outcome, rec.Ends)
		}
	}
	if w.judge != nil {
		w.judge.see(&rec)
	}
}

// commit ends the entry and applies it to the shadow.
func (w *world) commit() {
	w.t.Helper()
	if !w.open {
		return
	}
	w.open = false
	w.log = append(w.log, bytes.Clone(w.entry.Bytes()))
	if w.shadow != nil {
		replay(w.t, w.shadow, w.log)
	}
}

// do makes an entry with one record.
func (w *world) do(rec Record, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	w.emit(rec)
	w.commit()
}

// replay applies the entries of the log that are newer than the machine.
func replay(t testing.TB, m *Machine, log [][]byte) {
	t.Helper()
	for seq := m.Seq(); seq < uint64(len(log)); seq++ {
		if err := m.applyEntry(seq+1, log[seq]); err != nil {
			t.Fatalf("entry %d: %v", seq+1, err)
		}
	}
}

func (m *Machine) applyEntry(seq uint64, entry []byte) error {
	h, err := ReadEntry(entry, func(h Header, rec *Record) error {
		m.Begin(seq, h)
		return m.Apply(rec)
	})
	m.Begin(seq, h) // also one without records
	return err
}

func replayed(t testing.TB, log [][]byte) *Machine {
	t.Helper()
	m := New()
	replay(t, m, log)
	return m
}

func (w *world) define(d *Definition) *Definition {
	w.t.Helper()
	if err := d.Prepare(); err != nil {
		w.t.Fatal(err)
	}
	if rec, ok := w.m.Define(d, w.now); ok {
		w.do(rec, nil)
	}
	return d
}

func (w *world) id() ID {
	w.ids++
	return NewID(w.now, w.ids, w.ids)
}

// start starts a run of the definition.
func (w *world) start(d *Definition, c Start) *Run {
	w.t.Helper()
	c.Hash = d.Hash()
	if c.ID.IsZero() {
		c.ID = w.id()
	}
	rec, existing, err := w.m.Start(&c, w.now)
	if err != nil || !existing.IsZero() {
		w.t.Fatalf("Start(%+v) = %v, %v", c, existing, err)
	}
	w.do(rec, nil)
	return w.m.byID(c.ID)
}

// attempt begins an attempt of each step of a run that is due.
func (w *world) attempt(r *Run) {
	w.t.Helper()
	w.m.Due(w.now, 1<<30)
	for i := range r.Steps {
		if r.Steps[i].queued {
			w.emit(BeginAttempt(r, i, w.now))
		}
	}
	w.commit()
}

// finish ends the running attempt of a step.
func (w *world) finish(r *Run, step int, c Result) Record {
	w.t.Helper()
	c.Run, c.Step, c.Attempt = r.ID, step, int(r.Steps[step].Attempt)
	rec, ok := w.m.Finish(&c, w.now, w.rng.Uint64())
	if !ok {
		w.t.Fatalf("Finish(%+v) of step %+v: there is nothing to record", c, r.Steps[step])
	}
	w.do(rec, nil)
	return rec
}

// crash drops the machine and restores it from the log, or from a snapshot and the log.
func (w *world) crash(from *Machine) {
	w.t.Helper()
	if from == nil {
		from = New()
	}
	replay(w.t, from, w.log)
	w.m = from
}

// check compares the machine with others that must be equal, and checks that all of them are
// consistent.
func (w *world) check(what string, others ...*Machine) {
	w.t.Helper()
	if err := legal(w.m); err != nil {
		w.t.Fatalf("%s: live state is not legal: %v", what, err)
	}
	want := dump(w.m, w.gone)
	for _, o := range others {
		if err := legal(o); err != nil {
			w.t.Fatalf("%s: replayed state is not legal: %v", what, err)
		}
		if got := dump(o, w.gone); got != want {
			w.t.Fatalf("%s: replay differs from life\n%s", what, diff(got, want))
		}
		for h := range w.m.used {
			if o.used[h] != w.m.used[h] {
				w.t.Fatalf("%s: definition %x of workflow %q: used %d, want %d", what, h, w.m.defs[h].Name, o.used[h], w.m.used[h])
			}
		}
	}
}

func diff(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	var out strings.Builder
	for _, line := range a {
		if !slices.Contains(b, line) {
			fmt.Fprintf(&out, "  got  %s\n", line)
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			fmt.Fprintf(&out, "  want %s\n", line)
		}
	}
	return out.String()
}

// dump returns the state that must survive a restart, one item per line. It leaves out which steps
// are in queues, because that follows from the time, and finished runs that a live machine may have
// removed from memory.
func dump(m *Machine, gone map[ID]bool) string {
	lines := []string{fmt.Sprintf("entry %d at %d, %d since boot %q", m.seq, m.at, m.sinceBoot, m.boot)}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, r := range m.all {
		if gone[r.ID] && r.Finished() {
			continue
		}
		whole, err := m.whole(r)
		if err != nil {
			panic(err)
		}
		lines = append(lines, dumpRun(whole))
	}
	for key, k := range m.keys {
		add("key %q is of %s of %s, ended %d", key, k.id, k.of.Name, k.ended)
	}
	for _, e := range m.ended {
		add("key %q expires %d", e.key, e.at)
	}
	for name, s := range m.schedules {
		add("schedule %q %q due %d %q", name, s.Name, s.Due, s.Data)
	}
	for name, f := range m.workflows {
		add("workflow %q active %d totals %+v", name, f.Active, f.Totals)
		if f.Pause != nil {
			add("workflow %q paused %+v", name, *f.Pause)
		}
		for _, q := range f.queues {
			if q.Running > 0 {
				add("queue %q of %q running %d", q.Step, name, q.Running)
			}
		}
	}
	for h, set := range m.parked {
		for p := range set {
			if p.run.Outcome == Undecided {
				add("handler %q is waited for by %s %d", h, p.run.ID, p.step)
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// dumpRun appends the text of a run. It does not use fmt, because it is called very often.
func dumpRun(r *Run) string {
	b := make([]byte, 0, 1024)
	num := func(name string, n int64) {
		b = append(append(b, name...), ' ')
		b = append(strconv.AppendInt(b, n, 10), ' ')
	}
	text := func(name, s string) {
		b = append(append(b, name...), ' ')
		b = append(strconv.AppendQuote(b, s), ' ')
	}
	flag := func(name string, is bool) {
		if is {
			b = append(append(b, name...), ' ')
		}
	}
	text("run", r.ID.String())
	text("of", r.Def.Name)
	b = hex.AppendEncode(b, r.Def.hash[:4])
	text(" key", r.Key)
	text("input", string(r.Input))
	num("created", r.Created)
	num("deadline", r.Deadline)
	num("ended", r.Ended)
	num("outcome", int64(r.Outcome))
	text("reason", r.Reason.String())
	flag("failing", r.Failing)
	flag("held", r.Held)
	flag("retried", r.retried)
	if r.extra != nil && r.extra.until != 0 {
		num("until", r.extra.until)
	}
	text("previous", r.Previous().String())
	origin, key, known := Origin(r)
	text("origin", fmt.Sprint(origin, key, known))
	text("replaced by", r.ReplacedBy().String())
	text("source", r.Source())
	text("parent", string(r.Parent().encode()))
	num("running", int64(r.running))
	num("done", int64(r.done))
	flag("active", r.active)
	for i, s := range r.Live() {
		text("step", s.Status.String())
		num("at", s.At)
		num("first", s.First)
		num("prev", int64(s.Prev))
		num("attempt", int64(s.Attempt))
		num("spent", int64(s.Spent))
		num("windows", int64(s.Windows))
		flag("clock", s.clock)
		num("lost", int64(s.Lost))
		text("output", string(r.Output(i)))
		text("progress", string(r.Progress(i)))
		if r.flow != nil && i > 0 {
			o := &r.flow.ops[r.flow.index(i)]
			num("number", int64(o.number))
			text("name", o.name)
			if o.def != nil {
				b = hex.AppendEncode(b, o.def.hash[:4])
			}
		}
	}
	if f := r.flow; f != nil {
		num("count", int64(f.count))
		num("attempts", int64(f.attempts))
		num("size", int64(f.size))
		num("awaited", int64(f.mustEnd))
		text("status", r.Flow().Status())
		text("tags", string(r.Flow().Tags()))
		text("redo", string(f.redo))
		text("results", string(f.results))
		in := valueOf(f.inbox)
		text("signals", string(in.append(nil)))
		num("signal bytes", int64(in.size))
		text("undo", string(appendUndo(f, nil)))
	}
	return string(hex.AppendEncode(append(b, "history "...), r.History))
}

// legal returns an error if the state is inconsistent. It recomputes all counts of the machine.
func legal(m *Machine) error {
	for _, f := range []func(*Machine) error{legalMemory, legalTimers, legalQueues, legalCounts, legalKeys} {
		if err := f(m); err != nil {
			return err
		}
	}
	for _, r := range m.all {
		if err := legalRun(m, r); err != nil {
			return fmt.Errorf("run %s: %w: %s", r.ID, err, dumpRun(r))
		}
	}
	return nil
}

func legalMemory(m *Machine) error {
	byID := 0
	for i := range m.table.parts {
		byID += m.table.parts[i].used
	}
	if len(m.all) != byID {
		return fmt.Errorf("%d runs in the list, %d by id", len(m.all), byID)
	}
	dirty := map[*Run]int{}
	for _, r := range m.changed {
		if dirty[r]++; dirty[r] > 1 || !r.dirty {
			return fmt.Errorf("run %s stands %d times among the changed, dirty %v", r.ID, dirty[r], r.dirty)
		}
	}
	defs := map[*Definition]int{}
	for i, r := range m.all {
		defs[r.Def]++
		switch {
		case int(r.index) != i:
			return fmt.Errorf("run %s at %d has the index %d", r.ID, i, r.index)
		case m.byID(r.ID) != r:
			return fmt.Errorf("run %s is not the one of its id", r.ID)
		case m.defs[r.Def.hash] != r.Def:
			return fmt.Errorf("run %s has a definition that is not stored", r.ID)
		}
	}
	for h, d := range m.defs {
		if d.runs != defs[d] {
			return fmt.Errorf("definition %x has %d runs, counted %d", h, defs[d], d.runs)
		}
	}
	for h := range m.used {
		if m.defs[h] == nil {
			return fmt.Errorf("definition %x is not stored", h)
		}
	}
	return nil
}

func legalTimers(m *Machine) error {
	for i := range m.timers.heap {
		t := &m.timers.heap[i]
		if m.byID(t.run.ID) != t.run {
			return fmt.Errorf("timer %d is of run %s, which is not in memory", i, t.run.ID)
		}
		if int(*t.index()) != i {
			return fmt.Errorf("timer %d of run %s step %d: its index says %d", i, t.run.ID, t.step, *t.index())
		}
		if i > 0 && m.timers.heap[(i-1)/4].due > t.due {
			return fmt.Errorf("timer %d is due before its parent", i)
		}
		if t.step == deadline && t.due != t.run.Deadline || t.step != deadline && t.due != t.run.Step(int(t.step)).At {
			return fmt.Errorf("timer %d of run %s step %d is due %d: %s", i, t.run.ID, t.step, t.due, dumpRun(t.run))
		}
	}
	n := 0
	for _, r := range m.all {
		if r.timer != noTimer {
			n++
		}
		for i := range r.Steps {
			if r.Steps[i].timer != noTimer {
				n++
			}
		}
	}
	if n != len(m.timers.heap) {
		return fmt.Errorf("%d timers in the heap, %d known to runs", len(m.timers.heap), n)
	}
	return nil
}

func legalQueues(m *Machine) error {
	stand, undoing := map[stepRef]bool{}, map[stepRef]bool{}
	for _, w := range m.workflows {
		for _, q := range w.queues {
			for _, f := range []*fifo{&q.undoing.begun, &q.undoing.fresh, &q.all.begun, &q.all.fresh} {
				for _, p := range f.list[f.head:] {
					if !isLive(p.run, int(p.step)) {
						continue // an operation that has ended
					}
					if p.run.StepDef(int(p.step)).queue != q {
						return fmt.Errorf("run %s step %d stands in the queue %q", p.run.ID, p.step, q.Step)
					}
					in := stand
					if f == &q.undoing.begun || f == &q.undoing.fresh {
						in = undoing
					}
					if p.run.active == (f == &q.undoing.begun || f == &q.all.begun) {
						in[p] = true
					}
				}
			}
			if n := len(q.undoing.begun.list) + len(q.undoing.fresh.list); n > 0 && w.Pause == nil {
				return fmt.Errorf("queue %q keeps %d steps of runs that are undoing, without a pause", q.Step, n)
			}
			if listed := slices.Contains(m.busy, q); listed != q.listed || q.Len() > 0 && !listed {
				return fmt.Errorf("queue %q of %d: busy %v, listed %v", q.Step, q.Len(), listed, q.listed)
			}
		}
	}
	for _, p := range m.suspects {
		if s := p.run.Step(int(p.step)); s == nil || !s.queued || s.Lost == 0 || stand[p] && p.waits() {
			return fmt.Errorf("run %s step %d stands among the suspects: %+v", p.run.ID, p.step, s)
		}
		stand[p] = true
	}
	for _, r := range m.all {
		for i, s := range r.Live() {
			if s.queued && !stand[stepRef{r, int32(i)}] {
				return fmt.Errorf("run %s step %d does not stand in its queue", r.ID, i)
			}
			if s.queued && s.Lost == 0 && r.Pause() == nil && r.Def.workflow.Pause != nil && !undoing[stepRef{r, int32(i)}] {
				return fmt.Errorf("run %s step %d, which is undoing, would wait while its workflow is paused", r.ID, i)
			}
		}
	}
	return nil
}

func legalCounts(m *Machine) error {
	type counts struct {
		active int
		by     [States]int
	}
	count, running := map[*Workflow]*counts{}, map[*Queue]int{}
	for _, w := range m.workflows {
		count[w] = new(counts)
	}
	for _, r := range m.all {
		c := count[r.Def.workflow]
		c.by[r.State()]++
		if r.active {
			c.active++
		}
		for i, s := range r.Live() {
			if s.Status == Running {
				running[r.StepDef(i).queue]++
			}
		}
	}
	for name, w := range m.workflows {
		if c := count[w]; w.Name != name || w.Active != c.active || w.Counts != c.by {
			return fmt.Errorf("workflow %q counts %d active and %v, recounted %d and %v", name, w.Active, w.Counts, c.active, c.by)
		}
		for _, q := range w.queues {
			if q.Running != running[q] {
				return fmt.Errorf("queue %q counts %d running, recounted %d", q.Step, q.Running, running[q])
			}
		}
	}
	return nil
}

func legalKeys(m *Machine) error {
	expires := map[expiry]bool{}
	for _, e := range m.ended {
		if expires[e] || m.keys[e.key].ended != e.at {
			return fmt.Errorf("key %q expires at %d, twice %v, and ended %d", e.key, e.at, expires[e], m.keys[e.key].ended)
		}
		expires[e] = true
	}
	for key, k := range m.keys {
		r, there := m.Run(k.id)
		switch {
		case k.id.IsZero() || key == "":
			return fmt.Errorf("key %q is of run %q", key, k.id)
		case there && r.Key != key:
			return fmt.Errorf("key %q is of run %s, which has the key %q", key, k.id, r.Key)
		case !there && k.ended == 0, there && (k.ended != 0) != (r.Finished() && !r.IsNeeded()):
			return fmt.Errorf("key %q of run %s: ended %d, in memory %v", key, k.id, k.ended, there)
		case k.ended != 0 && !expires[expiry{key, k.ended}]:
			return fmt.Errorf("key %q of run %s ended %d and never expires", key, k.id, k.ended)
		}
	}
	for _, r := range m.all {
		if r.Key != "" && !r.Finished() && !r.Continued() && m.keys[r.Key].id != r.ID {
			return fmt.Errorf("key %q of run %s is of %q", r.Key, r.ID, m.keys[r.Key].id)
		}
	}
	return nil
}

func legalRun(m *Machine, r *Run) error {
	if (r.flow != nil) != r.Def.Flow {
		return fmt.Errorf("operations %v, and the definition says %v", r.flow, r.Def.Flow)
	}
	if r.flow != nil {
		if err := legalFlow(m, r); err != nil {
			return err
		}
		return legalOutcome(r, r.Steps[:1])
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		_, parked := m.parked[r.Def.Steps[i].Handler][stepRef{r, int32(i)}]
		timed, live := s.timer != noTimer, hasTimers(r)
		switch {
		case s.Status == Waiting && live && timed == s.queued:
			return fmt.Errorf("step %d waits: timer %v, queued %v", i, timed, s.queued)
		case (s.Status != Waiting || !live) && (timed || s.queued):
			return fmt.Errorf("step %d does not wait: timer %v, queued %v", i, timed, s.queued)
		case parked != (s.Status == NoHandler):
			return fmt.Errorf("step %d is %v, parked %v", i, s.Status, parked)
		case s.Status == Blocked && needsMet(r, i):
			return fmt.Errorf("step %d is blocked by nothing", i)
		case s.Status != Blocked && s.Status != Complete && !needsMet(r, i):
			return fmt.Errorf("step %d is %v before what it needs", i, s.Status)
		case s.Spent > s.Attempt || s.Spent < 0:
			return fmt.Errorf("step %d has spent %d of %d attempts", i, s.Spent, s.Attempt)
		}
	}
	return legalOutcome(r, r.Steps)
}

// legalFlow checks the function and the operations of a run of a flow.
func legalFlow(m *Machine, r *Run) error {
	f, function, live := r.flow, &r.Steps[0], hasTimers(r)
	if len(r.Steps) != len(f.ops)+1 {
		return fmt.Errorf("%d steps and %d operations", len(r.Steps), len(f.ops))
	}
	timers := 0
	names, last, signals := map[string]bool{}, 0, false
	for n, s := range r.Live() {
		_, parked := m.parked[r.StepDef(n).Handler][stepRef{r, int32(n)}]
		timed := s.timer != noTimer
		if timed {
			timers++
		}
		switch {
		case timed && s.queued || (timed || s.queued) && !live:
			return fmt.Errorf("step %d: timer %v, queued %v, live %v", n, timed, s.queued, live)
		case parked != (s.Status == NoHandler):
			return fmt.Errorf("step %d is %v, parked %v", n, s.Status, parked)
		case s.Spent > s.Attempt || s.Spent < 0:
			return fmt.Errorf("step %d has spent %d of %d attempts", n, s.Spent, s.Attempt)
		case n == 0 && s.Status == Waiting && live && !timed && !s.queued:
			return fmt.Errorf("the function waits for nothing")
		case n == 0 && s.Status != Waiting && (timed || s.queued && s.Status != Blocked):
			return fmt.Errorf("the function is %v: timer %v, queued %v", s.Status, timed, s.queued)
		case n > 0 && s.Status != Waiting && (timed || s.queued):
			return fmt.Errorf("operation %d is %v: timer %v, queued %v", n, s.Status, timed, s.queued)
		case n > 0 && s.Status == Blocked && !r.IsCold() && OpKindOf(r.Flow().Identity(n)).Waits < ForSignal:
			return fmt.Errorf("operation %d is blocked, and waits for no signal and no child", n)
		case n > 0 && live && !r.IsCold() && r.Flow().IsUndoing() && !r.Flow().IsUndo(n) && !isChild(r, n) && s.Status != Running:
			return fmt.Errorf("operation %d is %v while the run is undoing", n, s.Status)
		case n > 0 && !r.IsCold() && r.Flow().IsUndo(n) && r.flow.undo == nil:
			return fmt.Errorf("operation %d undoes another one, and the run is not undoing", n)
		case n > 0 && (s.Status == Complete || s.Status == NoHandler || n <= last):
			return fmt.Errorf("operation %d is %v, after operation %d", n, s.Status, last)
		case n > 0 && !r.IsCold() && names[r.Flow().Identity(n)]:
			return fmt.Errorf("operation %s is there twice", r.Flow().Identity(n))
		case n > int(f.count) && !r.IsCold(): // a cold run has only the numbers of its operations
			return fmt.Errorf("operation %d of %d", n, f.count)
		}
		if n > 0 {
			names[r.Flow().Identity(n)], last = true, n
			signals = signals || s.Status == Blocked
			if name, ok := awaited(r.Flow().Identity(n)); ok && slices.ContainsFunc(valueOf(f.inbox).signals, func(s signal) bool { return s.name == name }) {
				return fmt.Errorf("operation %d waits for a signal that the run has", n)
			}
		}
	}
	if live && function.Status == Blocked && !function.queued && timers == 0 && r.running == 0 && !signals {
		return fmt.Errorf("the function is suspended, and no timer calls it again")
	}
	if r.IsCold() {
		return nil
	}
	attempts, size, former := 0, 0, 0
	for _, o := range resultsAt(f.results) {
		if names[o.Name] {
			return fmt.Errorf("operation %s has two results", o.Name)
		}
		names[o.Name] = true
		if o.Number == 0 {
			former++
		}
		attempts += o.Attempts
		size += len(o.Data) + len(o.Text)
	}
	if attempts != int(f.attempts) || size != int(f.size) || len(names)-former > int(f.count) {
		return fmt.Errorf("%d attempts, %d bytes, %d operations; counted %d, %d, %d", f.attempts, f.size, f.count, attempts, size, len(names))
	}
	return nil
}

// isChild reports whether an operation waits for a child.
func isChild(r *Run, n int) bool {
	_, ok := r.flow.ops[r.flow.index(n)].child()
	return ok
}

// legalOutcome checks the outcome and the counts of a run. steps are those that must be complete
// for the run to succeed.
func legalOutcome(r *Run, steps []StepState) error {
	var status, all [NoHandler + 1]int
	for _, s := range steps {
		status[s.Status]++
	}
	for _, s := range r.Steps {
		all[s.Status]++
	}
	going := status[Waiting] + status[NoHandler]
	if r.flow != nil {
		going += status[Blocked] // legalFlow checks that it is called again
	}
	switch {
	case all[Running] != int(r.running) || status[Complete] != int(r.done):
		return fmt.Errorf("%d running and %d complete, counted %d and %d", all[Running], status[Complete], r.running, r.done)
	case r.active && (!hasBegun(r) || r.Closed()) || !r.active && r.running > 0:
		return fmt.Errorf("active %v", r.active)
	case r.active && r.running == 0 && (r.Held || status[NoHandler] > 0):
		return fmt.Errorf("active, and nothing goes on")
	case r.shown != r.State():
		return fmt.Errorf("is %v, and shown as %v", r.State(), r.shown)
	case (r.Ended != 0) != (r.Outcome != Undecided):
		return fmt.Errorf("outcome %d, ended %d", r.Outcome, r.Ended)
	case r.Outcome == Succeeded && status[Complete] != len(steps):
		return fmt.Errorf("succeeded with %v", status)
	case r.Outcome == Undecided && r.running == 0 && going == 0:
		return fmt.Errorf("is stuck with %v", status)
	case r.Outcome == Undecided && r.running == 0 && r.Failing:
		return fmt.Errorf("failed and goes on with %v", status)
	case r.Failing && r.Outcome == Undecided && status[Exhausted] == 0:
		return fmt.Errorf("fails without a failure: %v", status)
	case len(r.History) > maxHistory:
		return fmt.Errorf("history of %d bytes", len(r.History))
	case (r.Outcome == Undecided && r.Deadline != 0) != (r.timer != noTimer):
		return fmt.Errorf("outcome %d, deadline %d, timer %d", r.Outcome, r.Deadline, r.timer)
	}
	return nil
}

// steps makes a definition of steps like "b needs a: fixed(1s) attempts=3".
func steps(t testing.TB, name string, lines ...string) *Definition {
	t.Helper()
	d := &Definition{Name: name}
	for _, line := range lines {
		head, policy, _ := strings.Cut(line, ": ")
		p, err := retry.Parse(policy)
		if err != nil {
			t.Fatal(err)
		}
		step, needs, _ := strings.Cut(head, " needs ")
		s := Step{Name: step, Policy: p, Handler: "work", MaxLost: 3, Args: json.RawMessage(`{"x":1}`)}
		if needs != "" {
			s.Needs = strings.Split(needs, ",")
		}
		d.Steps = append(d.Steps, s)
	}
	return d
}
