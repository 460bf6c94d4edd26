package machine

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "play this seed alone")
	seedsFlag = flag.Uint64("seeds", 2, "how many seeds to play; a thousand take two minutes")
)

// TestLifeEqualsReplay executes random commands, with crashes, snapshots and changes of the clock.
// After each command it checks that a replay of the log gives the same state.
func TestLifeEqualsReplay(t *testing.T) {
	first, n := uint64(1), *seedsFlag
	if *seedFlag != 0 {
		first, n = *seedFlag, 1
	}
	for seed := first; seed < first+n; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			g := newGame(t, seed)
			for range 120 {
				g.turn()
			}
			g.quiesce()
		})
	}
}

// TestFamiliesKeepTheirKeys retries parents again and again, whose children are in all states. The
// judge checks that all children of one operation have the same idempotency keys.
func TestFamiliesKeepTheirKeys(t *testing.T) {
	first, n := uint64(1), *seedsFlag
	if *seedFlag != 0 {
		first, n = *seedFlag, 1
	}
	for seed := first; seed < first+n; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			g := newGame(t, seed)
			g.defs, g.families = nil, true
			for i := range 3 {
				name := fmt.Sprint("family", i)
				g.limits[name] = 1 << 30
				g.newFlow(&Definition{Name: name})
			}
			for range 120 {
				g.turn()
			}
			g.quiesce()
		})
	}
}

// game is a world of random events.
type game struct {
	families bool   // most commands are about parents and children
	coldBase uint32 // of the frames that cold runs are in
	*world
	defs     []*Definition
	ops      map[string][]*Definition // definitions of operations of flows, by workflow
	limits   map[string]int           // of active runs, by workflow
	handlers map[string]bool
	purged   map[ID]bool

	todo, writing []*Run // of the reader of changes

	distant     map[ID]Parent // children in other shards that have not ended
	everDistant map[ID]bool   // all children in other shards

	snap   *Snapshot
	frames []byte
	whole  []stored
}

// stored is a complete snapshot.
type stored struct {
	seq  uint64
	data []byte
}

func newGame(t *testing.T, seed uint64) *game {
	t.Helper()
	w := newWorld(t)
	w.rng = rand.New(rand.NewPCG(seed, 7))
	w.judge = newJudge(w)
	g := &game{world: w, limits: map[string]int{}, ops: map[string][]*Definition{}, handlers: map[string]bool{}, purged: map[ID]bool{}, distant: map[ID]Parent{}, everDistant: map[ID]bool{}}
	g.do(Record{Kind: Opened, At: w.now, Text: "boot 1"}, nil)
	for i := range 4 {
		g.handlers[fmt.Sprint("h", i)] = true
	}
	for i := range 4 {
		name := fmt.Sprint("w", i)
		g.limits[name] = []int{1, 2, 1 << 30}[w.rng.IntN(3)]
		g.newDefinition(name)
	}
	return g
}

func (g *game) chance(percent int) bool { return g.rng.IntN(100) < percent }

func (g *game) newDefinition(name string) {
	d := &Definition{Name: name}
	if g.chance(40) {
		d.Timeout = time.Duration(1+g.rng.IntN(100)) * time.Second
	}
	if name == "w3" || g.chance(10) {
		g.newFlow(d)
		return
	}
	n := 1 + g.rng.IntN(6)
	order := g.rng.Perm(n)
	d.Steps = make([]Step, n)
	for at, i := range order {
		s := &d.Steps[i]
		s.Name, s.Handler = fmt.Sprint("s", i), fmt.Sprint("h", g.rng.IntN(4))
		s.Policy, s.MaxLost, s.Windows = g.policy(), g.rng.IntN(4), g.rng.IntN(3)
		if g.chance(30) {
			s.Args = json.RawMessage(`[1]`)
		}
		for _, need := range order[:at] {
			if g.chance(35) {
				s.Needs = append(s.Needs, fmt.Sprint("s", need))
			}
		}
	}
	g.define(d)
	g.defs = append(g.defs, d)
}

// newFlow makes the definition that of a flow.
func (g *game) newFlow(d *Definition) {
	g.t.Helper()
	p := g.policy()
	p.AttemptTimeout, p.TotalTimeout = 0, 0
	d.Flow, d.Version = true, fmt.Sprint(g.rng.IntN(3))
	d.Steps = []Step{{Name: Function, Handler: fmt.Sprint("h", g.rng.IntN(4)), Policy: p, MaxLost: g.rng.IntN(4)}}
	g.define(d)
	g.defs = append(g.defs, d)
}

func (g *game) policy() retry.Policy {
	text := [...]string{
		"fixed(0s)", "fixed(1s)", "linear(500ms..10s)", "exponential(100ms..20s)",
		"exponential(1s..30s) jitter=full", "decorrelated(100ms..20s)", "fixed(2s) jitter=20%", "linear(1s) jitter=equal",
	}[g.rng.IntN(8)]
	text += [...]string{"", " attempts=2", " attempts=3", " attempts=5", " attempts=unlimited"}[g.rng.IntN(5)]
	text += [...]string{"", "", " attempt-timeout=3s"}[g.rng.IntN(3)]
	text += [...]string{"", "", "", " total-timeout=30s"}[g.rng.IntN(4)]
	text += [...]string{"", "", " throttle-base=2s", " server-wait=5s", " server-wait=1m server-slack=1s"}[g.rng.IntN(5)]
	text += [...]string{"", "", " reset-after=1s"}[g.rng.IntN(3)]
	p, err := retry.Parse(text)
	if err != nil {
		g.t.Fatalf("Parse(%q) = %v", text, err)
	}
	return p
}

