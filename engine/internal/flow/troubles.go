package flow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
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

const (
	blockedAfter      = time.Minute      // a function that does not wait for an operation for this long is reported
	blockedCheckEvery = 10 * time.Second // how often that is checked, at most
)

// Blocked returns a warning for each function that has neither called an operation nor returned
// for long: it waits for something that is not an operation, or computes. It holds its run up, and
// nothing else shows that. isChecked is false if it was called before a short time ago.
func (a *Calls) Blocked() (list []info.Trouble, isChecked bool) {
	gap := a.now.Sub(a.checked)
	if gap < blockedCheckEvery {
		return nil, false
	}
	if a.checked = a.now; gap > 2*blockedAfter {
		return nil, false // the owner could not store: functions may wait for it
	}
	for id, c := range a.running {
		since := a.now.Sub(c.since)
		if c.waits() || c.ended.Load() || since < blockedAfter {
			c.blocked = false
			continue
		}
		text := fmt.Sprintf("it has neither called an operation nor returned for %v: it waits for something else, such as a lock or a channel, or computes; do such work in engine.Do with a timeout, and restart the process if the function does not continue", since.Round(time.Second))
		list = append(list, info.Trouble{What: fmt.Sprintf("run %s: the function of workflow %s is blocked", id, c.workflow.Name()), Since: c.since, Error: text})
		if !c.blocked {
			c.blocked = true
			a.settings.report(replay.Verdict{Failed: text})
			a.settings.Logger.Warn("the function of a run is blocked", "run", id.String(), "workflow", c.workflow.Name(), "why", text)
		}
	}
	slices.SortFunc(list, func(a, b info.Trouble) int { return strings.Compare(a.What, b.What) })
	return list, true
}
