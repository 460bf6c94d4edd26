package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// Latest has the options of [Engine.RetryLatest]. The zero value keeps the results of all
// steps that have not changed.
type Latest struct {
	// From is the step of the current definition to begin with. The results of the
	// steps before it are kept, even if those steps have changed.
	From string

	// Input replaces the input of the run. It is prepared and checked like that of
	// [Engine.Start]. No result is kept then. nil means the input of the run. Input and
	// From can't be used together.
	Input json.RawMessage
}

// RemovedStepsError says that the current definition has no steps with the names of some
// steps of the run that succeeded: they were renamed or removed. Their results would be
// lost, or their work done twice. So the caller must set [Latest.From] to the step to
// begin with.
type RemovedStepsError struct {
	Run      string
	Workflow string
	Removed  []string // the steps that succeeded and are not in the current definition
	Steps    []string // the steps of the current definition
}

func (e *RemovedStepsError) Error() string {
	steps, them := "step", "it"
	if len(e.Removed) > 1 {
		steps, them = "steps", "they"
	}
	return fmt.Sprintf("retry with the current definition: %s %s of run %s succeeded, and workflow %q has no such %s now; %s may have been renamed or removed: name the step to begin with",
		steps, strings.Join(e.Removed, ", "), e.Run, e.Workflow, steps, them)
}

// Is makes it an [ErrState].
func (e *RemovedStepsError) Is(target error) bool { return target == ErrState }

// RetryLatest continues a run that has ended, with the current definition of its
// workflow. Like [Engine.Rerun] it starts a new run. The new run keeps the results of
// steps that succeeded and have not changed. It runs the steps that failed, are new or have
// changed, and all steps that depend on those.
//
// A step has not changed if its name, its handler, its arguments and the steps that it
// directly depends on are the same; see [CompareArgs]. Its policy and limits do not count.
// The code of a Go function can't be compared: use [Version] to say that it has changed.
//
// The dead run of a flow continues itself: no new run is started, and its function gets the
// results of all operations that succeeded.
//
// If the current definition has no step with the name of a step that succeeded, the error
// is a [*RemovedStepsError]. The input is that of the old run, passed through the current
// [PrepareInput].
func (e *Engine) RetryLatest(ctx context.Context, id string, o Latest, by string) (Started, error) {
	if o.From != "" && o.Input != nil {
		return Started{}, errors.New("retry with the current definition: a step to begin with and an input can't be combined, since another input changes all results")
	}
	a, err := e.of(ctx, id, &call{Op: opDefinition})
	if err != nil {
		return Started{}, err
	}
	before, err := machine.ParseDefinition(a.Definition)
	if err != nil {
		return Started{}, fmt.Errorf("retry with the current definition: run %s: %w", id, err)
	}
	w := e.handlers.workflow(before.Name)
	if w == nil {
		return Started{}, fmt.Errorf("retry with the current definition: %w: workflow %q of run %s is not registered", ErrState, before.Name, id)
	}
	if err := e.checkMembers(w.format); err != nil {
		return Started{}, fmt.Errorf("retry with the current definition: %w", err)
	}
	if before.Flow != w.def.Flow {
		return Started{}, fmt.Errorf("retry with the current definition: %w: workflow %q is a function in one of the two definitions and has steps in the other; replay run %s", ErrState, before.Name, id)
	}
	if before.Flow && o.Input == nil {
		return e.retryFlow(ctx, id, w, o.From, by)
	}
	input, given := a.Info.Input, o.Input
	var keep []string
	if given == nil {
		given = input
		if keep, err = w.keptResults(before, a.Info, o.From); err != nil {
			return Started{}, err
		}
	}
	if input, err = w.repeatInput(given, a.Info, e.cfg.MaxPayload); err != nil {
		return Started{}, fmt.Errorf("retry with the current definition: %w", err)
	}
	return e.started(e.of(ctx, id, &call{Op: opLatest, By: by, Keep: keep, Start: &start{Definition: w.def.Text(), Input: input, def: w.def}}))
}

// retryFlow continues the dead run of a flow with the current definition. It is the same run:
// its function gets the stored results.
func (e *Engine) retryFlow(ctx context.Context, id string, w *Workflow, from, by string) (Started, error) {
	if from != "" {
		return Started{}, fmt.Errorf("retry with the current definition: workflow %q is a function, which can't begin with one of its operations (%q)", w.Name(), from)
	}
	err := e.change(ctx, id, &call{Op: opRetry, By: by, Start: &start{Definition: w.def.Text(), def: w.def}})
	return Started{ID: id, e: e}, err
}