// turn makes an entry with a few commands, and then some random events that happen between entries.
func (g *game) turn() {
	g.t.Helper()
	for range 1 + g.rng.IntN(4) {
		g.command()
		if err := legal(g.m); err != nil {
			g.t.Fatalf("after a record: %v", err)
		}
		for name, limit := range g.limits {
			if w := g.m.workflows[name]; w != nil && w.Active > limit {
				g.t.Fatalf("%d runs of %s are in progress, of at most %d", w.Active, name, limit)
			}
		}
		if g.chance(20) {
			g.pass(time.Duration(g.rng.Int64N(int64(50 * time.Millisecond))))
		}
	}
	g.commit()
	g.look()
	g.check("fold of the entries", g.shadow)
	g.photograph()
	if g.chance(2) {
		g.check("replay of all", replayed(g.t, g.log))
	}
	if g.chance(3) {
		g.accident()
	}
	if g.chance(50) {
		g.pass(time.Duration(g.rng.ExpFloat64() * float64(time.Second)))
	}
}

// command records a random command.
func (g *game) command() {
	g.t.Helper()
	g.due(1 + g.rng.IntN(20))
	if g.chance(70) {
		g.tellFamilies()
	}
	if g.families {
		g.familyCommand()
		return
	}
	switch p := g.rng.IntN(131); {
	case p >= 130:
		if rec, ok := g.m.Halt(g.defs[g.rng.IntN(len(g.defs))].Name, "operator", g.chance(30), g.now); ok {
			g.emit(rec)
		}
	case p >= 128:
		g.endDistant(1)
	case p >= 126:
		if r := g.any(); r != nil {
			g.undoByHand(r)
		}
	case p >= 120:
		if r := g.any(); r != nil {
			g.signalOne(r)
		}
	case p >= 100:
		g.callOne()
	case p < 22:
		g.startOne()
	case p < 45:
		g.dispatch()
	case p < 75:
		g.finishOne()
	default:
		g.rare(p)
	}
}

// familyCommand is command for parents and children: functions call children, give up after the
// failures of these, and are retried.
func (g *game) familyCommand() {
	g.t.Helper()
	one := func(rec Record, err error) {
		if err == nil {
			g.emit(rec)
		}
	}
	g.adoptFormer(40)
	r := g.any()
	switch p := g.rng.IntN(100); {
	case p < 6 || r == nil:
		g.startOne()
	case p < 30:
		g.dispatch()
	case p < 50:
		for _, r := range g.called() {
			switch {
			case r.Flow().IsUndoing() || len(g.m.all) > 40:
			case g.chance(30):
				g.callChild(r)
			case g.chance(20):
				g.emit(CallOp(r, &OpCall{Name: fmt.Sprintf("do:undoable%d", r.flow.count), Def: g.opDefinition(r), Undo: true}, g.now))
			}
		}
	case p < 55:
		for _, r := range g.called() {
			if r.Flow().IsUndoing() {
				g.undoOne(r)
			}
		}
		g.callOne()
	case p < 65:
		for _, r := range g.called() {
			if !r.Flow().IsUndoing() && g.chance(50) {
				g.giveUp(r)
			}
		}
	case p < 72:
		g.finishOne()
	case p < 90:
		for _, r := range append([]*Run(nil), g.m.all...) {
			if g.chance(50) {
				one(g.m.Retry(r.ID, "operator", g.now))
			}
		}
	case p < 92:
		one(g.m.Cancel(r.ID, "operator", g.now))
	case p < 94:
		g.endDistant(3)
	case p < 96:
		g.undoByHand(r)
	case p < 98:
		one(g.m.Replace(r.ID, g.id(), g.now))
	default:
		g.purge()
	}
}

// called returns the runs whose functions are called.
func (g *game) called() (list []*Run) {
	for _, r := range g.m.all {
		if r.flow != nil && r.Steps[0].Status == Running && r.Outcome == Undecided {
			list = append(list, r)
		}
	}
	return list
}

// giveUp ends the function of a run with the failures of all its operations.
func (g *game) giveUp(r *Run) {
	g.t.Helper()
	var failed []int
	for res := range ReadResults(r.Flow().Results()) {
		if res.Reason != 0 {
			failed = append(failed, res.Number)
		}
	}
	res := &Result{Run: r.ID, Attempt: int(r.Steps[0].Attempt), Failed: true, Error: "it broke", Redo: EncodeRedo(failed), Outcome: retry.Outcome{Class: retry.ClassPermanent}}
	if mustUndo(r) {
		g.emit(FailFunction(r, res, g.now))
	} else if rec, ok := g.m.Finish(res, g.now, g.rng.Uint64()); ok {
		g.emit(rec)
	}
}

func (g *game) rare(p int) {
	g.t.Helper()
	one := func(rec Record, err error) {
		if err == nil {
			g.emit(rec)
		}
	}
	r := g.any()
	if r == nil {
		return
	}
	switch {
	case p < 76:
		one(g.m.Hold(r.ID, "operator", g.now))
		if g.chance(60) {
			one(g.m.Free(r.ID, "operator", g.now))
		}
	case p < 78:
		one(g.m.Cancel(r.ID, "operator", g.now))
	case p < 79:
		recs, _ := g.m.Postpone(r.ID, g.now+g.rng.Int64N(int64(20*time.Second)), "operator", g.now)
		for _, rec := range recs {
			g.emit(rec)
		}
	case p < 80:
		one(g.m.Forgive(r.ID, "operator", g.now))
	case p < 83:
		one(g.m.Retry(r.ID, "operator", g.now))
	case p < 86:
		recs, _ := g.m.Wake(r.ID, "operator", g.now)
		for _, rec := range recs {
			g.emit(rec)
		}
	case p < 88:
		g.emit(Record{Kind: Cron, Text: fmt.Sprint("c", g.rng.IntN(3)), At: g.now, Due: g.now + g.rng.Int64N(1e12), Data: [][]byte{nil, {}, []byte("x")}[g.rng.IntN(3)]})
	case p < 90:
		g.learn()
	case p < 93:
		i := g.stepOf(r)
		if rec, ok := g.m.Report(r.ID, i, int(r.Step(i).Attempt), []byte(fmt.Sprint(g.now)), g.now); ok {
			g.emit(rec)
		}
	case p < 95:
		one(g.m.Replace(r.ID, g.id(), g.now))
	case p < 97:
		g.purge()
	case p < 99:
		g.jump()
	default:
		if d := g.defs[g.rng.IntN(len(g.defs))]; g.chance(50) {
			g.newDefinitionInEntry(d.Name)
		}
	}
}

