package machine

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestDistribute distributes a random state over shards and joins them again. The result must be the
// same state, and later records must have the same effect.
func TestDistribute(t *testing.T) {
	first, seeds := uint64(1), max(*seedsFlag/2, 1)
	if *seedFlag != 0 {
		first, seeds = *seedFlag, 1
	}
	for seed := first; seed < first+seeds; seed++ {
		for _, n := range []int{1, 3, 32} {
			t.Run(fmt.Sprintf("seed=%d shards=%d", seed, n), func(t *testing.T) {
				g := newGame(t, seed)
				for range 40 {
					g.turn()
				}
				g.commit()
				whole := g.copied()
				l := NewLayout(n, whole)
				if g.chance(50) {
					l.Together("w1")
				}
				parts := g.distribute(l, whole)
				g.shadow = g.joined(parts)
				g.check("put together", g.shadow)
				apart := &apart{layout: l, parts: g.distribute(l, g.copied()), seen: len(g.log), defs: map[Hash]*Definition{}}
				for range 40 {
					g.turn()
				}
				g.quiesce()
				apart.follow(t, g)
				g.checkApart(apart.parts)
			})
		}
	}
}

// copied returns another machine with the state of the game's, part of which may
// be cold.
func (g *game) copied() *Machine {
	g.t.Helper()
	if n := len(g.whole); n > 0 && g.chance(70) {
		return g.restore(g.whole[g.rng.IntN(n)])
	}
	return replayed(g.t, g.log)
}

// distribute distributes the state and checks the shards. It returns the shards as they are restored
// from snapshots.
func (g *game) distribute(l *Layout, from ...*Machine) []*Machine {
	g.t.Helper()
	seed := maphash.MakeSeed()
	want, cold := g.tally(seed, from...), coldOf(from...)
	parts, err := l.Distribute(from...)
	if err != nil {
		g.t.Fatal(err)
	}
	if len(parts) != l.shards {
		g.t.Fatalf("%d shards, want %d", len(parts), l.shards)
	}
	if got := coldOf(parts...); got != cold {
		g.t.Errorf("%d runs are cold, want %d", got, cold)
	}
	restored := make([]*Machine, len(parts))
	for i, p := range parts {
		if err := errors.Join(legal(p), l.Check(i, p)); err != nil {
			g.t.Fatalf("shard %d: %v", i, err)
		}
		if !slices.IsSortedFunc(p.ended, func(a, b expiry) int { return cmp.Compare(a.at, b.at) }) {
			g.t.Fatalf("shard %d: keys expire in the order %v", i, p.ended)
		}
		for _, r := range p.all {
			if r.Dirty() != slices.Contains(p.changed, r) {
				g.t.Fatalf("shard %d: run %s is dirty %v, and not among the changed", i, r.ID, r.Dirty())
			}
		}
		s := p.Snapshot()
		if restored[i], err = Restore(bytes.NewReader(frames(s, nil, 3))); err != nil || s.Err() != nil {
			g.t.Fatalf("shard %d: %v, %v", i, err, s.Err())
		}
		if got, want := dump(restored[i], nil), dump(p, nil); got != want {
			g.t.Fatalf("a snapshot of shard %d differs from it\n%s", i, diff(got, want))
		}
	}
	if got := g.tally(seed, parts...); got != want {
		g.t.Fatalf("the shards have\n%+v, want\n%+v", got, want)
	}
	if got := g.tally(seed, restored...); got != want {
		g.t.Fatalf("the snapshots of the shards have\n%+v, want\n%+v", got, want)
	}
	if g.chance(50) {
		return restored
	}
	return parts
}

func (g *game) tally(seed maphash.Seed, of ...*Machine) (sum Tally) {
	g.t.Helper()
	for _, m := range of {
		t, err := m.Tally(seed)
		if err != nil {
			g.t.Fatal(err)
		}
		sum.Add(t)
	}
	return sum
}

func coldOf(of ...*Machine) (n int) {
	for _, m := range of {
		for _, r := range m.all {
			if r.IsCold() {
				n++
			}
		}
	}
	return n
}

