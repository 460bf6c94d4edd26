package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

var (
	editRuns  = flag.Int("edits.runs", 10, "runs of TestEditsOfAFlow that are in flight at each edit")
	editSeeds = flag.Uint64("edits.seeds", 1, "flows of TestEditsOfAFlow")
	editFirst = flag.Uint64("edits.first", 1, "seed of the first flow of TestEditsOfAFlow")
)

// editedOp is an operation of a flow that is edited. Its id stays the same in all versions.
type editedOp struct {
	id    int
	kind  string
	name  string
	names []string // earlier ones
}

// editedFlow is a version of a flow: stages, one after the other, of branches that run side by side.
type editedFlow struct {
	stages [][][]editedOp

	// What the code says about edits, by id. That of the cleanup of an operation is negative.
	added   map[int]bool
	renamed map[int]bool
	removed map[int][]string // names
}

func (p *editedFlow) clone() *editedFlow {
	next := &editedFlow{added: map[int]bool{}, renamed: map[int]bool{}, removed: map[int][]string{}}
	for _, stage := range p.stages {
		var branches [][]editedOp
		for _, b := range stage {
			branches = append(branches, slices.Clone(b))
		}
		next.stages = append(next.stages, branches)
	}
	for id, added := range p.added {
		next.added[id] = added
	}
	for id := range p.renamed {
		next.renamed[id] = true
	}
	for id, names := range p.removed {
		next.removed[id] = names
	}
	return next
}

// before returns the ids of the operations that come before each operation.
func (p *editedFlow) before() map[int][]int {
	all := map[int][]int{}
	var earlier []int
	for _, stage := range p.stages {
		var ids []int
		for _, b := range stage {
			path := slices.Clone(earlier)
			for _, o := range b {
				all[o.id] = slices.Clone(path)
				path = append(path, o.id)
				ids = append(ids, o.id)
			}
		}
		earlier = append(earlier, ids...)
	}
	return all
}

// effect is an entry of the log outside of the engine.
type effect struct {
	deploy int // number of the deployed code
	id     int // of the operation
	item   int
	kind   string
	at     time.Time
	ok     bool
	retry  bool // the run is retried; the other fields are not set
}

// effectLog has the effects of each run, in their order.
type effectLog struct {
	mu   sync.Mutex
	runs map[string][]effect
}

// add adds an entry, and returns how many the operation of the run has.
func (l *effectLog) add(run string, e effect) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.runs[run] {
		if !o.retry && o.id == e.id && o.item == e.item {
			n++
		}
	}
	e.at = time.Now()
	e.ok = e.kind != "breaks" && e.kind != "flaky" || n > 0
	l.runs[run] = append(l.runs[run], e)
	return n + 1
}

// edits makes versions of a flow.
type edits struct {
	*rand.Rand
	next int // id of the next operation
	log  effectLog
}

func (x *edits) op() editedOp {
	x.next++
	kinds := []string{"do", "do", "do", "flaky", "breaks", "map", "sleep", "sleep", "sleep", "now", "await"}
	kind := kinds[x.IntN(len(kinds))]
	return editedOp{id: x.next, kind: kind, name: fmt.Sprintf("%s-%d", kind, x.next)}
}

func (x *edits) flow() *editedFlow {
	p := &editedFlow{}
	for range 3 + x.IntN(3) {
		stage := make([][]editedOp, 1+x.IntN(2)*(1+x.IntN(2)))
		for i := range stage {
			for range 1 + x.IntN(3) {
				stage[i] = append(stage[i], x.op())
			}
		}
		x.next++
		stage[0] = slices.Insert(stage[0], x.IntN(len(stage[0])+1), editedOp{id: x.next, kind: "sleep", name: fmt.Sprintf("sleep-%d", x.next)})
		p.stages = append(p.stages, stage)
	}
	return p.clone()
}

// place returns a random place of an operation: a stage, a branch and an index.
func (x *edits) place(p *editedFlow) (s, b, i int) {
	for {
		s = x.IntN(len(p.stages))
		b = x.IntN(len(p.stages[s]))
		if n := len(p.stages[s][b]); n > 0 {
			return s, b, x.IntN(n)
		}
	}
}

func (p *editedFlow) take(s, b, i int) editedOp {
	o := p.stages[s][b][i]
	p.stages[s][b] = slices.Delete(p.stages[s][b], i, i+1)
	return o
}

func (p *editedFlow) put(s, b, i int, o editedOp) {
	p.stages[s][b] = slices.Insert(p.stages[s][b], i, o)
}