// newDefinitionInEntry adds a changed definition, as a deployment does.
func (g *game) newDefinitionInEntry(name string) {
	g.t.Helper()
	g.commit()
	g.newDefinition(name)
}

func (g *game) any() *Run {
	if len(g.m.all) == 0 {
		return nil
	}
	return g.m.all[g.rng.IntN(len(g.m.all))]
}

func (g *game) startOne() {
	g.t.Helper()
	d := g.defs[g.rng.IntN(len(g.defs))]
	if rec, ok := g.m.Define(d, g.now); ok { // it may have been purged
		g.emit(rec)
	}
	c := &Start{ID: g.id(), Hash: d.Hash(), Source: [...]string{"", "cron", "api"}[g.rng.IntN(3)], Input: []byte(fmt.Sprintf(`{"n":%d}`, g.ids))}
	if g.chance(40) {
		c.Key = fmt.Sprint("k", g.rng.IntN(12))
	}
	if g.chance(25) {
		c.At = g.now + g.rng.Int64N(int64(20*time.Second)) - int64(2*time.Second)
	}
	if g.chance(15) {
		c.In = time.Duration(1 + g.rng.Int64N(int64(20*time.Second)))
	}
	if g.chance(25) {
		c.Timeout = time.Duration(1 + g.rng.Int64N(int64(40*time.Second)))
	}
	if o := g.any(); o != nil && g.chance(20) && o.Def.hash == d.hash {
		c.Previous, c.Outputs = o.ID, make([][]byte, len(d.Steps))
		if g.chance(80) { // else as a version did that kept only the previous run
			c.Origin, c.OriginKey = o.ID, o.Key
		}
		again := d.Downstream(g.rng.IntN(len(d.Steps)))
		for i := range d.Steps {
			if !again[i] {
				c.Outputs[i] = o.Output(i)
			}
		}
	}
	if g.chance(5) {
		c.Parent = Parent{Run: g.id(), Number: 1} // in another shard
	}
	rec, existing, err := g.m.Start(c, g.now)
	switch id, _, known := g.m.Keyed(c.Key); {
	case err != nil && !known:
		g.t.Fatalf("Start(%+v) = %v", c, err)
	case err == nil && existing != id:
		g.t.Fatalf("Start(%+v) says that %q exists, and %q has the key", c, existing, id)
	case err == nil && !known:
		g.emit(rec)
	}
}

func (g *game) signalName() string { return [...]string{"go", "stop"}[g.rng.IntN(2)] }

// signalOne sends a signal, some of them with the id of an earlier one.
func (g *game) signalOne(r *Run) {
	g.t.Helper()
	s := &Signal{Run: r.ID, Name: g.signalName(), ID: fmt.Sprint("s", g.rng.IntN(20)), By: "game", Data: []byte(fmt.Sprint(g.now))}
	if g.chance(30) {
		s.Former = []string{g.signalName()}
	}
	g.judge.former = s.Former
	defer func() { g.judge.former = nil }()
	rec, known, err := g.m.Signal(s, g.now)
	if err == nil && !known {
		g.emit(rec)
	}
	if ok := r.flow != nil && (known || r.Outcome == Undecided); ok != (err == nil) {
		g.t.Fatalf("a signal to a run in state %s: known %v, %v", r.State(), known, err)
	}
}

// signalAll sends each run a signal that it waits for. n is different in each call.
func (g *game) signalAll(n int) {
	g.t.Helper()
	for _, r := range append([]*Run(nil), g.m.all...) {
		if r.flow == nil || r.Outcome != Undecided {
			continue
		}
		if err := g.m.warm(r); err != nil {
			g.t.Fatal(err)
		}
		for i := range r.flow.ops {
			name, ok := awaited(r.flow.ops[i].name)
			if !ok {
				continue
			}
			rec, known, err := g.m.Signal(&Signal{Run: r.ID, Name: name, ID: fmt.Sprint("last", n), Data: []byte("1")}, g.now)
			if err != nil || known {
				g.t.Fatalf("signal %s: known %v, %v", name, known, err)
			}
			g.emit(rec)
			break
		}
	}
}

// dispatch begins attempts as the limits allow.
func (g *game) dispatch() {
	g.t.Helper()
	for _, p := range append([]stepRef(nil), g.m.suspects...) {
		r, step := p.run, int(p.step)
		if q := r.StepDef(step).Queue(); !r.InQueue(step) || r.Pause() != nil || g.chance(50) || q.Running >= 4 || !r.HasPlace() && q.Workflow.Active >= g.limits[q.Workflow.Name] {
			continue
		}
		if !g.ready(r, step) {
			continue
		}
		rec := BeginAttempt(r, step, g.now)
		if NeedsIsolation(r, step) {
			rec.Delay = Isolation(r, step)
		}
		g.emit(rec)
	}
	for _, q := range append([]*Queue(nil), g.m.Busy()...) {
		for q.Running < 4 && !g.chance(10) {
			r, step, ok := q.First(orBegun(q.Workflow.Active < g.limits[q.Workflow.Name]))
			if !ok {
				break
			}
			if g.ready(r, step) {
				g.emit(BeginAttempt(r, step, g.now))
			}
		}
	}
}

