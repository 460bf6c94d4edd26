package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
)

// KeptResults returns the steps of the current definition whose results a new run takes from an old run.
// before is the definition of the old run. from is the step to begin with; without one, removed has the
// steps that succeeded and are not in the current definition.
func (w *Workflow) KeptResults(before *machine.Definition, run *info.Info, from string) (keep, removed []string, err error) {
	succeeded := map[string]bool{}
	for _, s := range run.Steps {
		succeeded[s.Name] = s.Status == machine.Complete.String()
	}
	now := w.Def
	first := now.Index(from)
	switch {
	case from != "" && first < 0:
		return nil, nil, fmt.Errorf("retry with the current definition: workflow %q has no step %q; known steps: %s", w.Name(), from, strings.Join(w.StepNames(), ", "))
	case from == "":
		if removed := removedSteps(before, now, succeeded); len(removed) > 0 {
			return nil, removed, nil
		}
	}
	again := make([]bool, len(now.Steps))
	repeat := func(i int) {
		for k, in := range now.Downstream(i) {
			again[k] = again[k] || in
		}
	}
	if first >= 0 {
		repeat(first)
	}
	for i := range now.Steps {
		s := &now.Steps[i]
		isBefore := first >= 0 && now.Upstream(first, i)
		switch {
		case isBefore && !succeeded[s.Name]:
			return nil, nil, fmt.Errorf("retry with the current definition: %w: step %s needs step %s, which run %s has not completed: begin with %s",
				machine.ErrState, from, s.Name, run.ID, s.Name)
		case isBefore:
		case !succeeded[s.Name] || !w.isSameStep(before, s):
			repeat(i)
		}
	}
	for i := range now.Steps {
		if !again[i] {
			keep = append(keep, now.Steps[i].Name)
		}
	}
	if len(keep) == len(now.Steps) {
		return nil, nil, fmt.Errorf("retry with the current definition: %w: run %s has a result of every step of workflow %q, and nothing is left to run: name the step to begin with, or cancel the run",
			machine.ErrState, run.ID, w.Name())
	}
	return keep, nil, nil
}

// StepNames returns the names of the steps.
func (w *Workflow) StepNames() (names []string) {
	for i := range w.Def.Steps {
		names = append(names, w.Def.Steps[i].Name)
	}
	return names
}

// removedSteps returns the steps that succeeded and are not in the current definition.
func removedSteps(before, now *machine.Definition, succeeded map[string]bool) (names []string) {
	for i := range before.Steps {
		if name := before.Steps[i].Name; succeeded[name] && now.Index(name) < 0 {
			names = append(names, name)
		}
	}
	return names
}

// isSameStep reports whether the old definition has a step with the same name, handler,
// arguments and needs.
func (w *Workflow) isSameStep(before *machine.Definition, now *machine.Step) bool {
	i := before.Index(now.Name)
	if i < 0 {
		return false
	}
	old := &before.Steps[i]
	return old.Handler == now.Handler && slices.Equal(slices.Sorted(slices.Values(old.Needs)), slices.Sorted(slices.Values(now.Needs))) &&
		(SameJSON(old.Args, now.Args) || w.sameArgs != nil && w.sameArgs(old.Args, now.Args))
}
