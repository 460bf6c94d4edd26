package flow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/internal/textfmt"
)

func (p *parkedRuns) add(run machine.ID, c parkedCall) {
	p.remove(run)
	p.runs[run], p.changed = c, true
	n := p.reasons[c.parkReason]
	if n == nil {
		n = &parkedCount{since: time.Now()}
		p.reasons[c.parkReason] = n
	}
	n.runs++
}

func (p *parkedRuns) remove(run machine.ID) {
	c, ok := p.runs[run]
	if !ok {
		return
	}
	delete(p.runs, run)
	p.changed = true
	if n := p.reasons[c.parkReason]; n.runs > 1 {
		n.runs--
	} else {
		delete(p.reasons, c.parkReason)
	}
}

// Parked returns how many runs are parked, by reason. changed is false if that is the same as before; then
// the list is empty.
func (a *Calls) Parked() (list []info.Trouble, changed bool) {
	p := &a.parked
	if !p.changed {
		return nil, false
	}
	p.changed = false
	for reason, n := range p.reasons {
		list = append(list, info.Trouble{
			What:  fmt.Sprintf("has parked %s of %s", textfmt.Plural(n.runs, "run"), reason.workflow),
			Since: n.since, Error: reason.why, Works: true, Runs: n.runs,
		})
	}
	slices.SortFunc(list, func(a, b info.Trouble) int { return cmp.Or(cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Error, b.Error)) })
	return list[:min(len(list), maxParkReasons)], true
}

// maxParkReasons limits the reasons that Parked returns.
const maxParkReasons = 20

// Fits reports whether a parked run continues, because its function is that of the workflow w now, or
// because what was missing is registered.
func (a *Calls) Fits(run machine.ID, w *workflow.Workflow) bool {
	p := a.parked.runs[run]
	return p.by == nil || p.by != w || p.missing != "" && a.settings.Registry.Workflow(p.missing) != nil
}

// Forget forgets that a run is parked.
func (a *Calls) Forget(run machine.ID) { a.parked.remove(run) }

// park records that the run waits for other code, because that of the call does not fit.
func (a *Calls) park(t Turn, c *call, run *machine.Run, why string) {
	a.settings.report(replay.Verdict{Parked: a.settings.ErrorText(why)})
	parked := parkedCall{parkReason: parkReason{run.Def.Name, a.settings.ErrorText(why)}, by: c.workflow}
	if missing, ok := errors.AsType[*missingWorkflowError](c.firstWrong()); ok {
		parked.missing = missing.name
	}
	a.parked.add(c.run, parked)
	if c.known != a.settings.Registry.Version() {
		t.CheckParked() // what it waits for may be registered already
	}
	command := "tideover cancel"
	if run.Flow().Undoable() > 0 { // a cancel calls the function, to undo operations
		command += " --abandon"
	}
	text := fmt.Sprintf("%s; the run continues when code that fits is deployed; to give it up: %s %s", why, command, c.run)
	t.Record(machine.ParkMismatch(run, a.settings.ErrorText(text), t.Now()))
}