// cleanupOf returns the name of the operation that the function calls if o fails.
func cleanupOf(o editedOp) string { return fmt.Sprintf("cleanup[%d]", o.id) }

// edit returns the next version with the words that the change needs, and the same one without.
func (x *edits) edit(p *editedFlow, what string) (declared, forgotten *editedFlow) {
	next := p.clone()
	s, b, i := x.place(next)
	var say func(to *editedFlow)
	switch what {
	case "add":
		o := x.op()
		next.put(s, b, i, o)
		say = func(to *editedFlow) { to.added[o.id], to.added[-o.id] = true, true }
	case "remove":
		o := next.take(s, b, i)
		say = func(to *editedFlow) {
			to.removed[o.id], to.removed[-o.id] = append(slices.Clone(o.names), o.name), []string{cleanupOf(o)}
		}
	case "rename":
		o := &next.stages[s][b][i]
		o.names = append(slices.Clip(o.names), o.name)
		o.name = fmt.Sprintf("%s-%d-%d", o.kind, o.id, len(o.names))
		delete(next.renamed, o.id)
		wasAdded := next.added[o.id]
		delete(next.added, o.id) // the new name is not one that was added
		say = func(to *editedFlow) { to.renamed[o.id], to.added[o.id] = true, wasAdded }
	case "reorder":
		other := x.IntN(len(next.stages))
		next.stages[s], next.stages[other] = next.stages[other], next.stages[s]
		say = func(to *editedFlow) {
			for _, stage := range [][][]editedOp{to.stages[s], to.stages[other]} {
				for _, b := range stage {
					for _, o := range b {
						to.added[o.id], to.added[-o.id] = true, true
					}
				}
			}
		}
	case "branch":
		o := next.take(s, b, i)
		to := x.IntN(len(next.stages))
		next.stages[to] = append(next.stages[to], []editedOp{o})
		say = func(to *editedFlow) { to.added[o.id], to.added[-o.id] = true, true }
	}
	forgotten = next.clone()
	say(next)
	return next, forgotten
}

// workflow returns the code of a version.
func (x *edits) workflow(p *editedFlow, deploy int) *engine.Workflow {
	return engine.MustFlow("edited", func(f *engine.Flow, _ int) (string, error) {
		for _, names := range p.removed {
			engine.Removed(f, names...)
		}
		for _, stage := range p.stages {
			for _, b := range stage {
				for _, o := range b {
					if p.renamed[o.id] {
						for _, name := range o.names {
							engine.Renamed(f, name, o.name)
						}
					}
					if p.added[o.id] {
						engine.Added(f, o.name)
					}
					if p.added[-o.id] {
						engine.Added(f, cleanupOf(o))
					}
				}
			}
		}
		for _, stage := range p.stages {
			var branches []engine.FlowBranch
			for i, b := range stage {
				branches = append(branches, engine.Branch(strconv.Itoa(i), func(f *engine.Flow) error {
					for _, o := range b {
						if err := x.call(f, o, deploy); err != nil {
							return err
						}
					}
					return nil
				}))
			}
			if len(stage) > 1 {
				if err := engine.Branches(f, branches...); err != nil {
					return "", err
				}
				continue
			}
			for _, o := range stage[0] {
				if err := x.call(f, o, deploy); err != nil {
					return "", err
				}
			}
		}
		return "ok", nil
	})
}

// call calls an operation.
func (x *edits) call(f *engine.Flow, o editedOp, deploy int) (err error) {
	run := f.Run()
	work := func(item int) (int, error) {
		switch n := x.log.add(run, effect{deploy: deploy, id: o.id, item: item, kind: o.kind}); {
		case o.kind == "breaks" && n == 1:
			return 0, retry.Permanent(errors.New("broken"))
		case o.kind == "flaky" && n == 1:
			return 0, errors.New("flaky")
		}
		return 1, nil
	}
	do := func(context.Context) (int, error) { return work(0) }
	switch o.kind {
	case "sleep":
		return engine.Sleep(f, o.name, time.Duration(20+o.id%40)*time.Hour)
	case "now":
		_, err = engine.Now(f, o.name)
	case "await":
		_, err = engine.Await[int](f, o.name)
	case "map":
		_, err = engine.Map(f, o.name, []int{1, 2}, func(_ context.Context, item int) (int, error) { return work(item) })
	case "breaks":
		if _, err = engine.Do(f, o.name, do); err != nil {
			_, cleaned := engine.Do(f, "cleanup", func(context.Context) (int, error) {
				x.log.add(run, effect{deploy: deploy, id: -o.id, kind: "cleanup"})
				return 0, nil
			}, engine.ForKey(strconv.Itoa(o.id)))
			err = errors.Join(err, cleaned)
		}
	default:
		_, err = engine.Do(f, o.name, do, engine.Policy("fixed(3h) attempts=3"))
	}
	return err
}