// joined joins shards to one state.
func (g *game) joined(parts []*Machine) *Machine {
	g.t.Helper()
	m := g.distribute(NewLayout(1, parts...), parts...)[0]
	head, _ := g.m.Clock()
	if got, _ := m.Clock(); got != head {
		g.t.Fatalf("the clock says %+v, want %+v", got, head)
	}
	m.Begin(g.m.Seq(), head)
	return m
}

// checkApart compares the shards, after further records, with the state that was not distributed.
func (g *game) checkApart(parts []*Machine) {
	g.t.Helper()
	for i, p := range parts {
		if err := legal(p); err != nil {
			g.t.Fatalf("shard %d: %v", i, err)
		}
	}
	m := g.joined(parts)
	if err := legal(m); err != nil {
		g.t.Fatal(err)
	}
	if got, want := dump(m, g.gone), dump(g.m, g.gone); got != want {
		g.t.Fatalf("shards that lived apart differ from the whole\n%s", diff(got, want))
	}
	// When a definition was used last may differ: a shard forgets it with its own
	// last run, if others go on.
	if got, want := hashes(m.used), hashes(g.m.used); !slices.Equal(got, want) {
		g.t.Fatalf("definitions %x are stored, want %x", got, want)
	}
}

func hashes(used map[Hash]int64) []string {
	var list []string
	for h := range used {
		list = append(list, string(h[:]))
	}
	slices.Sort(list)
	return list
}

// apart is shards to which the same happens as to the whole.
type apart struct {
	layout *Layout
	parts  []*Machine
	seen   int // entries of the whole
	defs   map[Hash]*Definition
}

// follow applies the new records to the shards.
func (a *apart) follow(t *testing.T, g *game) {
	t.Helper()
	for _, d := range slices.Concat(g.defs, slices.Concat(slices.Collect(maps.Values(g.ops))...)) {
		a.defs[d.hash] = d
	}
	for ; a.seen < len(g.log); a.seen++ {
		begin := func(h Header) {
			for _, p := range a.parts {
				p.Begin(uint64(a.seen)+1, h)
			}
		}
		h, err := ReadEntry(g.log[a.seen], func(h Header, rec *Record) error {
			begin(h)
			for _, p := range a.of(rec) {
				if err := p.apply(rec, a.defs); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		begin(h)
	}
}

// apply is Machine.Apply for a shard that may not have the definition yet.
func (m *Machine) apply(rec *Record, defs map[Hash]*Definition) error {
	if d := defs[rec.Hash]; (rec.Kind == Started || rec.Kind == Called) && d != nil {
		if def, fresh := m.Define(d, rec.At); fresh {
			if err := m.Apply(&def); err != nil {
				return err
			}
		}
	}
	return m.Apply(rec)
}

// of returns the shards that a record is for.
func (a *apart) of(rec *Record) []*Machine {
	one := func(i int) []*Machine { return a.parts[i : i+1] }
	switch rec.Kind {
	case Opened, Defined, Jumped, Purged, Halted:
		return a.parts
	case Cron:
		return one(a.layout.OfSchedule(rec.Text))
	case Started:
		_, key, _ := strings.Cut(rec.Text, "\x00")
		return one(a.layout.OfRun(&Run{ID: rec.Run, Key: key, Def: a.defs[rec.Hash]}))
	default:
		return one(slices.IndexFunc(a.parts, func(p *Machine) bool { return p.byID(rec.Run) != nil }))
	}
}

func TestAWholeStateStandsInItsQueuesAgain(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	for i := range 50 {
		w.start(d, Start{At: w.now + int64(1+i*7%50)*sec})
	}
	w.pass(30 * time.Second)
	w.m.Due(w.now, 1<<30) // some stand in the queue
	parts, err := NewLayout(3, w.m).Distribute(w.m)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		p.Due(w.now, 5) // and some of some shards
	}
	all, err := NewLayout(1, parts...).Distribute(parts...)
	if err != nil {
		t.Fatal(err)
	}
	m := all[0]
	if err := legal(m); err != nil {
		t.Fatal(err)
	}
	m.Due(w.now+3600*sec, 1<<30)
	var due []int64
	for _, q := range m.Busy() {
		for {
			r, step, ok := q.First(orBegun(true))
			if !ok {
				break
			}
			due = append(due, r.Steps[step].At)
			m.dequeue(r, step)
		}
	}
	if len(due) != 50 || !slices.IsSorted(due) {
		t.Errorf("in the queue are those due %v", due)
	}
}

func TestOfKey(t *testing.T) {
	w := newWorld(t)
	w.do(Record{Kind: Cron, At: w.now, Text: "a/b", Due: 5, Data: []byte("x")}, nil)
	l := NewLayout(32, w.m)
	l.Together("counted")
	tests := []struct {
		name, key, workflow string
		want                int
	}{
		{"one of a schedule", "schedule/a/b/2026-01-02T03:04:05Z", "one", KeySlot("a/b")},
		{"one of a schedule, of a workflow that is counted", "schedule/a/b/2026-01-02T03:04:05Z", "counted", KeySlot("a/b")},
		{"one of a schedule that is not there", "schedule/c/2026-01-02T03:04:05Z", "one", KeySlot("schedule/c/2026-01-02T03:04:05Z")},
		{"one without a time", "schedule/a/b/c", "one", KeySlot("schedule/a/b/c")},
		{"one without anything", "schedule/", "one", KeySlot("schedule/")},
		{"one with a time alone", "schedule/2026-01-02T03:04:05Z", "one", KeySlot("schedule/2026-01-02T03:04:05Z")},
		{"another", "a/b", "one", KeySlot("a/b")},
		{"another of a workflow that is counted", "a/b", "counted", WorkflowSlot("counted")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := l.OfKey(test.key, test.workflow); got != test.want%32 {
				t.Errorf("OfKey(%q, %q) = %d, want %d", test.key, test.workflow, got, test.want%32)
			}
		})
	}
}

func TestRunsThatAreCountedAreTogether(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "counted", "a: fixed(1s)"))
	for i := range 20 {
		w.start(d, Start{Key: []string{"", fmt.Sprint("k", i)}[i%2]})
	}
	l := NewLayout(32, w.m)
	l.Together("counted")
	parts, err := l.Distribute(w.m)
	if err != nil {
		t.Fatal(err)
	}
	if m := parts[WorkflowSlot("counted")%32]; m.Len() != 20 || len(m.keys) != 10 {
		t.Errorf("%d runs and %d keys are together, want 20 and 10", m.Len(), len(m.keys))
	}
}

