package shard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/internal/textfmt"
)

// commands has the operations of a shard that start and change runs. They run in the
// goroutines of the callers, and have the owner make each change.
type commands struct{ sh *Shard }

// CallerName shortens the name of a caller to at most 200 bytes of valid UTF-8.
func CallerName(who string) string {
	return strings.ToValidUTF8(textfmt.Truncate(who, 200), "\uFFFD")
}

// changeSteps carries out a call that changes steps of a run: it stores the records that decide returns.
func (c commands) changeSteps(ctx context.Context, asked *Call, decide func(m *machine.Machine, run machine.ID, by string, now int64) ([]machine.Record, error)) error {
	return c.with(ctx, string(asked.Op), asked.ID, func(t Recorder, run machine.ID) error {
		recs, err := decide(t.State(), run, CallerName(asked.By), t.Now())
		for i := range recs {
			t.Record(recs[i])
		}
		return err
	})
}

// retry carries out engine.Engine.Retry. It fails if the handler of a stuck attempt of the run has
// not returned. If the call has a definition, the run of a flow continues with that one.
func (c commands) retry(ctx context.Context, asked *Call) error {
	var def *machine.Definition
	if asked.Start != nil {
		var err error
		if def, err = asked.Start.definition(); err != nil {
			return err
		}
	}
	return c.with(ctx, string(asked.Op), asked.ID, func(t Recorder, run machine.ID) error {
		if err := c.sh.stuck.check(run); err != nil {
			return err
		}
		rec, err := t.State().Retry(run, CallerName(asked.By), t.Now())
		if err == nil && rec.Format() >= machine.ChildFormat {
			err = c.sh.process.Peers.CheckFormat(machine.ChildFormat)
		}
		if err == nil && def != nil {
			rec.Hash = def.Hash()
			t.Define(def)
		}
		if err == nil {
			t.Record(rec)
		}
		return err
	})
}

// with parses the id of a run and has the owner call f with it. what is the name of the
// command, for errors.
func (c commands) with(ctx context.Context, what, id string, f func(Recorder, machine.ID) error) error {
	run, err := machine.ParseID(id)
	if err != nil {
		return fmt.Errorf("%s: %w: %q", what, machine.ErrUnknown, id)
	}
	if err := c.sh.Do(ctx, func(t Recorder) error { return f(t, run) }); err != nil {
		return fmt.Errorf("%s: %w", what, c.explain(ctx, what, id, err))
	}
	return nil
}

// overWords has the words for the states of runs that are not in memory any more, as the
// end of the sentence "run X ...".
var overWords = map[string]string{
	info.StateSucceeded: "has succeeded", info.StateCanceled: "was canceled", info.StateReplaced: "was replaced", info.StateDead: "is dead",
}

// explain turns ErrNotFound into an ErrState that names the state of the run, if the run has
// ended and is stored, but is not in memory any more.
func (c commands) explain(ctx context.Context, what, id string, err error) error {
	if !errors.Is(err, machine.ErrUnknown) {
		return err
	}
	if i, e2 := queries(c).get(ctx, id); e2 == nil {
		return fmt.Errorf("%w: run %s %s, nothing to %s", machine.ErrState, id, cmp.Or(overWords[i.State], "is "+i.State), what)
	}
	return err
}

func (c commands) replay(ctx context.Context, id string, input json.RawMessage, by string) (*startedRun, error) {
	return c.repeat(ctx, id, by, func(r *machine.Run, s *machine.Start) (*machine.Definition, error) {
		if input != nil {
			if !json.Valid(input) {
				return nil, errors.New("input: not JSON")
			}
			s.Input = input
		}
		return r.Def, nil
	})
}

func (c commands) rerun(ctx context.Context, id, step, by string) (*startedRun, error) {
	return c.repeat(ctx, id, by, func(r *machine.Run, s *machine.Start) (*machine.Definition, error) {
		if r.IsFlow() {
			return nil, fmt.Errorf("%w: workflow %q is a function, which can't begin with one of its operations; replay the run, or retry it if it is dead", machine.ErrState, r.Def.Name)
		}
		i := r.Def.Index(step)
		if i < 0 {
			return nil, fmt.Errorf("workflow %q has no step %q", r.Def.Name, step)
		}
		s.Outputs = make([][]byte, len(r.Steps))
		for k, again := range r.Def.Downstream(i) {
			if !again && r.Steps[k].Status == machine.Complete {
				s.Outputs[k] = r.Output(k)
			}
		}
		return r.Def, nil
	})
}

