package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// Errors that callers can test for with errors.Is.
var (
	ErrNotFound = machine.ErrUnknown      // no run has this id
	ErrState    = machine.ErrState        // the command is not possible in the current state of the run
	ErrConflict = machine.ErrConflict     // the key belongs to a run of another workflow
	ErrTooLarge = errors.New("too large") // an input, a result or a request is larger than its limit
)

// commands has the operations of a shard that start and change runs. They run in the
// goroutines of the callers, and have the owner make each change.
type commands struct{ sh *shard }

// Cancel cancels a run. The contexts of its attempts end. Results that their handlers still
// return are only noted in the history. A dead run that is canceled is not listed as dead any
// more. Here and in the methods below, by is the name of the caller, for the history.
func (e *Engine) Cancel(ctx context.Context, id, by string) error {
	return e.change(ctx, id, &call{Op: opCancel, By: by})
}

// Retry continues a dead run: steps that failed get all their attempts again, and the
// results of steps that succeeded are kept. The run keeps its definition;
// [Engine.RetryLatest] continues with the current definition of the workflow.
func (e *Engine) Retry(ctx context.Context, id, by string) error {
	return e.change(ctx, id, &call{Op: opRetry, By: by})
}

// Wake ends the waits of a run, so that the next attempts begin now; those of a paused run
// begin when it is resumed.
func (e *Engine) Wake(ctx context.Context, id, by string) error {
	return e.change(ctx, id, &call{Op: opWake, By: by})
}

// Pause stops a run until [Engine.Resume]: no attempt of it begins. Attempts that are
// running are ended, and made again after Resume. Waits end at the same times as before.
func (e *Engine) Pause(ctx context.Context, id, by string) error {
	return e.change(ctx, id, &call{Op: opPause, By: by})
}

// Resume continues a run that was paused.
func (e *Engine) Resume(ctx context.Context, id, by string) error {
	return e.change(ctx, id, &call{Op: opResume, By: by})
}

// Postpone makes a run wait until a point in time, by the wall clock. Attempts that are
// running are ended and made again at that time; they do not count for the policy.
func (e *Engine) Postpone(ctx context.Context, id string, until time.Time, by string) error {
	return e.change(ctx, id, &call{Op: opPostpone, Until: until, By: by})
}

// Reset sets the counters of a run to zero: attempts that count for the policy, windows
// ([MaxWindows]) and lost attempts.
func (e *Engine) Reset(ctx context.Context, id, by string) error {
	return e.change(ctx, id, &call{Op: opReset, By: by})
}

// decision is a method of the machine that returns the record of a caller's command, or
// why the command is not possible.
type decision func(m *machine.Machine, run machine.ID, by string, now int64) (machine.Record, error)

// change carries out a call that changes a run: it stores the record that decide returns.
func (c *commands) change(ctx context.Context, asked *call, decide decision) error {
	return c.with(ctx, string(asked.Op), asked.ID, func(t *turn, run machine.ID) error {
		rec, err := decide(t.o.m, run, name(asked.By), t.now)
		if err == nil {
			t.must(&rec)
		}
		return err
	})
}

// changeSteps is change for a decision that returns a record for each step.
func (c *commands) changeSteps(ctx context.Context, asked *call, decide func(m *machine.Machine, run machine.ID, by string, now int64) ([]machine.Record, error)) error {
	return c.with(ctx, string(asked.Op), asked.ID, func(t *turn, run machine.ID) error {
		recs, err := decide(t.o.m, run, name(asked.By), t.now)
		for i := range recs {
			t.must(&recs[i])
		}
		return err
	})
}

// retry carries out [Engine.Retry]. It fails if the handler of a stuck attempt of the run has
// not returned. If the call has a definition, the run of a flow continues with that one.
func (c *commands) retry(ctx context.Context, asked *call) error {
	var def *machine.Definition
	if asked.Start != nil {
		var err error
		if def, err = asked.Start.definition(); err != nil {
			return err
		}
	}
	return c.with(ctx, string(asked.Op), asked.ID, func(t *turn, run machine.ID) error {
		if err := c.sh.dispatcher.checkStuck(run); err != nil {
			return err
		}
		rec, err := t.o.m.Retry(run, name(asked.By), t.now)
		if err == nil && rec.Format() >= machine.ChildFormat {
			err = c.sh.checkMembers(machine.ChildFormat)
		}
		if err == nil && def != nil {
			rec.Hash = def.Hash()
			err = t.define(def)
		}
		if err == nil {
			t.must(&rec)
		}
		return err
	})
}

// with parses the id of a run and has the owner call f with it. what is the name of the
// command, for errors.
func (c *commands) with(ctx context.Context, what, id string, f func(*turn, machine.ID) error) error {
	run, err := machine.ParseID(id)
	if err != nil {
		return fmt.Errorf("%s: %w: %q", what, ErrNotFound, id)
	}
	if err := c.sh.do(ctx, func(t *turn) error { return f(t, run) }); err != nil {
		return fmt.Errorf("%s: %w", what, c.explain(ctx, what, id, err))
	}
	return nil
}