// ready reports whether the code for an attempt of a step is there. If it is not, the step leaves
// its queue: it is parked, or waits for its function.
func (g *game) ready(r *Run, step int) bool {
	g.t.Helper()
	switch {
	case r.flow == nil || step == 0:
		if !g.handlers[r.Def.Steps[step].Handler] {
			g.emit(Park(r, step, g.now))
			return false
		}
	case r.Steps[0].Status != Running || g.chance(10):
		g.m.Withdraw(r, step)
		g.m.CallAgain(r)
		return false
	}
	return true
}

// due handles what is due.
func (g *game) due(most int) {
	g.t.Helper()
	expired, slept := g.m.Due(g.now, most)
	for _, s := range slept {
		g.emit(g.m.Slept(s.Run, s.Number, g.now))
	}
	for _, r := range expired {
		g.emit(g.m.Expire(r, 0, g.now))
	}
}

// tellFamilies does what follows from the ends of runs, which a crash may have prevented: it cancels
// children, and tells parents.
func (g *game) tellFamilies() {
	g.t.Helper()
	for _, r := range append([]*Run(nil), g.m.all...) {
		if r.Outcome == Undecided && !r.Flow().IsUndoing() || r.Outcome != Undecided && !r.IsNeeded() {
			continue
		}
		if err := g.m.warm(r); err != nil {
			g.t.Fatal(err)
		}
		for _, c := range r.Flow().Children() {
			if !c.Detached {
				g.cancelChild(r, c)
			}
		}
		if p := r.Parent(); r.Outcome != Undecided && !p.Run.IsZero() && !p.Told {
			g.endChild(EndOfChild(r))
			g.emit(TellParent(r, g.now))
		}
		if g.chance(10) {
			return // the process may be killed here
		}
	}
}

// cancelChild cancels a child of a run that has ended or is undoing.
func (g *game) cancelChild(r *Run, c Child) {
	g.t.Helper()
	if _, distant := g.distant[c.ID]; distant {
		g.endChild(&ChildEnd{Parent: Parent{Run: r.ID, Number: c.Number}, Child: c.ID, Reason: retry.StopCanceled, Code: "canceled", Text: "canceled"})
		delete(g.distant, c.ID)
		return
	}
	if c.Run() != c.ID { // it is not known yet whether the former child continues
		g.endChild(&ChildEnd{Parent: Parent{Run: r.ID, Number: c.Number}, Child: c.Run(), Reason: retry.StopCanceled, Code: "canceled", Text: "it was not started"})
		return
	}
	child, here := g.m.Run(c.ID)
	for here && child.Continued() {
		child, here = g.m.Run(child.ReplacedBy())
	}
	if !here {
		return // it continues a run that is not in memory: the next one tells its end
	}
	if child.Outcome == Undecided {
		if rec, err := g.m.Cancel(child.ID, "its parent", g.now); err == nil {
			g.emit(rec)
		}
	}
}

// endDistant ends some children in other shards.
func (g *game) endDistant(most int) {
	g.t.Helper()
	ids := slices.SortedFunc(maps.Keys(g.distant), func(a, b ID) int { return bytes.Compare(a[:], b[:]) })
	for range min(most, len(ids)) {
		i := g.rng.IntN(len(ids))
		if rec, ok := g.m.StartChild(g.distant[ids[i]], ids[i], g.now); ok {
			g.emit(rec)
			continue
		}
		end := &ChildEnd{Parent: g.distant[ids[i]], Child: ids[i], Output: []byte(fmt.Sprint(g.now))}
		if g.chance(40) {
			end.Reason, end.Code, end.Text = retry.StopPermanent, "permanent", "the child is dead"
		}
		g.endChild(end)
		if g.chance(80) {
			delete(g.distant, ids[i]) // else it tells its end again
		}
	}
}

// endChild records the end of a child in its parent, if that is here and waits for it.
func (g *game) endChild(end *ChildEnd) {
	g.t.Helper()
	if rec, ok, err := g.m.EndChild(end, g.now); err == nil && ok {
		g.emit(rec)
	}
}

// undoByHand undoes or abandons the operations of a run.
func (g *game) undoByHand(r *Run) {
	g.t.Helper()
	rec, err := g.m.Undo(r.ID, "operator", g.now)
	if g.chance(30) {
		rec, err = g.m.Abandon(r.ID, "operator", g.now)
		rec.By = retry.ByHuman // so that the judge knows it from Cancel
	}
	if err == nil {
		g.emit(rec)
	}
}

// stepOf returns the number of a random step of the run.
func (g *game) stepOf(r *Run) (step int) {
	left := g.rng.IntN(len(r.Steps))
	for n := range r.Live() {
		if left == 0 {
			return n
		}
		left--
	}
	return 0
}

// callOne does what a function of a flow that is called can do: it calls operations, waits for
// those that it has called before, is suspended, does not fit its run, or is continued.
func (g *game) callOne() {
	g.t.Helper()
	called := g.called()
	if len(called) == 0 {
		return
	}
	r := called[g.rng.IntN(len(called))]
	switch n := g.rng.IntN(100); {
	case r.Flow().IsUndoing():
		g.undoOne(r)
	case n < 3 && mustUndo(r):
		g.emit(FailFunction(r, &Result{Error: "it broke", Redo: EncodeRedo(g.failedOps(r))}, g.now))
	case n < 60:
		for range 1 + g.rng.IntN(3) {
			g.callOp(r)
		}
	case n < 75:
		for n := range r.Live() {
			if n > 0 {
				g.m.Offer(r, n, g.now)
			}
		}
		for identity, number := range sortedPending(r) {
			if rec, ok := DeliverKept(r, number, AwaitKind+":"+g.signalName(), g.now); ok && strings.HasPrefix(identity, AwaitKind+":") {
				g.emit(rec)
			}
		}
	case n < 80:
		g.emit(Describe(r, fmt.Sprint("status ", g.now), fmt.Sprint("tags ", g.now), g.now))
	case n < 95:
		g.suspend(r)
	case n < 97:
		g.emit(ParkMismatch(r, "another operation was stored", g.now))
	default:
		g.continueOne(r)
	}
}