// fitting returns the runs that have executed a new operation by the last deploy.
func (l *effectLog) fitting(deploys []*editedFlow) map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(deploys) - 1
	runs := map[string]bool{}
	for run, log := range l.runs {
		first := map[int]bool{}
		for _, e := range log {
			if !e.retry && !first[e.id] && e.deploy == last && e.id > 0 && !deploys[last].added[e.id] {
				runs[run] = true
			}
			first[e.id] = true
		}
	}
	return runs
}

// hasEffects reports whether operations of the kind are in the log.
func hasEffects(kind string) bool {
	return kind == "do" || kind == "flaky" || kind == "breaks" || kind == "map"
}

// judge returns what is wrong with the effects of a run. deploys has the code of each deploy, and
// parked the deploys with which the run was parked.
func (l *effectLog) judge(run string, deploys []*editedFlow, parked map[int]bool) (wrong []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	type item struct{ id, item int }
	succeeded := map[item]int{}
	called := map[int]int{} // index of the first effect, by id of the operation
	log := l.runs[run]
	var retried [][2]int // indexes of a failure and of the retry
	mayBeMissing := func(first int) bool {
		return slices.ContainsFunc(retried, func(r [2]int) bool { return !log[first].at.Before(log[r[0]].at) && first < r[1] })
	}
	failed := -1
	for at, e := range log {
		if e.retry {
			retried = append(retried, [2]int{failed, at})
			continue
		}
		if e.kind == "cleanup" {
			continue // only after a failure, and each time
		}
		if e.kind == "breaks" && !e.ok {
			failed = at
		}
		p := deploys[e.deploy]
		isAdded := p.added[e.id]
		first, isKnown := called[e.id]
		if e.ok {
			if succeeded[item{e.id, e.item}]++; succeeded[item{e.id, e.item}] > 1 && !isAdded && !mayBeMissing(first) {
				wrong = append(wrong, fmt.Sprintf("operation %d is executed twice, the second time by deploy %d", e.id, e.deploy))
			}
		}
		if isKnown {
			continue
		}
		if !isAdded && parked[e.deploy] {
			wrong = append(wrong, fmt.Sprintf("deploy %d executes operation %d, and parks the run", e.deploy, e.id))
		}
		before := p.before()
		for id, first := range called {
			if isAdded || mayBeMissing(first) {
				continue
			}
			needs, exists := before[id]
			if !exists && p.removed[id] == nil {
				wrong = append(wrong, fmt.Sprintf("deploy %d, which does not call operation %d of the run, executes operation %d", e.deploy, id, e.id))
			}
			for _, need := range needs {
				if _, ok := called[need]; !ok && need != e.id && kindOf(deploys, need) {
					wrong = append(wrong, fmt.Sprintf("deploy %d executes operation %d before it calls operation %d of the run, which comes after %d", e.deploy, e.id, id, need))
				}
				if need == e.id {
					wrong = append(wrong, fmt.Sprintf("deploy %d executes operation %d, which comes before operation %d of the run", e.deploy, e.id, id))
				}
			}
		}
		called[e.id] = at
	}
	return wrong
}

// parkedBefore and parkedAtEnd match the messages of runs that are parked by an edit.
var (
	parkedBefore = regexp.MustCompile(`^the run has a stored operation "([^"]+)" that the function did not call before the new operation "([^"]+)": deploy code that calls it, or that says engine.Renamed or engine.Removed; or engine.Added, to execute "([^"]+)" now;`)
	parkedAtEnd  = regexp.MustCompile(`^the run has a stored operation "([^"]+)" that the function did not call: deploy code that calls it, or that says engine.Renamed or engine.Removed;`)
)

// idOf returns the id of the operation with this name, or that it had before. That of a cleanup is
// negative.
func idOf(name string) (id int) {
	if n, _ := fmt.Sscanf(name, "cleanup[%d]", &id); n == 1 {
		return -id
	}
	_, number, _ := strings.Cut(name, "-")
	_, _ = fmt.Sscanf(number, "%d", &id)
	return id
}

