package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/internal/plainjson"
)

// enginetest.Replay opens an engine with a [replay.Log], which has one run. The engine calls the
// function of the run as always, with the same checks, but it begins no operation except sleeps, and
// does not record the end of the function. It reports what it would have done.

// History returns the history of a run as JSON, for the package enginetest: its function Replay tells
// whether new code would park the run. It has the run's data: input, results of operations, errors
// and signals. Of definitions, it has no arguments of steps.
func (e *Engine) History(ctx context.Context, id string) (json.RawMessage, error) {
	a, err := e.of(ctx, id, &call{Op: opHistory})
	return a.History, oldMemberError(err)
}

// history returns the history of a run.
func (q *queries) history(ctx context.Context, id string) (json.RawMessage, error) {
	r, err := q.load(ctx, id)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	h := replay.History{Format: replay.Format, Run: r.ID.String(), Workflow: r.Def.Name, Version: r.Def.Version, State: r.State().String(), At: now}
	if h.Data, err = machine.Extract(r, now.UnixNano()); err != nil {
		return nil, fmt.Errorf("history of run %s: %w", id, err)
	}
	return plainjson.Marshal(h)
}

// longReplay is how long the owner of a replayed run waits, at most, while the run only sleeps: a sleep
// for a year takes no more turns than one for a minute.
const longReplay = 365 * 24 * time.Hour

// report reports how code would continue the run of a replay.
func (d *dispatcher) report(v replay.Verdict) {
	if log := d.sh.replay; log != nil {
		log.Report(v)
	}
}

// isHeldBack reports whether the group is not begun, because the engine only replays a run. A sleep
// has no effect, and its result is known.
func (d *dispatcher) isHeldBack(g *opGroup) bool {
	return d.sh.replay != nil && (g.def != nil || g.isAwait || g.child != nil)
}

// heldBack returns the names of the operations that the function waits for and that are held back;
// nil if there are none.
func (d *dispatcher) heldBack(c *flowCall) (names []string) {
	for g := range c.groups.all {
		switch {
		case !d.isHeldBack(g):
		case g.isUndo:
			names = append(names, g.name)
		default:
			names = append(names, label(g.name))
		}
	}
	return names
}

// verdictOf returns the verdict about a run whose function has ended.
func verdictOf(end *flowEnd) (v replay.Verdict) {
	switch {
	case end.undone != nil:
		v.Error = end.undone.text
	case end.again != nil, !end.result.Failed && !end.result.Release:
	case end.isError:
		v.Error = end.result.Error
	default:
		v.Failed = end.result.Error
	}
	return v
}

// judgeSteps returns the verdict about a run of steps: it is parked at a step without a handler.
func (r *registry) judgeSteps(run *machine.Run) (v replay.Verdict) {
	var missing []string
	for n, s := range run.Live() {
		switch {
		case s.Status == machine.Complete:
		case r.hasCode(run, n):
			v.Next = append(v.Next, run.StepName(n))
		default:
			missing = append(missing, missingHandler(run, n))
		}
	}
	v.Parked = strings.Join(missing, "; ")
	return v
}

// missingHandler returns why a step whose handler is not registered is parked.
func missingHandler(run *machine.Run, step int) string {
	return fmt.Sprintf("step %q waits for the handler %q: deploy code that has it", run.StepName(step), run.StepDef(step).Handler)
}
