package engine_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

var (
	replaySeeds = flag.Uint64("replay.seeds", 1, "flows of TestReplayJudgesAsTheEngine")
	replayFirst = flag.Uint64("replay.first", 4, "seed of the first flow of TestReplayJudgesAsTheEngine")
)

// judged is what an engine did with a run after a deploy.
type judged struct {
	history enginetest.History
	deploy  int    // number of the deployed code
	now     string // why the run was parked at once, without executing anything; "" if it was not
	later   string // the same after time has passed
	state   string // after time has passed
}

// TestReplayJudgesAsTheEngine edits random flows, half of the times without the words that the edit
// needs. Each time, it notes what an engine does with runs in flight, and compares that with what
// Replay says about the histories that these runs had before.
func TestReplayJudgesAsTheEngine(t *testing.T) {
	for seed := range *replaySeeds {
		t.Run(fmt.Sprint(*replayFirst+seed), func(t *testing.T) {
			t.Parallel()
			x := &editTest{parked: map[string]map[int]bool{}, open: map[string]bool{}}
			x.Rand, x.log.runs = rand.New(rand.NewPCG(*replayFirst+seed, 43)), map[string][]effect{}
			var list []judged
			years := 10 * 365 * day
			enginetest.TestConfig(t, engine.Config{Retention: years, DeadRetention: years}, func(t *testing.T, e *enginetest.Engine) {
				x.t, x.e = t, e
				list = x.editAndNote(x.flow())
			})
			x.compare(t, list)
		})
	}
}

// editAndNote edits the flow p, and returns what the engine did with the runs.
//
// real clock: enginetest.Test runs it in a bubble
func (x *editTest) editAndNote(p *editedFlow) (list []judged) {
	t := x.t
	x.deploys = append(x.deploys, p)
	mustDo(t, x.e.Register(x.workflow(p, 0)))
	for range 6 {
		w, _ := x.e.Workflow("edited")
		for range 6 {
			id := startFlow(t, x.e, w, 0)
			x.ids, x.open[id] = append(x.ids, id), true
			time.Sleep(time.Duration(x.IntN(600)) * time.Minute)
		}
		for range x.IntN(3) {
			x.letTimePass(time.Hour)
		}
		declared, forgotten := x.edit(p, []string{"add", "remove", "rename", "reorder", "branch"}[x.IntN(5)])
		code := declared
		if x.IntN(2) == 0 {
			code = forgotten
		}
		list = append(list, x.note(code)...)
		p = x.repair(declared, x.deploy(declared))
	}
	return list
}

// note deploys code, and returns what the engine does with the runs.
//
// real clock: enginetest.Test runs it in a bubble
func (x *editTest) note(code *editedFlow) (list []judged) {
	t := x.t
	synctest.Wait()
	before := map[string]int{}
	for id := range x.open {
		h, err := x.e.History(t.Context(), id)
		mustDo(t, err)
		before[id] = len(x.log.runs[id])
		if !x.get(id).Finished() {
			list = append(list, judged{history: enginetest.History{Name: id, Data: h}, deploy: len(x.deploys)})
		}
	}
	slices.SortFunc(list, func(a, b judged) int { return strings.Compare(a.history.Name, b.history.Name) })
	w := x.workflow(code, len(x.deploys))
	x.deploys = append(x.deploys, code)
	x.e.Restart(w)
	mustDo(t, x.e.CallFunctions(t.Context()))
	parked := func(id string) string {
		run := x.get(id)
		if run.State != engine.StateNeedsHandler || len(x.log.runs[id]) > before[id] {
			return ""
		}
		reason, _, _ := strings.Cut(run.Error, "; the run continues when")
		return reason
	}
	synctest.Wait()
	for i := range list {
		list[i].now = parked(list[i].history.Name)
	}
	time.Sleep(400 * time.Hour)
	synctest.Wait()
	for i := range list {
		list[i].later, list[i].state = parked(list[i].history.Name), x.get(list[i].history.Name).State
	}
	return list
}

// compare replays the histories, and compares the verdicts with what the engine did.
func (x *editTest) compare(t *testing.T, list []judged) {
	t.Helper()
	effects := maps.Clone(x.log.runs)
	now, later, fits, ended := 0, 0, 0, 0
	for _, j := range list {
		got, err := j.history.Replay(t, x.workflow(x.deploys[j.deploy], j.deploy))
		mustDo(t, err)
		wrong := ""
		switch {
		case j.now != "":
			if now++; got.Parked != j.now {
				wrong = "parks it at once: " + j.now
			}
		case got.Parked != "":
			if later++; got.Parked != j.later {
				wrong = "does not park it, or because of: " + j.later
			}
		case got.Next == nil:
			if ended++; (got.Error == "") != (j.state == engine.StateSucceeded) {
				wrong = "lets it be " + j.state
			}
		default:
			fits++
		}
		if wrong != "" {
			t.Errorf("deploy %d, run %s: Replay returned %+v, and the engine %s", j.deploy, j.history.Name, got, wrong)
		}
	}
	for id, before := range effects {
		if len(x.log.runs[id]) != len(before) {
			t.Errorf("Replay has executed operations of run %s", id)
		}
	}
	t.Logf("%d runs are parked at once, %d later, %d come to an operation, %d end", now, later, fits, ended)
}