// find returns the operation with this id; nil if the code does not call it.
func (p *editedFlow) find(id int) *editedOp {
	for _, stage := range p.stages {
		for _, b := range stage {
			for i := range b {
				if b[i].id == id {
					return &b[i]
				}
			}
		}
	}
	return nil
}

// follow adds the word to the code that the message of a parked run asks for. The author of the code
// knows which operations are renamed and removed. It returns false if the code has the word.
func (p *editedFlow) follow(message string) bool {
	match := parkedBefore.FindStringSubmatch(message)
	if match == nil {
		match = parkedAtEnd.FindStringSubmatch(message)
	}
	if match == nil {
		return false
	}
	missing, isNew := match[1], false
	rename := func(id int) bool {
		o := p.find(id)
		if o == nil || len(o.names) == 0 || p.renamed[id] {
			return false
		}
		p.renamed[id] = true
		return true
	}
	id := idOf(missing)
	switch {
	case len(match) > 2 && rename(idOf(match[2])), rename(id):
		return true
	case p.find(max(id, -id)) == nil, len(match) == 2: // the function may fail before it calls the operation
		if isNew = !slices.Contains(p.removed[id], missing); isNew {
			p.removed[id] = append(slices.Clip(p.removed[id]), missing)
		}
	default:
		id = idOf(match[3])
		isNew = !p.added[id]
		p.added[id] = true
	}
	return isNew
}

// kindOf reports whether the operation has effects.
func kindOf(deploys []*editedFlow, id int) bool {
	for _, p := range deploys {
		if o := p.find(id); o != nil {
			return hasEffects(o.kind)
		}
	}
	return false
}

// editTest is a flow whose code is edited while its runs are in flight.
type editTest struct {
	edits
	t       *testing.T
	e       *enginetest.Engine
	deploys []*editedFlow
	ids     []string
	parked  map[string]map[int]bool // by run: the deploys that parked it
	open    map[string]bool         // runs in flight

	parks    int // how often a run was parked
	repairs  int // deploys that follow the words of messages
	inFlight int // runs in flight, of all edits together
}

// forgetEnded forgets the runs that have ended.
func (x *editTest) forgetEnded() {
	x.t.Helper()
	for id := range x.open {
		if x.get(id).State == engine.StateSucceeded {
			delete(x.open, id)
		}
	}
}

// deploy deploys a version, lets time pass, and notes which runs are parked.
func (x *editTest) deploy(p *editedFlow) (parked []string) {
	x.t.Helper()
	w := x.workflow(p, len(x.deploys))
	x.deploys = append(x.deploys, p)
	synctest.Wait()
	if x.IntN(2) == 0 {
		x.e.Crash(w)
	} else {
		mustDo(x.t, x.e.Register(w))
	}
	x.letTimePass(time.Duration(1+x.IntN(5)) * time.Hour)
	synctest.Wait()
	for _, id := range x.ids {
		if !x.open[id] {
			continue
		}
		run := x.get(id)
		switch run.State {
		case engine.StateNeedsHandler:
			parked = append(parked, id)
			if x.parked[id] == nil {
				x.parked[id] = map[int]bool{}
			}
			x.parked[id][len(x.deploys)-1] = true
		case engine.StateSucceeded:
			delete(x.open, id)
		}
	}
	return parked
}

func (x *editTest) get(id string) *engine.Info {
	x.t.Helper()
	run, err := x.e.Get(x.t.Context(), id)
	mustDo(x.t, err)
	return run
}

// signalName returns the name of the signal for an operation that the run has called by this name:
// most senders know the deployed code.
func (x *editTest) signalName(called string) string {
	if o := x.deploys[len(x.deploys)-1].find(idOf(called)); o != nil && x.IntN(4) > 0 {
		return o.name
	}
	return called
}

// letTimePass lets time pass. Some runs get the signals that they wait for, and some dead ones are retried.
//
// real clock: enginetest.Test runs it in a bubble
func (x *editTest) letTimePass(d time.Duration) {
	x.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	for _, id := range x.ids {
		if !x.open[id] || x.IntN(2) == 0 {
			continue
		}
		run := x.get(id)
		if run.State == engine.StateDead {
			x.log.mu.Lock()
			x.log.runs[id] = append(x.log.runs[id], effect{retry: true})
			x.log.mu.Unlock()
			mustDo(x.t, x.e.Retry(x.t.Context(), id, "tester"))
			continue
		}
		for _, s := range run.Steps {
			if s.Kind == "await" && s.Status == "waiting" {
				mustDo(x.t, x.e.Signal(x.t.Context(), id, x.signalName(s.Name), 1))
			}
		}
	}
	time.Sleep(time.Minute)
}

