// Package workflow has what a program defines and registers: workflows with their steps, options and
// inputs, handlers of steps, and the errors with which handlers ask for more than a retry. It knows
// nothing of runs in progress.
package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/internal/textfmt"
)

// The prefixes of the handlers of functions.
const (
	FlowPrefix     = "flow:"     // of a function that is code, before the name of its workflow
	FunctionPrefix = "function:" // of a function that is described by data, before its name
)

// Handler executes the attempts of a step.
type Handler struct {
	Do     func(ctx context.Context, t *info.Task) (output []byte, err error) // nil if the handler is not known
	IsJSON bool                                                               // its output is known to be JSON, because this program encoded it
}

// Workflow is a set of steps and their dependencies, or a function that calls operations. A [Builder]
// makes it, and it does not change afterwards.
type Workflow struct {
	Def      *machine.Definition
	Function any // of a workflow that is code; only the caller of functions knows its type
	Public   any // what a program has for this workflow
	Limits   Limits

	handlers map[string]Handler
	input    reflect.Type // input type of the steps that are functions; nil if there are none
	onGiveUp *Workflow
	onEnd    *Workflow
	prepare  func(json.RawMessage, time.Time) (json.RawMessage, error)
	sameArgs func(before, now json.RawMessage) bool // see Builder.CompareArgs; nil compares the JSON
	format   int                                    // the format that stores its runs and their follow-up runs

	opsMu sync.RWMutex
	ops   map[opKey]*machine.Definition // definitions of operations of a flow

	opDefaults Options         // of all operations of a flow
	declared   []info.StepInfo // operations of a flow: see Builder.Declare
	registered bool            // stands for a registered workflow: see SetRegistered
	isStandIn  bool            // stands for a workflow that is not known: its definition has only a name
}

// SetRegistered makes the workflow stand for the one that is registered with this name: see
// [Registry.Resolve].
func (w *Workflow) SetRegistered(name string) {
	w.Def, w.registered = &machine.Definition{Name: name}, true
}

// Name returns the workflow's name.
func (w *Workflow) Name() string { return w.Def.Name }

// IsStandIn reports whether the workflow stands for one that is not known. Its definition has only a
// name then.
func (w *Workflow) IsStandIn() bool { return w.isStandIn }

// InputType returns the type of the input of the workflow's functions; nil if it has no steps that
// are functions.
func (w *Workflow) InputType() reflect.Type { return w.input }

// Format returns the format that stores the runs of the workflow and their follow-up runs.
func (w *Workflow) Format() int { return w.format }

// OnGiveUp returns the workflow of the follow-up run that a dead run starts; nil if there is none.
func (w *Workflow) OnGiveUp() *Workflow { return w.onGiveUp }

// Steps returns the definitions of the steps, or the declared operations.
func (w *Workflow) Steps() []info.StepInfo {
	if len(w.declared) > 0 {
		return slices.Clone(w.declared)
	}
	list := make([]info.StepInfo, len(w.Def.Steps))
	for i, s := range w.Def.Steps {
		list[i] = info.StepInfo{Name: s.Name, Needs: slices.Clone(s.Needs), Policy: s.Policy.String(), Handler: s.Handler, MaxLost: s.MaxLost}
	}
	return list
}

// family returns the workflow and the workflows of its follow-up runs, recursively, each
// once.
func (w *Workflow) family() []*Workflow { return w.join(nil) }

func (w *Workflow) join(family []*Workflow) []*Workflow {
	if w == nil || slices.Contains(family, w) {
		return family
	}
	return w.onEnd.join(w.onGiveUp.join(append(family, w)))
}

// checkFamily returns an error if two workflows of the family have the same name, since
// workflows are looked up by name.
func (w *Workflow) checkFamily() error {
	names := map[string]bool{}
	for _, w := range w.family() {
		if names[w.Name()] {
			return fmt.Errorf("on give up, on end: %q is the name of two workflows that follow from each other", w.Name())
		}
		names[w.Name()] = true
	}
	return nil
}

// Snooze is an error that asks for another attempt later. It does not count as a failure.
type Snooze struct {
	Wait    time.Duration
	Until   int64 // Unix nanoseconds; if not 0, it replaces Wait
	Limited bool  // it uses one of the windows of the step
	Now     bool  // the next attempt begins at once; only with Limited
	Note    string
}

func (s *Snooze) Error() string {
	when := fmt.Sprintf("for %v", s.Wait)
	if s.Until != 0 {
		when = "until " + time.Unix(0, s.Until).Format(time.RFC3339)
	}
	if s.Note == "" {
		return "snoozed " + when
	}
	return fmt.Sprintf("snoozed %s: %s", when, s.Note)
}

// LatestTime is the last time that can be stored, with room for waits after it.
var LatestTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// StoredTime returns the time in Unix nanoseconds, at least 1 and at most LatestTime: 0 would
// mean no time.
func StoredTime(t time.Time) int64 {
	if t.After(LatestTime) {
		t = LatestTime
	}
	return max(t.UnixNano(), 1)
}

// Kept is an error with a memo for the next attempt.
type Kept struct {
	error
	Memo any
}

// Keep returns the error with a memo.
func Keep(err error, memo any) error { return &Kept{err, memo} }

func (k *Kept) Unwrap() error { return k.error }

// coded is an error with a code.
type coded struct {
	error
	code string
}

func (c *coded) Unwrap() error { return c.error }

// Coded returns the error with a code.
func Coded(code string, err error) error { return &coded{err, code} }

// CodeOf returns the code of an error: that of Coded, or of the operation that failed; "" if it has
// none.
func CodeOf(err error) string {
	if c, ok := errors.AsType[*coded](err); ok {
		return textfmt.TruncateValid(c.code, MaxKey, "")
	}
	if e, ok := errors.AsType[*info.OpError](err); ok {
		return e.Code
	}
	return ""
}

// Again is an error with which a function ends its run, and begins another one with this input.
type Again struct {
	Input    json.RawMessage
	KeepDone bool // the operations of the run are not undone any more
}

func (*Again) Error() string { return "the run continues with another input" }

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