// repeat starts a new run that repeats a run which has ended. change may modify the start, and
// returns the definition of the new run.
func (c commands) repeat(ctx context.Context, id, by string, change func(*machine.Run, *machine.Start) (*machine.Definition, error)) (*startedRun, error) {
	r, err := queries(c).load(ctx, id)
	if err != nil {
		return nil, err
	}
	if !r.Closed() {
		return nil, fmt.Errorf("%w: run %s is %s; cancel it first", machine.ErrState, id, r.State())
	}
	s := &machine.Start{Input: r.Input, Previous: r.ID, Source: CallerName(by), Undos: machine.AllUndos(r)}
	if s.Origin, s.OriginKey, err = c.origin(ctx, r); err != nil {
		return nil, err
	}
	def, err := change(r, s)
	if err != nil {
		return nil, err
	}
	if len(s.Input) > c.sh.process.Settings.MaxPayload {
		return nil, fmt.Errorf("input: %w: %d bytes, at most %d", workflow.ErrTooLarge, len(s.Input), c.sh.process.Settings.MaxPayload)
	}
	if err := c.sh.process.Peers.CheckFormat(def.Format()); err != nil {
		return nil, err
	}
	s.Hash = def.Hash()
	if err := c.sh.Do(ctx, func(t Recorder) error { return c.repeatIn(t, r, s, def) }); err != nil {
		return nil, err
	}
	return &startedRun{ID: s.ID.String()}, nil
}

// origin returns the first run of the chain of repetitions whose last run is r, and the key
// of that first run. A run that an earlier version has stored knows only the run before it:
// origin follows the chain to the oldest run that is still stored.
func (c commands) origin(ctx context.Context, r *machine.Run) (id machine.ID, key string, err error) {
	for {
		id, key, known := machine.Origin(r)
		if known {
			return id, key, nil
		}
		previous, err := queries(c).load(ctx, id.String())
		if errors.Is(err, machine.ErrUnknown) {
			return id, key, nil
		}
		if err != nil {
			return id, key, err
		}
		r = previous
	}
}

// repeatIn starts the run s and, if r is dead, records that the new run replaces r. It does
// both or neither: if two callers repeat a dead run at the same time, the second one fails.
func (c commands) repeatIn(t Recorder, r *machine.Run, s *machine.Start, def *machine.Definition) error {
	if r.Outcome == machine.Dead {
		if _, err := t.State().Replace(r.ID, r.ID, t.Now()); err != nil {
			return err
		}
	}
	next, _, err := t.StartRun(s, def)
	if err != nil || r.Outcome != machine.Dead {
		return err
	}
	rec, err := t.State().Replace(r.ID, next, t.Now())
	if err == nil {
		t.Record(rec)
	}
	return err
}

// retryLatest starts a new run that continues a run which has ended, with the definition and
// the input of the call. It copies the results of the steps that the call keeps.
func (c commands) retryLatest(ctx context.Context, asked *Call) (*startedRun, error) {
	if asked.Start == nil {
		return nil, fmt.Errorf("%w: no definition", ErrCall)
	}
	def, err := asked.Start.definition()
	if err != nil {
		return nil, err
	}
	// A stuck attempt of the old run must not run beside an attempt of the new run.
	err = c.with(ctx, "retry", asked.ID, func(_ Recorder, run machine.ID) error { return c.sh.stuck.check(run) })
	if err != nil {
		return nil, err
	}
	return c.repeat(ctx, asked.ID, asked.By, func(r *machine.Run, s *machine.Start) (*machine.Definition, error) {
		s.Input, s.Outputs = asked.Start.Input, make([][]byte, len(def.Steps))
		for _, name := range asked.Keep {
			from, to := r.Def.Index(name), def.Index(name)
			if from < 0 || to < 0 || r.Steps[from].Status != machine.Complete {
				return nil, fmt.Errorf("%w: run %s has no result of step %q", machine.ErrState, r.ID, name)
			}
			s.Outputs[to] = r.Output(from)
		}
		return def, nil
	})
}