// repair deploys code with the words that the messages of the parked runs ask for, until no run is
// parked. It returns the code.
func (x *editTest) repair(p *editedFlow, parked []string) *editedFlow {
	x.t.Helper()
	for len(parked) > 0 {
		next, isNew := p.clone(), false
		for _, id := range parked {
			isNew = next.follow(x.get(id).Error) || isNew
		}
		if !isNew {
			x.t.Errorf("%d runs stay parked although the code says what their messages ask for: run %s: %s", len(parked), parked[0], x.get(parked[0]).Error)
			return p
		}
		x.repairs++
		p = next
		parked = x.deploy(p)
		x.parks += len(parked)
	}
	return p
}

// startRuns starts runs in the course of ten hours, until this many are in flight.
//
// real clock: enginetest.Test runs it in a bubble
func (x *editTest) startRuns(inFlight int) {
	x.t.Helper()
	w, _ := x.e.Workflow("edited")
	start := func() {
		id := startFlow(x.t, x.e, w, 0)
		x.ids, x.open[id] = append(x.ids, id), true
	}
	more := inFlight - len(x.open)
	for range more {
		start()
		time.Sleep(10 * time.Hour / time.Duration(more+1))
	}
	x.letTimePass(10 * time.Hour / time.Duration(max(more, 0)+1))
	synctest.Wait()
	x.forgetEnded()
	for len(x.open) < inFlight {
		start()
	}
}

// TestEditsOfAFlow edits random flows 20 times while their runs are in flight. Half of the edits
// forget what the code must say. A log outside of the engine shows whether wrong code was executed.
// Each parked run is repaired by a deploy: of the code from before, or with the missing words, which
// are those of the edit or those that the message of the run asks for.
func TestEditsOfAFlow(t *testing.T) {
	for seed := range *editSeeds {
		t.Run(fmt.Sprint(*editFirst+seed), func(t *testing.T) {
			t.Parallel()
			x := &editTest{parked: map[string]map[int]bool{}, open: map[string]bool{}}
			x.Rand, x.log.runs = rand.New(rand.NewPCG(*editFirst+seed, 42)), map[string][]effect{}
			p := x.flow()
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				x.t, x.e = t, e
				x.editAndJudge(p)
			})
		})
	}
}

// editAndJudge edits the flow p, and judges the effects.
func (x *editTest) editAndJudge(p *editedFlow) {
	const edits = 20
	t := x.t
	x.deploys = append(x.deploys, p)
	mustDo(t, x.e.Register(x.workflow(p, 0)))
	for n := range 4 {
		x.startRuns((n + 1) * *editRuns / 5)
	}
	forgotten := 0
	for n := range edits {
		x.startRuns(*editRuns)
		x.inFlight += len(x.open)
		what := []string{"add", "remove", "rename", "reorder", "branch"}[n%5]
		declared, without := x.edit(p, what)
		p = declared
		if x.IntN(2) == 0 {
			forgotten++
			previous := x.deploys[len(x.deploys)-1]
			fits := x.log.fitting(x.deploys)
			parked := x.deploy(without)
			x.parks += len(parked)
			switch x.IntN(3) {
			case 0:
				p = x.repair(without, parked)
				continue
			case 1:
				for _, id := range x.deploy(previous) {
					if slices.Contains(parked, id) && fits[id] {
						t.Errorf("run %s is still parked after a rollback: %s", id, x.get(id).Error)
					}
				}
			}
		}
		left := x.deploy(p)
		x.parks += len(left)
		p = x.repair(p, left)
	}
	open := len(x.open)
	for range 400 {
		if len(x.open) == 0 || t.Failed() {
			break
		}
		p = x.repair(p, x.deploy(p))
	}
	if len(x.open) > 0 {
		t.Errorf("%d runs have not ended", len(x.open))
	}
	effects := 0
	for _, id := range x.ids {
		effects += len(x.log.runs[id])
		for _, wrong := range x.log.judge(id, x.deploys, x.parked[id]) {
			t.Errorf("run %s: %s", id, wrong)
		}
	}
	t.Logf("%d runs, on average %d of them in flight at each of %d edits, and %d after the last; %d deploys, %d edits without their words; %d times a run was parked, %d deploys followed the words of messages; %d effects",
		len(x.ids), x.inFlight/edits, edits, open, len(x.deploys), forgotten, x.parks, x.repairs, effects)
}