// sortedPending yields the operations that have not ended, by identity.
func sortedPending(r *Run) iter.Seq2[string, int] {
	pending := r.Flow().Pending()
	return func(yield func(string, int) bool) {
		for _, identity := range slices.Sorted(maps.Keys(pending)) {
			if !yield(identity, pending[identity]) {
				return
			}
		}
	}
}

// callOp calls an operation: one with attempts, a sleep, a wait for a signal, or one that ends at
// once.
func (g *game) callOp(r *Run) {
	g.t.Helper()
	c := &OpCall{Name: fmt.Sprintf("do:op%d", r.flow.count)}
	switch g.rng.IntN(6) {
	case 5:
		g.callChild(r)
		return
	case 2:
		c.Name = fmt.Sprintf("await:%s[%d]", g.signalName(), r.flow.count)
		if g.chance(50) {
			c.Due = g.now + g.rng.Int64N(int64(20*time.Second))
		}
	case 0:
		c.Name = fmt.Sprintf("sleep:op%d", r.flow.count)
		c.Due = g.now + g.rng.Int64N(int64(20*time.Second))
	case 1:
		c.Name, c.Data = fmt.Sprintf("now:op%d", r.flow.count), []byte(`"now"`)
	default:
		c.Def = g.opDefinition(r)
		if c.Undo = g.chance(30); c.Undo {
			c.Name = fmt.Sprintf("do:undoable%d", r.flow.count)
		}
	}
	c.Begin = c.Def != nil && g.chance(50) && g.m.EmptyQueue(r, c.Def) != nil
	g.emit(CallOp(r, c, g.now))
}

// opDefinition returns the definition of an operation with attempts. It has the name of the run's
// workflow, whose pause stops it.
func (g *game) opDefinition(r *Run) *Definition {
	g.t.Helper()
	ops := g.ops[r.Def.Name]
	if len(ops) == 0 || g.chance(10) {
		d := &Definition{Name: r.Def.Name, Op: true, Steps: []Step{
			{Name: fmt.Sprint("op", g.rng.IntN(5)), Handler: "operation", Policy: g.policy(), MaxLost: g.rng.IntN(4), Windows: g.rng.IntN(3)},
		}}
		if err := d.Prepare(); err != nil {
			g.t.Fatal(err)
		}
		ops = append(ops, d)
		g.ops[r.Def.Name] = ops
	}
	def := ops[g.rng.IntN(len(ops))]
	if rec, ok := g.m.Define(def, g.now); ok {
		g.emit(rec)
	}
	return def
}

// callChild calls an operation that starts a child, here or in another shard.
func (g *game) callChild(r *Run) {
	g.t.Helper()
	number := int(r.flow.count) + 1
	c := &Child{ID: ChildID(r, number, 0), Detached: g.chance(30)}
	if g.callAgain(r, c) {
		return
	}
	of := Parent{Run: r.ID, Number: number}
	d := g.defs[g.rng.IntN(len(g.defs))]
	if rec, ok := g.m.Define(d, g.now); ok {
		g.emit(rec)
	}
	g.emit(CallOp(r, &OpCall{Name: fmt.Sprintf("child:op%d", number), Child: c}, g.now))
	g.startChild(d, c, of)
}

// callAgain calls an operation again that had a child before, because a retry of the run has taken
// it back. It returns false if there is none.
func (g *game) callAgain(r *Run, c *Child) bool {
	g.t.Helper()
	stored := map[string]bool{}
	for identity := range r.Flow().Pending() {
		stored[identity] = true
	}
	for o := range ReadResults(r.Flow().Results()) {
		stored[o.Name] = true
	}
	for n := range int(r.flow.count) {
		identity := fmt.Sprintf("child:op%d", n+1)
		if g.judge.children[logicalOp{r.ID, identity}] == nil || stored[identity] || g.chance(30) {
			continue
		}
		c.Former = FormerChildren(r)[identity]
		g.emit(CallOp(r, &OpCall{Name: identity, Child: c}, g.now))
		return true
	}
	return false
}

// startChild starts the child of an operation, here or in another shard.
func (g *game) startChild(d *Definition, c *Child, of Parent) {
	g.t.Helper()
	if rec, ok := g.m.Define(d, g.now); ok {
		g.emit(rec)
	}
	if g.chance(40) || g.limits[d.Name] < 1<<30 { // a run that waits for a child keeps its place among the limited ones
		g.distant[c.ID], g.everDistant[c.ID] = of, true
		return
	}
	s := &Start{ID: c.ID, Hash: d.Hash(), Source: "child", Input: []byte("1"), Parent: of, Previous: c.Former.Origin, Origin: c.Former.Origin, Undos: c.Former.Undos}
	rec, existing, err := g.m.Start(s, g.now)
	if err != nil || !existing.IsZero() {
		g.t.Fatalf("start of a child: %v, %v", existing, err)
	}
	g.emit(rec)
}

// adoptFormer decides for some operations that were called again what becomes of their former
// children.
func (g *game) adoptFormer(percent int) {
	g.t.Helper()
	for _, r := range append([]*Run(nil), g.m.all...) {
		if r.flow == nil || r.Outcome != Undecided || r.Flow().IsUndoing() {
			continue
		}
		if err := g.m.warm(r); err != nil {
			g.t.Fatal(err)
		}
		for _, c := range r.Flow().Children() {
			if c.Run() != c.ID && g.chance(percent) {
				g.adopt(Parent{Run: r.ID, Number: c.Number}, c)
			}
		}
	}
}

