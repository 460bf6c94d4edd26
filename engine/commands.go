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

// What callers tell apart.
var (
	ErrNotFound = machine.ErrUnknown  // there is no such run
	ErrState    = machine.ErrState    // the run is not in a state for it
	ErrConflict = machine.ErrConflict // the key belongs to a run of another workflow
	ErrTooLarge = errors.New("too large")
)

// commands does what callers ask of a shard, in their goroutines: it starts and changes
// runs. Each change is made by the owner.
type commands struct{ sh *shard }

// Cancel ends a run. The contexts of its attempts end, and what these still return is
// noted and dropped. A dead run that is canceled leaves the dead letters.
func (e *Engine) Cancel(ctx context.Context, id, by string) error {
	return e.change(ctx, id, &call{Op: opCancel, By: by})
}

// Retry puts a dead run back to work: steps that failed get a new set of
// attempts, what succeeded is kept. The run keeps its definition;
// [Engine.RetryLatest] continues with the current one.
func (e *Engine) Retry(ctx context.Context, id, by string) error {
	return e.change(ctx, id, &call{Op: opRetry, By: by})
}

// Wake ends the waits of a run, so that the next attempts begin now; those of a paused run
// begin when it is resumed.
func (e *Engine) Wake(ctx context.Context, id, by string) error {
	return e.change(ctx, id, &call{Op: opWake, By: by})
}

// Pause stops a run until Resume: nothing of it begins, and attempts that run are ended
// and will be made again. Waits keep their times.
func (e *Engine) Pause(ctx context.Context, id, by string) error {
	return e.change(ctx, id, &call{Op: opPause, By: by})
}

// Resume lets a run go on that was paused.
func (e *Engine) Resume(ctx context.Context, id, by string) error {
	return e.change(ctx, id, &call{Op: opResume, By: by})
}

// Postpone has a run wait until a time of the calendar. Attempts that run are ended, and
// made again then; they do not count.
func (e *Engine) Postpone(ctx context.Context, id string, until time.Time, by string) error {
	return e.change(ctx, id, &call{Op: opPostpone, Until: until, By: by})
}

// Reset forgets what a run has spent: attempts, windows and lost ones.
func (e *Engine) Reset(ctx context.Context, id, by string) error {
	return e.change(ctx, id, &call{Op: opReset, By: by})
}

// decision is a method of the machine that decides about a command of a caller.
type decision func(m *machine.Machine, run machine.ID, by string, now int64) (machine.Record, error)

// change changes a run as the machine decides.
func (c *commands) change(ctx context.Context, asked *call, decide decision) error {
	return c.changeSteps(ctx, asked, func(m *machine.Machine, run machine.ID, by string, now int64) ([]machine.Record, error) {
		rec, err := decide(m, run, by, now)
		if err != nil {
			return nil, err
		}
		return []machine.Record{rec}, nil
	})
}

// changeSteps is change for a decision with a record for each step.
func (c *commands) changeSteps(ctx context.Context, asked *call, decide func(m *machine.Machine, run machine.ID, by string, now int64) ([]machine.Record, error)) error {
	return c.with(ctx, string(asked.Op), asked.ID, func(t *turn, run machine.ID) error {
		recs, err := decide(t.o.m, run, name(asked.By), t.now)
		for i := range recs {
			t.must(&recs[i])
		}
		return err
	})
}

// retry puts a dead run back to work, unless an attempt of it still runs.
func (c *commands) retry(m *machine.Machine, run machine.ID, by string, now int64) (machine.Record, error) {
	if err := c.sh.dispatcher.checkStuck(run); err != nil {
		return machine.Record{}, err
	}
	return m.Retry(run, by, now)
}

// with asks the owner to do something with a run.
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

// overWords are the states of runs that have left the memory, in words.
var overWords = map[string]string{
	StateSucceeded: "has succeeded", StateCanceled: "was canceled", StateReplaced: "was replaced", StateDead: "is dead",
}

// explain makes an error clearer if the run is not in memory any more.
func (c *commands) explain(ctx context.Context, what, id string, err error) error {
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	if i, e2 := c.sh.queries.get(ctx, id); e2 == nil {
		return fmt.Errorf("%w: run %s %s, nothing to %s", ErrState, id, cmp.Or(overWords[i.State], "is "+i.State), what)
	}
	return err
}

// Replay starts a new run in the place of one that has ended, by the same
// definition, with another input if it is not nil. A dead run is replaced by it,
// and leaves the dead letters. The input is prepared and checked like that of
// [Engine.Start], as far as this engine has a workflow of the name.
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

// RerunRequest is what [Engine.Rerun] starts anew.
type RerunRequest struct {
	Run  string // id of a run that has ended
	Step string // first step of the new run
	By   string // who asks for it; shown as the source of the new run
}

// Rerun starts a new run in the place of one that has ended. The new run begins with
// the step of the request and keeps the results of the steps before it. It follows the
// definition of the old run; [Engine.RetryLatest] follows the current one.
func (e *Engine) Rerun(ctx context.Context, r RerunRequest) (Started, error) {
	return e.started(e.of(ctx, r.Run, &call{Op: opRerun, Step: r.Step, By: r.By}))
}

func (c *commands) rerun(ctx context.Context, id, step, by string) (*Started, error) {
	return c.repeat(ctx, id, by, func(r *machine.Run, s *machine.Start) (*machine.Definition, error) {
		i := r.Def.Index(step)
		if i < 0 {
			return nil, fmt.Errorf("step: workflow %q has no %q", r.Def.Name, step)
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

// repeat starts a run like another one. change says what differs, and returns the
// definition that the new run follows.
func (c *commands) repeat(ctx context.Context, id, by string, change func(*machine.Run, *machine.Start) (*machine.Definition, error)) (*Started, error) {
	r, err := c.sh.queries.load(ctx, id)
	if err != nil {
		return nil, err
	}
	if !r.Closed() {
		return nil, fmt.Errorf("%w: run %s is %s; cancel it first", ErrState, id, r.State())
	}
	s := &machine.Start{Input: r.Input, Previous: r.ID, Source: name(by)}
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
	s.Hash = def.Hash()
	err = c.sh.do(ctx, func(t *turn) error { return c.repeatIn(t, r, s, def) })
	if err != nil {
		return nil, err
	}
	return &Started{ID: s.ID.String()}, nil
}

// origin returns the first run of the chain of repetitions that r ends, and its key.
// Runs of earlier versions have only the previous run: they are followed as far as
// they are kept.
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

// repeatIn starts a run, and says of a dead one that the new one does its work. Both
// or neither: of two who repeat a dead run at once, one is refused.
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