func TestAKeyDecidesAboutTheShard(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)"))
	id := w.id().In(KeySlot("k") + 1) // as an older version may have made it
	w.start(d, Start{ID: id, Key: "k"})
	free := w.start(d, Start{})
	done := w.start(d, Start{Key: "old"})
	w.do(w.m.Cancel(done.ID, "me", w.now))
	w.forget(done)
	parts, err := NewLayout(32, w.m).Distribute(w.m)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, _ := parts[KeySlot("k")%32].Keyed("k"); got != id {
		t.Errorf("the key is of %q, want %q", got, id)
	}
	if _, there := parts[KeySlot("k")%32].Run(id); !there {
		t.Error("the run is not where its key is")
	}
	if _, there := parts[free.ID.Slot()%32].Run(free.ID); !there {
		t.Error("a run without a key is not where its id says")
	}
	if got, _, _ := parts[KeySlot("old")%32].Keyed("old"); got != done.ID {
		t.Errorf("the key of a run that is over is of %q, want %q", got, done.ID)
	}
}

func TestShardsThatContradictEachOther(t *testing.T) {
	id := NewID(epoch, 1, 2)
	tests := []struct {
		name string
		do   func(w *world, d *Definition, n int)
		want string
	}{
		{"the same run", func(w *world, d *Definition, _ int) { w.start(d, Start{ID: id}) }, "two shards have run"},
		{"two runs with a key", func(w *world, d *Definition, _ int) { w.start(d, Start{Key: "k"}) }, `key "k" belongs to`},
		{"a run and a memory of one with its key", func(w *world, d *Definition, n int) {
			r := w.start(d, Start{Key: "k"})
			if n == 0 {
				w.do(w.m.Cancel(r.ID, "me", w.now))
				w.forget(r)
			}
		}, `key "k" belongs to`},
		{"a memory of a run and one with its key", func(w *world, d *Definition, n int) {
			r := w.start(d, Start{Key: "k"})
			if n == 1 {
				w.do(w.m.Cancel(r.ID, "me", w.now))
				w.forget(r)
			}
		}, `key "k" belongs to`},
		{"the same schedule", func(w *world, _ *Definition, n int) {
			w.do(Record{Kind: Cron, At: w.now, Text: "c", Due: 5, Data: []byte("x")}, nil)
		}, `two shards have schedule "c"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var from []*Machine
			for n := range 2 {
				w := newWorld(t)
				w.ids = uint64(100 * n)
				test.do(w, w.define(steps(t, "one", "a: fixed(1s)")), n)
				from = append(from, w.m)
			}
			_, err := NewLayout(1, from...).Distribute(from...)
			if !errors.Is(err, ErrEncoding) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Distribute = %v, want %q", err, test.want)
			}
		})
	}
}

func TestWhatIsInTheWrongShardIsFound(t *testing.T) {
	at := func(do func(*world, *Definition)) error {
		w := newWorld(t)
		do(w, w.define(steps(t, "one", "a: fixed(1s)")))
		l := NewLayout(Slots, w.m)
		return l.Check(Slots-1, w.m)
	}
	tests := []struct {
		name, want string
		do         func(*world, *Definition)
	}{
		{"a run", "run ", func(w *world, d *Definition) { w.start(d, Start{}) }},
		{"a schedule", "schedule ", func(w *world, _ *Definition) {
			w.do(Record{Kind: Cron, At: w.now, Text: "c", Due: 5, Data: []byte("x")}, nil)
		}},
		{"a key", "key ", func(w *world, d *Definition) {
			r := w.start(d, Start{Key: "k"})
			w.do(w.m.Cancel(r.ID, "me", w.now))
			w.forget(r)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := at(test.do); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("Check = %v", err)
			}
		})
	}
}

// Two states that differ in any detail must have different tallies.
func TestTally(t *testing.T) {
	seed := maphash.MakeSeed()
	tally := func(w *world) Tally {
		got, err := w.m.Tally(seed)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	changes := map[string]func(*world){
		"a schedule is due later": func(w *world) { w.m.schedules["c"].Due++ },
		"a schedule has changed":  func(w *world) { w.m.schedules["c"].Data[0]++ },
		"a key is of another run": func(w *world) { w.m.keys["k0"] = keyed{w.id(), w.m.keys["k0"].of, 0} },
		"a run has another input": func(w *world) { w.m.all[0].Input[0]++ },
		"a run waits longer":      func(w *world) { w.m.all[0].Steps[0].At++ },
		"a total is higher":       func(w *world) { w.m.workflows["fork"].Totals.Lost++ },
		"an attempt is over":      func(w *world) { w.finish(w.m.all[5], 0, Result{Failed: true}) },
	}
	want := tally(sample(t))
	if again := tally(sample(t)); again != want {
		t.Fatalf("Tally = %+v, and of the same state %+v", want, again)
	}
	if want.Orphans != 1 || want.Keys != 6 || want.Schedules != 1 || want.Empty() {
		t.Errorf("Tally = %+v", want)
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		t.Run(name, func(t *testing.T) {
			w := sample(t)
			changes[name](w)
			if got := tally(w); got == want || got.Sum == want.Sum {
				t.Errorf("Tally = %+v as before", got)
			}
		})
	}
	if got := tally(newWorld(t)); !got.Empty() {
		t.Errorf("Tally of nothing = %+v", got)
	}
}

func TestADefinitionIsLearned(t *testing.T) {
	w := newWorld(t)
	d := w.define(steps(t, "one", "a: fixed(1s)", "b needs a: fixed(1s)"))
	r := w.start(d, Start{})
	data := EncodeRun(r, nil)
	m := New()
	m.Learn(d.hash, w.m)
	m.Learn(d.hash, w.m)
	if _, err := m.Decode(data); err != nil {
		t.Errorf("Decode = %v", err)
	}
	if !slices.Equal(slices.Collect(m.Definitions()), []Hash{d.hash}) || m.used[d.hash] != w.now {
		t.Errorf("known are %x, used %v", slices.Collect(m.Definitions()), m.used)
	}
	if got := m.defs[d.hash]; got == w.m.defs[d.hash] || got.workflow == w.m.workflows["one"] || got.Steps[0].queue == w.m.defs[d.hash].Steps[0].queue {
		t.Error("what was learned is shared")
	}
}