// adopt has an operation wait for its former child, in whatever state that is.
func (g *game) adopt(of Parent, c Child) {
	g.t.Helper()
	started := func(id ID) {
		if rec, ok := g.m.StartChild(of, id, g.now); ok {
			g.emit(rec)
		}
	}
	id := c.Former.ID
	child, here := g.m.Run(id)
	for here && !child.ReplacedBy().IsZero() {
		id = child.ReplacedBy()
		child, here = g.m.Run(id)
	}
	if here {
		if err := g.m.warm(child); err != nil {
			g.t.Fatal(err)
		}
	}
	known := g.judge.runs[id]
	switch {
	case !here && g.everDistant[id] && g.chance(50):
		g.distant[id] = of
		started(id)
		return
	case !here && g.everDistant[id] && g.chance(50),
		!here && known != nil && known.outcome == Succeeded && g.judge.continued[id].IsZero() && g.gone[id]:
		end := &ChildEnd{Parent: of, Child: id, Output: []byte(fmt.Sprint(g.now)), Undos: c.Former.Undos}
		if known != nil {
			end.Undos = known.allUndos()
		}
		g.endChild(end)
		return
	case here && child.Outcome == Succeeded:
		end := EndOfChild(child)
		end.Parent = of
		g.endChild(end)
		return
	case here && child.Outcome != Undecided && !child.Closed():
		return // later
	case here && child.Outcome == Dead:
		rec, err := g.m.Retry(id, "its parent", g.now)
		if err != nil {
			return // later: its children are being canceled
		}
		g.emit(rec)
		if g.chance(10) {
			return // the process may be killed here
		}
		fallthrough
	case here && child.Outcome == Undecided:
		g.emit(AdoptRun(child, of, g.now))
		if g.chance(90) {
			started(id)
		}
		return
	case here:
		c.Former.Undos = max(c.Former.Undos, AllUndos(child))
	}
	g.startChild(g.defs[g.rng.IntN(len(g.defs))], &c, of)
	started(c.ID)
}

// undoOne does what the function of a run that is undoing does: it waits for its operations, calls
// an undo, and says when all are done, or one has failed.
func (g *game) undoOne(r *Run) {
	g.t.Helper()
	if len(r.flow.ops) > 0 {
		for n := range r.Live() {
			if n > 0 {
				g.m.Offer(r, n, g.now)
			}
		}
		if g.chance(30) {
			g.suspend(r)
		}
		return
	}
	todo, undone := []string{}, map[string]bool{}
	var failed []int
	for o := range ReadResults(r.Flow().Results()) {
		if undone[OpName(o.Name)] = isUndo(o.Name); isUndo(o.Name) && o.Reason != 0 {
			failed = append(failed, o.Number)
		}
	}
	for name, is := range undone {
		if !is && strings.HasPrefix(name, "undoable") {
			todo = append(todo, name)
		}
	}
	switch slices.Sort(todo); {
	case len(failed) > 0:
		g.emit(EndUndo(r, "an undo failed", EncodeRedo(failed), g.now))
	case len(todo) == 0:
		g.emit(EndUndo(r, "", nil, g.now))
	default:
		g.emit(CallOp(r, &OpCall{Name: UndoKind + ":" + todo[len(todo)-1], Def: g.opDefinition(r)}, g.now))
	}
}

// suspend ends the call of a function, if operations wait for long.
func (g *game) suspend(r *Run) {
	g.t.Helper()
	waiting := 0
	for n, s := range r.Live() {
		if n > 0 && (s.Status == Blocked || s.Status == Waiting && s.timer != noTimer && s.At-g.now > sec) {
			waiting++
		}
	}
	if waiting > 0 && hasTimers(r) {
		g.emit(Suspend(r, 1+g.rng.IntN(waiting), g.now))
	}
}

// continueOne ends a run that another one continues.
func (g *game) continueOne(r *Run) {
	g.t.Helper()
	c := &Start{ID: g.id(), Hash: r.Def.hash, Key: r.Key, Input: []byte(`"next"`), Source: "continues", Continues: r.ID, Inbox: r.Flow().Inbox(), Parent: r.Parent()}
	if rec, ok := g.m.Define(r.Def, g.now); ok {
		g.emit(rec)
	}
	g.emit(ContinueAs(r, c.ID, g.now))
	rec, existing, err := g.m.Start(c, g.now)
	if err != nil || !existing.IsZero() {
		g.t.Fatalf("Start(%+v) = %v, %v", c, existing, err)
	}
	g.emit(rec)
}

func (g *game) finishOne() {
	g.t.Helper()
	var running []stepRef
	g.m.Orphans(func(r *Run, step int) { running = append(running, stepRef{r, int32(step)}) })
	if len(running) == 0 {
		return
	}
	p := running[g.rng.IntN(len(running))]
	attempt := int(p.run.Step(int(p.step)).Attempt)
	c := &Result{Run: p.run.ID, Step: int(p.step), Attempt: attempt, Code: "code"}
	if p.run.IsFunction(int(p.step)) && g.chance(70) {
		return // a function is called for longer than attempts last
	}
	switch n := g.rng.IntN(100); {
	case n < 35 && !(p.run.IsFunction(int(p.step)) && p.run.Flow().IsUndoing()):
		c.Output = [][]byte{nil, []byte("1"), []byte(`"out"`)}[g.rng.IntN(3)]
	case n < 80:
		c.Failed, c.Error = true, "it broke"
		switch g.rng.IntN(8) {
		case 0:
			c.Outcome.After = time.Duration(g.rng.Int64N(int64(10 * time.Second)))
		case 1:
			c.Outcome.Class = retry.ClassThrottled
		case 2:
			c.Outcome.Class = retry.Class(g.rng.IntN(int(retry.ClassStuck) + 1))
		case 3:
			c.Outcome.Delay = time.Second
		case 4:
			c.Outcome.Final = g.chance(30)
		}
	case n < 90 && !p.run.IsFunction(int(p.step)):
		c.Snooze, c.Error = time.Duration(1+g.rng.Int64N(int64(5*time.Second))), "not yet"
		if g.chance(50) {
			c.Until = g.now + g.rng.Int64N(int64(20*time.Second)) - int64(2*time.Second)
		}
		c.Limited = g.chance(50)
		if g.chance(50) {
			c.Memo = []byte(fmt.Sprint(g.now))
		}
	case n < 97:
		c.Release, c.Error = true, "the process ends"
	default:
		c.Attempt-- // stale
	}
	if c.Failed && p.run.IsFunction(int(p.step)) {
		c.Redo = EncodeRedo(g.failedOps(p.run))
	}
	rec, ok := g.m.Finish(c, g.now, g.rng.Uint64())
	if stale := c.Attempt != attempt; ok == stale {
		g.t.Fatalf("Finish(%+v) = %+v, %v", c, rec, ok)
	} else if ok {
		g.emit(rec)
	}
}