// CompareArgs sets the function by which [Engine.RetryLatest] decides whether two
// arguments of a step made by [Call] mean the same work. It is called only for arguments
// that are not the same JSON value: equal values always mean the same work.
func CompareArgs(same func(before, now json.RawMessage) bool) Part {
	return func(b *builder) { b.w.sameArgs = same }
}

// keptResults returns the steps of the current definition whose results a new run takes
// from an old run. before is the definition of the old run; from is [Latest.From].
func (w *Workflow) keptResults(before *machine.Definition, run *Info, from string) (keep []string, err error) {
	succeeded := map[string]bool{}
	for _, s := range run.Steps {
		succeeded[s.Name] = s.Status == machine.Complete.String()
	}
	now := w.def
	first := now.Index(from)
	switch {
	case from != "" && first < 0:
		return nil, fmt.Errorf("retry with the current definition: workflow %q has no step %q; known steps: %s", w.Name(), from, strings.Join(stepNames(now), ", "))
	case from == "":
		if removed := removedSteps(before, now, succeeded); len(removed) > 0 {
			return nil, &RemovedStepsError{Run: run.ID, Workflow: w.Name(), Removed: removed, Steps: stepNames(now)}
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
			return nil, fmt.Errorf("retry with the current definition: %w: step %s needs step %s, which run %s has not completed: begin with %s",
				ErrState, from, s.Name, run.ID, s.Name)
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
		return nil, fmt.Errorf("retry with the current definition: %w: run %s has a result of every step of workflow %q, and nothing is left to run: name the step to begin with, or cancel the run",
			ErrState, run.ID, w.Name())
	}
	return keep, nil
}

func stepNames(d *machine.Definition) (names []string) {
	for i := range d.Steps {
		names = append(names, d.Steps[i].Name)
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
		(sameJSON(old.Args, now.Args) || w.sameArgs != nil && w.sameArgs(old.Args, now.Args))
}

// repeatInput prepares and checks the input of a run that repeats another, like the input
// of a start. most is the largest size in bytes.
func (w *Workflow) repeatInput(given json.RawMessage, run *Info, most int) (json.RawMessage, error) {
	if len(given) > most {
		return nil, fmt.Errorf("input: %w: %d bytes, at most %d", ErrTooLarge, len(given), most)
	}
	if len(given) > 0 && !json.Valid(given) {
		return nil, fmt.Errorf("%w: not JSON", ErrInput)
	}
	key := run.OriginKey
	if run.Origin == "" {
		key = run.Key
	}
	input, err := w.prepared(given, scheduledTime(key))
	if err != nil {
		return nil, err
	}
	if err := w.accepts(nil, input); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	return input, nil
}

// scheduledTime returns the time for which a schedule started the run with this key; zero
// if the key is not that of a schedule.
func scheduledTime(key string) time.Time {
	rest, ok := strings.CutPrefix(key, "schedule/")
	if !ok {
		return time.Time{}
	}
	at, _ := time.Parse(time.RFC3339, rest[strings.LastIndexByte(rest, '/')+1:])
	return at
}

// definition returns the definition of a run, and the run without its history and results:
// both must fit into one message to another process.
func (q *queries) definition(ctx context.Context, id string) (text json.RawMessage, info *Info, err error) {
	r, err := q.load(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	info = describe(r)
	info.Output, info.Notes = nil, nil
	for i := range info.Steps {
		info.Steps[i].Output, info.Steps[i].Progress, info.Steps[i].Attempts = nil, nil, nil
	}
	return r.Def.Text(), info, nil
}

// retryLatest starts a new run that continues a run which has ended, with the definition and
// the input of the call. It copies the results of the steps that the call keeps.
func (c *commands) retryLatest(ctx context.Context, asked *call) (*Started, error) {
	if asked.Start == nil {
		return nil, fmt.Errorf("%w: no definition", errCall)
	}
	def, err := asked.Start.definition()
	if err != nil {
		return nil, err
	}
	// A stuck attempt of the old run must not run beside an attempt of the new run.
	err = c.with(ctx, "retry", asked.ID, func(_ *turn, run machine.ID) error { return c.sh.dispatcher.checkStuck(run) })
	if err != nil {
		return nil, err
	}
	return c.repeat(ctx, asked.ID, asked.By, func(r *machine.Run, s *machine.Start) (*machine.Definition, error) {
		s.Input, s.Outputs = asked.Start.Input, make([][]byte, len(def.Steps))
		for _, name := range asked.Keep {
			from, to := r.Def.Index(name), def.Index(name)
			if from < 0 || to < 0 || r.Steps[from].Status != machine.Complete {
				return nil, fmt.Errorf("%w: run %s has no result of step %q", ErrState, r.ID, name)
			}
			s.Outputs[to] = r.Output(from)
		}
		return def, nil
	})
}