// pauseWorkflow carries out OpPauseWorkflow and OpResumeWorkflow in a shard.
func (c commands) pauseWorkflow(ctx context.Context, asked *Call) error {
	pause := asked.Op == OpPauseWorkflow
	if pause {
		if err := c.sh.process.Peers.CheckFormat(machine.PauseFormat); err != nil {
			return err
		}
	}
	return c.sh.Do(ctx, func(t Recorder) error {
		rec, ok := t.State().Halt(asked.Workflow, asked.By, pause, t.Now())
		if !ok {
			return nil
		}
		t.Record(rec)
		c.sh.pauses.update(t.State())
		if pause {
			c.sh.dispatcher.calls.SuspendPaused(t, asked.Workflow)
		}
		if machine.WorkflowSlot(asked.Workflow)%c.sh.shards == c.sh.Number { // one event, not one for each shard
			c.sh.owner.events.addPause(pause, time.Unix(0, t.Now()), asked.Workflow, "workflow "+asked.Workflow, asked.By)
		}
		return nil
	})
}

// childEnded carries out OpChildEnded.
func (c commands) childEnded(ctx context.Context, asked *Call) error {
	end := new(machine.ChildEnd)
	if err := json.Unmarshal(asked.Input, end); err != nil {
		return fmt.Errorf("%w: %w", ErrCall, err)
	}
	return c.with(ctx, string(asked.Op), asked.ID, func(t Recorder, id machine.ID) error {
		if _, err := t.State().Read(id); err != nil {
			return err
		}
		if end.Parent.Run != id || len(end.Output) > c.sh.process.Settings.MaxPayload || end.Reason == 0 && !json.Valid(end.Output) {
			return fmt.Errorf("%w: the end of a child of run %s with %d bytes", ErrCall, end.Parent.Run, len(end.Output))
		}
		c.sh.family.endChild(t, end)
		return nil
	})
}

// adopt carries out OpAdopt: the operation of the call waits for the run, or for the one that has
// replaced or continued it. A dead run is retried.
func (c commands) adopt(ctx context.Context, asked *Call) (*flow.AdoptedChild, error) {
	if asked.Start == nil {
		return nil, fmt.Errorf("%w: no parent", ErrCall)
	}
	parent, err := asked.Start.Parent.parent()
	if err != nil {
		return nil, err
	}
	if err := c.sh.process.Peers.CheckFormat(machine.ChildFormat); err != nil {
		return nil, err
	}
	id, err := machine.ParseID(asked.ID)
	if err != nil {
		return nil, fmt.Errorf("adopt: %w: %q", machine.ErrUnknown, asked.ID)
	}
	for {
		a, next := new(flow.AdoptedChild), machine.ID{}
		err := c.sh.Do(ctx, func(t Recorder) (err error) {
			run, err := t.State().Read(id)
			if err == nil {
				next, err = c.sh.family.adopt(t, run, parent, CallerName(asked.By), a)
			}
			return err
		})
		if errors.Is(err, machine.ErrUnknown) {
			var run *machine.Run
			if run, err = queries(c).loadEnded(ctx, id.String()); err == nil {
				next = c.sh.family.formerEnd(run, parent, a)
			}
		}
		if err != nil || next.IsZero() {
			return a, err
		}
		id = next
	}
}

// formerChild carries out OpFormerChild: it returns the child that a run had for an operation.
func (c commands) formerChild(ctx context.Context, asked *Call) (*FormerOf, error) {
	run, err := queries(c).load(ctx, asked.ID)
	if err != nil {
		return nil, err
	}
	of := &FormerOf{Previous: run.Previous().String()}
	for _, identity := range append([]string{asked.Text}, asked.Keep...) {
		if former, ok := machine.FormerChildOf(run, identity, asked.Limit); ok {
			of.Origin, of.Undos = former.Origin.String(), former.Undos
			break
		}
	}
	return of, nil
}