// failedOps returns the numbers of some operations of a run that have failed.
func (g *game) failedOps(r *Run) (numbers []int) {
	for res := range ReadResults(r.Flow().Results()) {
		if res.Reason != 0 && g.chance(50) {
			numbers = append(numbers, res.Number)
		}
	}
	return numbers
}

// learn registers or unregisters a handler.
func (g *game) learn() {
	g.t.Helper()
	h := fmt.Sprint("h", g.rng.IntN(4))
	if g.handlers[h] = !g.handlers[h]; g.handlers[h] {
		g.unparkAll(h)
	}
}

func (g *game) unparkAll(h string) {
	g.t.Helper()
	var parked []stepRef
	g.m.Parked(h, func(r *Run, step int) { parked = append(parked, stepRef{r, int32(step)}) })
	for _, p := range parked {
		g.emit(Unpark(p.run, int(p.step), g.now))
	}
}

func (g *game) purge() {
	g.t.Helper()
	// A run is never purged by the same entry that ends it.
	kept := func() int64 { return int64(time.Second) + g.rng.Int64N(int64(20*time.Second)) }
	keep := map[ID]bool{}
	for _, r := range g.m.All() {
		if g.rng.IntN(4) == 0 {
			keep[r.ID] = true
		}
	}
	rec, ok := g.m.Purge(g.now-kept(), g.now-kept(), keep)
	if !ok {
		return
	}
	g.emit(rec)
	for _, id := range g.m.TakePurged() {
		if keep[id] {
			g.t.Fatalf("run %s is purged, and was to be kept", id)
		}
		if g.purged[id] {
			g.t.Fatalf("run %s is purged twice", id)
		}
		g.judge.removed(id)
		g.purged[id] = true
	}
}

// jump sets the wall clock. No time passes.
func (g *game) jump() {
	g.t.Helper()
	by := g.rng.Int64N(int64(60*time.Second)) - int64(30*time.Second)
	g.commit()
	g.now += by
	g.emit(Record{Kind: Jumped, At: g.now, Delay: time.Duration(by)})
}

// look simulates the reader of changes: it takes some changed runs, writes them some time later, and
// then removes the finished ones from memory.
func (g *game) look() {
	g.t.Helper()
	if !g.chance(40) {
		return
	}
	for _, r := range g.writing {
		if r.Dirty() || g.chance(20) {
			continue
		}
		_, there := g.m.Run(r.ID)
		if err := g.m.Forget(r); err != nil {
			g.t.Fatal(err)
		}
		if _, still := g.m.Run(r.ID); there && !still {
			g.judge.removed(r.ID)
			g.gone[r.ID] = true
		}
	}
	g.writing = nil
	if len(g.todo) == 0 {
		g.todo = g.m.TakeChanged()
	}
	n := min(len(g.todo), 1+g.rng.IntN(10))
	for _, r := range g.todo[:n] {
		r.Seen()
		if _, there := g.m.Run(r.ID); there && r.Finished() {
			g.writing = append(g.writing, r)
		}
	}
	g.todo = g.todo[n:]
}

// photograph writes the next part of a snapshot, and checks the snapshot when it is complete.
func (g *game) photograph() {
	g.t.Helper()
	if g.snap == nil {
		if !g.chance(15) {
			return
		}
		g.snap, g.frames = g.m.Snapshot(), nil
		if g.chance(50) {
			return
		}
	}
	more := true
	for n := g.rng.IntN(3); n > 0 && more; n-- {
		g.frames, more = g.snap.Next(g.frames, 1+g.rng.IntN(4))
	}
	if more {
		return
	}
	g.snap.Stop()
	g.whole = append(g.whole, stored{g.snap.Seq, g.frames})
	g.whole = g.whole[max(0, len(g.whole)-4):]
	g.chill()
	g.snap = nil
	if err := Verify(bytes.NewReader(g.frames)); err != nil {
		g.t.Fatal(err)
	}
	if m, err := Restore(bytes.NewReader(g.frames[:g.rng.IntN(len(g.frames))])); err == nil {
		g.t.Fatalf("Restore of a part is a machine with %d runs", m.Len())
	}
	g.checkSnapshots()
}

// chill moves runs out of memory into the snapshot that was just written.
func (g *game) chill() {
	g.t.Helper()
	if g.chance(30) {
		return
	}
	was, now := g.m.load, bodies(g.t, g.frames)
	g.coldBase ^= 1 << 31
	base := g.coldBase
	load := loadFrom(now)
	g.m.Cold(func(frame uint32) ([]byte, error) {
		if frame&(1<<31) == base {
			return load(frame)
		}
		return was(frame)
	})
	for g.snap.Chill(g.now-3600*sec, base, 1+g.rng.IntN(5)) {
		g.check("while runs are made cold", g.shadow)
	}
	g.m.Cold(load)
	g.check("with cold runs", g.shadow)
}

