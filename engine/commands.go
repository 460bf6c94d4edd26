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

func (t *turn) progress(key attemptKey, attempt int, progress json.RawMessage) error {
	if rec, ok := t.sh.m.Report(key.run, key.step, attempt, progress, t.now); ok {
		t.must(&rec)
	}
	return nil
}

// Cancel ends a run. Its steps are told, and what they still return is noted
// and dropped. A dead run that is canceled is one that nobody will retry.
func (e *Engine) Cancel(ctx context.Context, id, by string) error {
	_, err := e.of(ctx, id, &call{Op: opCancel, By: by})
	return err
}

func (sh *shard) cancel(ctx context.Context, id, by string) error {
	return sh.with(ctx, "cancel", id, func(t *turn, run machine.ID) error {
		rec, err := sh.m.Cancel(run, name(by), t.now)
		if err == nil {
			t.must(&rec)
		}
		return err
	})
}

// Retry puts a dead run back to work: steps that failed get a new set of
// attempts, what succeeded is kept. The run keeps its definition;
// [Engine.RetryLatest] continues with the current one.
func (e *Engine) Retry(ctx context.Context, id, by string) error {
	_, err := e.of(ctx, id, &call{Op: opRetry, By: by})
	return err
}

func (sh *shard) retry(ctx context.Context, id, by string) error {
	return sh.with(ctx, "retry", id, func(t *turn, run machine.ID) error {
		if err := t.stuck(run); err != nil {
			return err
		}
		rec, err := sh.m.Retry(run, name(by), t.now)
		if err == nil {
			t.must(&rec)
		}
		return err
	})
}

// stuck refuses to begin again what has not ended yet.
func (t *turn) stuck(id machine.ID) error {
	for key := range t.sh.zombies {
		if key.run == id && !t.sh.zombies[key] {
			return fmt.Errorf("%w: an attempt of run %s does not end and still runs in this process", ErrState, id)
		}
	}
	return nil
}

// Wake ends the waits of a run, so that the next attempts begin now.
func (e *Engine) Wake(ctx context.Context, id, by string) error {
	_, err := e.of(ctx, id, &call{Op: opWake, By: by})
	return err
}

func (sh *shard) wake(ctx context.Context, id, by string) error {
	return sh.with(ctx, "wake", id, func(t *turn, run machine.ID) error {
		recs, err := sh.m.Wake(run, name(by), t.now)
		for i := range recs {
			t.must(&recs[i])
		}
		return err
	})
}

// Pause stops a run until Resume: nothing of it begins, and what runs is told to
// end and will be made again. Waits keep their times.
func (e *Engine) Pause(ctx context.Context, id, by string) error {
	_, err := e.of(ctx, id, &call{Op: opPause, By: by})
	return err
}

func (sh *shard) pause(ctx context.Context, id, by string) error {
	return sh.with(ctx, "pause", id, func(t *turn, run machine.ID) error {
		rec, err := sh.m.Hold(run, name(by), t.now)
		if err == nil {
			t.must(&rec)
		}
		return err
	})
}

// Resume lets a run go on that was paused.
func (e *Engine) Resume(ctx context.Context, id, by string) error {
	_, err := e.of(ctx, id, &call{Op: opResume, By: by})
	return err
}

func (sh *shard) resume(ctx context.Context, id, by string) error {
	return sh.with(ctx, "resume", id, func(t *turn, run machine.ID) error {
		rec, err := sh.m.Free(run, name(by), t.now)
		if err == nil {
			t.must(&rec)
		}
		return err
	})
}

// Postpone has a run wait until a time of the calendar. What runs is told to end,
// and is made again then; it does not count.
func (e *Engine) Postpone(ctx context.Context, id string, until time.Time, by string) error {
	_, err := e.of(ctx, id, &call{Op: opPostpone, Until: until, By: by})
	return err
}

func (sh *shard) postpone(ctx context.Context, id string, until time.Time, by string) error {
	return sh.with(ctx, "postpone", id, func(t *turn, run machine.ID) error {
		recs, err := sh.m.Postpone(run, calendar(until), name(by), t.now)
		for i := range recs {
			t.must(&recs[i])
		}
		return err
	})
}