// overWords has the words for the states of runs that are not in memory any more, as the
// end of the sentence "run X ...".
var overWords = map[string]string{
	StateSucceeded: "has succeeded", StateCanceled: "was canceled", StateReplaced: "was replaced", StateDead: "is dead",
}

// explain turns ErrNotFound into an ErrState that names the state of the run, if the run has
// ended and is stored, but is not in memory any more.
func (c *commands) explain(ctx context.Context, what, id string, err error) error {
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	if i, e2 := c.sh.queries.get(ctx, id); e2 == nil {
		return fmt.Errorf("%w: run %s %s, nothing to %s", ErrState, id, cmp.Or(overWords[i.State], "is "+i.State), what)
	}
	return err
}

// Replay starts a new run with the definition of a run that has ended. The new run has the
// same input, unless input is not nil. If the old run is dead, it becomes replaced and is
// not listed as dead any more. A new input is prepared and checked like that of
// [Engine.Start], if the workflow is registered in this engine.
func (e *Engine) Replay(ctx context.Context, id string, input json.RawMessage, by string) (Started, error) {
	if input != nil {
		i, err := e.Get(ctx, id)
		if err != nil {
			return Started{}, err
		}
		if w, ok := e.Workflow(i.Workflow); ok {
			if input, err = w.repeatInput(input, i, e.cfg.MaxPayload); err != nil {
				return Started{}, fmt.Errorf("replay: %w", err)
			}
		}
	}
	return e.started(e.of(ctx, id, &call{Op: opReplay, Input: input, By: by}))
}

func (c *commands) replay(ctx context.Context, id string, input json.RawMessage, by string) (*Started, error) {
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

// RerunRequest says which run [Engine.Rerun] repeats, and from which step on.
type RerunRequest struct {
	Run  string // id of a run that has ended
	Step string // first step of the new run
	By   string // name of the caller; the source of the new run
}

// Rerun starts a new run that repeats a part of a run that has ended: the step of the
// request and all steps that depend on it. The new run keeps the results of the other steps
// that succeeded. If the old run is dead, it becomes replaced. The new run has the
// definition of the old one; [Engine.RetryLatest] uses the current definition.
func (e *Engine) Rerun(ctx context.Context, r RerunRequest) (Started, error) {
	return e.started(e.of(ctx, r.Run, &call{Op: opRerun, Step: r.Step, By: r.By}))
}

func (c *commands) rerun(ctx context.Context, id, step, by string) (*Started, error) {
	return c.repeat(ctx, id, by, func(r *machine.Run, s *machine.Start) (*machine.Definition, error) {
		if r.IsFlow() {
			return nil, fmt.Errorf("%w: workflow %q is a function, which can't begin with one of its operations; replay the run, or retry it if it is dead", ErrState, r.Def.Name)
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
func (c *commands) repeat(ctx context.Context, id, by string, change func(*machine.Run, *machine.Start) (*machine.Definition, error)) (*Started, error) {
	r, err := c.sh.queries.load(ctx, id)
	if err != nil {
		return nil, err
	}
	if !r.Closed() {
		return nil, fmt.Errorf("%w: run %s is %s; cancel it first", ErrState, id, r.State())
	}
	s := &machine.Start{Input: r.Input, Previous: r.ID, Source: name(by), Undos: r.AllUndos()}
	if s.Origin, s.OriginKey, err = c.origin(ctx, r); err != nil {
		return nil, err
	}
	def, err := change(r, s)
	if err != nil {
		return nil, err
	}
	if len(s.Input) > c.sh.cfg.MaxPayload {
		return nil, fmt.Errorf("input: %w: %d bytes, at most %d", ErrTooLarge, len(s.Input), c.sh.cfg.MaxPayload)
	}
	if err := c.sh.checkMembers(def.Format()); err != nil {
		return nil, err
	}
	s.Hash = def.Hash()
	err = c.sh.do(ctx, func(t *turn) error { return c.repeatIn(t, r, s, def) })
	if err != nil {
		return nil, err
	}
	return &Started{ID: s.ID.String()}, nil
}

// origin returns the first run of the chain of repetitions whose last run is r, and the key
// of that first run. A run that an earlier version has stored knows only the run before it:
// origin follows the chain to the oldest run that is still stored.
func (c *commands) origin(ctx context.Context, r *machine.Run) (id machine.ID, key string, err error) {
	for {
		id, key, known := r.Origin()
		if known {
			return id, key, nil
		}
		previous, err := c.sh.queries.load(ctx, id.String())
		if errors.Is(err, ErrNotFound) {
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
func (c *commands) repeatIn(t *turn, r *machine.Run, s *machine.Start, def *machine.Definition) error {
	if r.Outcome == machine.Dead {
		if _, err := t.o.m.Replace(r.ID, r.ID, t.now); err != nil {
			return err
		}
	}
	next, _, err := t.start(s, def)
	if err != nil || r.Outcome != machine.Dead {
		return err
	}
	rec, err := t.o.m.Replace(r.ID, next, t.now)
	if err == nil {
		t.must(&rec)
	}
	return err
}