// loadFrom returns a Load of these contents. As its users must expect, each result is overwritten
// by the next call.
func loadFrom(bodies map[uint32][]byte) Load {
	var last []byte
	return func(frame uint32) ([]byte, error) {
		for i := range last {
			last[i] = 0xee
		}
		last = bytes.Clone(bodies[frame&^(1<<31)])
		return last, nil
	}
}

// bodies returns the contents of the frames of runs, by their number.
func bodies(t testing.TB, data []byte) map[uint32][]byte {
	t.Helper()
	found := map[uint32][]byte{}
	in := readFrames(bytes.NewReader(data))
	for n := uint32(0); ; n++ {
		kind, body, err := in.next(frameState, frameRuns, frameEnd)
		if err != nil {
			t.Fatal(err)
		}
		if kind == frameEnd {
			return found
		}
		found[n] = bytes.Clone(body)
	}
}

func (g *game) checkSnapshots() {
	g.t.Helper()
	for _, s := range g.whole {
		g.check(fmt.Sprintf("snapshot of entry %d and the log until %d", s.seq, len(g.log)), g.restore(s))
	}
}

func (g *game) restore(s stored) *Machine {
	g.t.Helper()
	m, err := Restore(bytes.NewReader(s.data))
	if g.chance(50) {
		m, err = RestoreAt(bytes.NewReader(s.data), g.now-3600*sec, true)
		m.Cold(loadFrom(bodies(g.t, s.data)))
	}
	if err != nil {
		g.t.Fatalf("Restore = %v", err)
	}
	if m.Seq() != s.seq {
		g.t.Fatalf("Restore is at entry %d, want %d", m.Seq(), s.seq)
	}
	replay(g.t, m, g.log)
	return m
}

// accident kills the process and starts another one, which finds orphaned attempts.
func (g *game) accident() {
	g.t.Helper()
	var from *Machine
	if n := len(g.whole); n > 0 && g.chance(70) {
		from = g.restore(g.whole[g.rng.IntN(n)])
	}
	g.crash(from)
	g.coldBase = 0
	g.snap, g.todo, g.writing = nil, nil, nil
	g.m.TakePurged()
	g.check("after a crash", g.shadow)
	g.pass(time.Duration(g.rng.Int64N(int64(10 * time.Second))))
	g.emit(Record{Kind: Opened, At: g.now, Text: "boot 1"})
	if g.chance(30) {
		g.jump()
	}
	var lost, recalled []stepRef
	g.m.Orphans(func(r *Run, step int) {
		if r.IsFunction(step) && AwaitsOp(r) {
			recalled = append(recalled, stepRef{r, int32(step)})
		} else {
			lost = append(lost, stepRef{r, int32(step)})
		}
	})
	for _, p := range lost {
		g.emit(LoseAttempt(p.run, int(p.step), g.now, g.chance(30)))
	}
	for _, p := range recalled {
		g.emit(RecallFunction(p.run, g.now))
	}
	g.commit()
	g.check("after the lost attempts", g.shadow)
}

// quiesce lets all runs end: all handlers are registered, and succeed.
func (g *game) quiesce() {
	g.t.Helper()
	for h := range g.handlers {
		g.handlers[h] = true
		g.unparkAll(h)
	}
	for _, r := range g.m.all {
		if r.Held {
			rec, err := g.m.Free(r.ID, "the end", g.now)
			if err != nil {
				g.t.Fatal(err)
			}
			g.emit(rec)
		}
	}
	for name := range g.m.workflows {
		if rec, ok := g.m.Halt(name, "the end", false, g.now); ok {
			g.emit(rec)
		}
	}
	for idle, n := 0, 0; n < 20_000; n++ {
		g.due(1 << 30)
		g.signalAll(n)
		g.tellFamilies()
		g.adoptFormer(100)
		g.endDistant(10)
		g.dispatch()
		var running []stepRef
		g.m.Orphans(func(r *Run, step int) { running = append(running, stepRef{r, int32(step)}) })
		for _, p := range running {
			g.end(p.run, int(p.step))
		}
		idle++
		if g.open {
			idle = 0
		}
		g.commit()
		if next := g.m.Next(); next > g.now && idle > 30 { // dispatch is lazy
			if g.m.Waiting() == 0 {
				break
			}
			g.pass(time.Duration(next - g.now))
			idle = 0
		}
	}
	for _, r := range g.m.all {
		if !r.Closed() || r.IsNeeded() {
			g.t.Fatalf("run %s never ends, or is needed: %s", r.ID, dumpRun(r))
		}
	}
	g.check("at the end", g.shadow, replayed(g.t, g.log))
	g.checkSnapshots()
	for id := range g.purged {
		if r, there := g.m.Run(id); there {
			g.t.Fatalf("run %s was purged and is there: %s", id, dumpRun(r))
		}
	}
}

// end ends a running attempt. A function ends when its operations have ended.
func (g *game) end(r *Run, step int) {
	g.t.Helper()
	if r.IsFunction(step) && r.Flow().IsUndoing() && r.Outcome == Undecided {
		g.undoOne(r)
		return
	}
	if r.IsFunction(step) && len(r.flow.ops) > 0 && r.Outcome == Undecided {
		for n := range r.Live() {
			if n > 0 {
				g.m.Offer(r, n, g.now)
			}
		}
		if g.chance(50) {
			g.suspend(r)
		}
		return
	}
	c := &Result{Run: r.ID, Step: step, Attempt: int(r.Step(step).Attempt), Failed: g.chance(30)}
	rec, ok := g.m.Finish(c, g.now, g.rng.Uint64())
	if !ok {
		g.t.Fatalf("Finish(%+v): there is nothing to record", c)
	}
	g.emit(rec)
}