// Reset forgets what a run has spent: attempts, windows and lost ones.
func (e *Engine) Reset(ctx context.Context, id, by string) error {
	_, err := e.of(ctx, id, &call{Op: opReset, By: by})
	return err
}

func (sh *shard) reset(ctx context.Context, id, by string) error {
	return sh.with(ctx, "reset", id, func(t *turn, run machine.ID) error {
		rec, err := sh.m.Forgive(run, name(by), t.now)
		if err == nil {
			t.must(&rec)
		}
		return err
	})
}

// with asks the owner to do something with a run.
func (sh *shard) with(ctx context.Context, what, id string, f func(*turn, machine.ID) error) error {
	run, err := machine.ParseID(id)
	if err != nil {
		return fmt.Errorf("%s: %w: %q", what, ErrNotFound, id)
	}
	if err := sh.do(ctx, func(t *turn) error { return f(t, run) }); err != nil {
		return fmt.Errorf("%s: %w", what, sh.ended(ctx, what, id, err))
	}
	return nil
}

// overWords are how the states of runs that have left the memory are told.
var overWords = map[string]string{
	StateSucceeded: "has succeeded", StateCanceled: "was canceled", StateReplaced: "was replaced", StateDead: "is dead",
}

// ended makes an error clearer if the run is not in memory any more.
func (sh *shard) ended(ctx context.Context, what, id string, err error) error {
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	if i, e2 := sh.get(ctx, id); e2 == nil {
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

func (sh *shard) again(ctx context.Context, id string, input json.RawMessage, by string) (*Started, error) {
	return sh.repeat(ctx, id, by, func(r *machine.Run, s *machine.Start) (*machine.Definition, error) {
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

func (sh *shard) rerun(ctx context.Context, id, step, by string) (*Started, error) {
	return sh.repeat(ctx, id, by, func(r *machine.Run, s *machine.Start) (*machine.Definition, error) {
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
func (sh *shard) repeat(ctx context.Context, id, by string, change func(*machine.Run, *machine.Start) (*machine.Definition, error)) (*Started, error) {
	r, err := sh.load(ctx, id)
	if err != nil {
		return nil, err
	}
	if !r.Closed() {
		return nil, fmt.Errorf("%w: run %s is %s; cancel it first", ErrState, id, r.State())
	}
	s := &machine.Start{Input: r.Input, Previous: r.ID, Source: name(by)}
	if s.Origin, s.OriginKey, err = sh.origin(ctx, r); err != nil {
		return nil, err
	}
	def, err := change(r, s)
	if err != nil {
		return nil, err
	}
	if len(s.Input) > sh.cfg.MaxPayload {
		return nil, fmt.Errorf("input: %w: %d bytes, at most %d", ErrTooLarge, len(s.Input), sh.cfg.MaxPayload)
	}
	s.Hash = def.Hash()
	err = sh.do(ctx, func(t *turn) error { return t.repeat(r, s, def) })
	if err != nil {
		return nil, err
	}
	return &Started{ID: s.ID.String()}, nil
}

// origin returns the first run of the chain of repetitions that r ends, and its key.
// Runs of earlier versions have only the previous run: they are followed as far as
// they are kept.
func (sh *shard) origin(ctx context.Context, r *machine.Run) (id machine.ID, key string, err error) {
	for {
		id, key, known := r.Origin()
		if known {
			return id, key, nil
		}
		previous, err := sh.load(ctx, id.String())
		if errors.Is(err, ErrNotFound) {
			return id, key, nil
		}
		if err != nil {
			return id, key, err
		}
		r = previous
	}
}

// repeat starts a run, and says of a dead one that the new one does its work. Both
// or neither: of two who repeat a dead run at once, one is refused.
func (t *turn) repeat(r *machine.Run, s *machine.Start, def *machine.Definition) error {
	if r.Outcome == machine.Dead {
		if _, err := t.sh.m.Replace(r.ID, r.ID, t.now); err != nil {
			return err
		}
	}
	next, _, err := t.start(s, def)
	if err != nil || r.Outcome != machine.Dead {
		return err
	}
	rec, err := t.sh.m.Replace(r.ID, next, t.now)
	if err == nil {
		t.must(&rec)
	}
	return err
}
