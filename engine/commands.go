package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

// What callers tell apart.
var (
	ErrNotFound = machine.ErrUnknown  // there is no such run
	ErrState    = machine.ErrState    // the run is not in a state for it
	ErrConflict = machine.ErrConflict // the key belongs to a run of another workflow
	ErrTooLarge = errors.New("too large")
)

// StartOption says how a run is started.
type StartOption func(*machine.Start) error

// Key makes the start one that can be repeated: a second start with the key, for
// as long as the run is kept, returns the first one's run.
func Key(key string) StartOption {
	return func(s *machine.Start) error {
		if len(key) > 512 {
			return fmt.Errorf("key: %d bytes, at most 512", len(key))
		}
		s.Key = key
		return nil
	}
}

// At starts the run at a time.
func At(t time.Time) StartOption {
	return func(s *machine.Start) error {
		if t.After(farthest) {
			return fmt.Errorf("start: %v is too far ahead, at most %d", t, farthest.Year())
		}
		s.At = t.UnixNano()
		return nil
	}
}

// farthest is the last time that can be stored, with room for waits after it.
var farthest = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// In starts the run after a while.
func In(d time.Duration) StartOption { return At(time.Now().Add(d)) }

// RunTimeout ends the run when it takes longer, instead of the workflow's
// Timeout.
func RunTimeout(d time.Duration) StartOption {
	return func(s *machine.Start) error {
		if d <= 0 {
			return fmt.Errorf("timeout: %v is not positive", d)
		}
		s.Timeout = d
		return nil
	}
}

// Source says who starts the run.
func Source(who string) StartOption {
	return func(s *machine.Start) error { s.Source = name(who); return nil }
}

// name cuts what somebody calls himself to a length that can be shown.
func name(who string) string {
	if len(who) > 200 {
		who = who[:200]
	}
	return strings.ToValidUTF8(who, "\uFFFD")
}

// Started is a run that was accepted.
type Started struct {
	ID       string
	Existing bool // the key was known, nothing was started

	e *Engine
}

// Wait waits for the run's outcome.
func (s Started) Wait(ctx context.Context) (*Info, error) { return s.e.Wait(ctx, s.ID) }

// Start starts a run. When it returns, the run is stored, and goes on whatever
// happens to the process. The input is anything that encoding/json can write, and
// read as the type that the workflow's steps take.
func (e *Engine) Start(ctx context.Context, w *Workflow, input any, opts ...StartOption) (Started, error) {
	if e.handlers.workflow(w.Name()) != w {
		if err := e.handlers.add([]*Workflow{w}, nil); err != nil {
			return Started{}, err
		}
	}
	text, ok := input.(json.RawMessage)
	if !ok {
		var err error
		if text, err = json.Marshal(input); err != nil {
			return Started{}, fmt.Errorf("start %s: input: %w", w.Name(), err)
		}
	} else if len(text) > 0 && !json.Valid(text) {
		return Started{}, fmt.Errorf("start %s: input: not JSON", w.Name())
	}
	text, err := w.prepared(text, time.Time{})
	if err != nil {
		return Started{}, fmt.Errorf("start %s: %w", w.Name(), err)
	}
	if err := w.accepts(input, text); err != nil {
		return Started{}, fmt.Errorf("start %s: input: %w", w.Name(), err)
	}
	s := &machine.Start{Input: text}
	for _, opt := range opts {
		if err := opt(s); err != nil {
			return Started{}, fmt.Errorf("start %s: %w", w.Name(), err)
		}
	}
	return e.start(ctx, w.def, s)
}

// accepts says whether the steps can read the input. One of their own type needs no
// second look.
func (w *Workflow) accepts(input any, text json.RawMessage) error {
	if w.input == nil || len(text) == 0 || reflect.TypeOf(input) == w.input {
		return nil
	}
	return json.Unmarshal(text, reflect.New(w.input).Interface())
}

func (e *Engine) start(ctx context.Context, def *machine.Definition, s *machine.Start) (Started, error) {
	if len(s.Input) > e.cfg.MaxPayload {
		return Started{}, fmt.Errorf("start %s: input: %w: %d bytes, at most %d; store it elsewhere and pass where", def.Name, ErrTooLarge, len(s.Input), e.cfg.MaxPayload)
	}
	s.Hash = def.Hash()
	r := &request{start: s, def: def, done: make(chan struct{})}
	select {
	case e.starts <- r:
	case <-e.stop:
		return Started{}, fmt.Errorf("start %s: %w", def.Name, ErrClosed)
	case <-e.done:
		return Started{}, e.reason()
	case <-ctx.Done():
		return Started{}, fmt.Errorf("start %s: %w", def.Name, context.Cause(ctx))
	}
	var err error
	select {
	case <-r.done:
		err = r.err
	case <-e.done:
		err = e.answered(r)
	case <-ctx.Done():
		// It may be stored or not; with a key, asking again finds out.
		err = fmt.Errorf("%w before the start was known to be stored", context.Cause(ctx))
	}
	if err != nil {
		return Started{}, fmt.Errorf("start %s: %w", def.Name, err)
	}
	return Started{ID: r.id.String(), Existing: s.ID.IsZero(), e: e}, nil
}

// start decides about a start. The run gets its id here, so that the id has the
// time of the record in it.
func (t *turn) start(s *machine.Start, def *machine.Definition) (machine.ID, error) {
	e := t.e
	if rec, fresh := e.m.Define(def, t.now); fresh {
		if err := t.record(&rec); err != nil {
			e.health.broken(err)
			return machine.ID{}, err
		}
	}
	s.ID = machine.NewID(t.now, e.random(), e.random())
	rec, existing, err := e.m.Start(s, t.now)
	if err != nil || !existing.IsZero() {
		s.ID = machine.ID{}
		return existing, err
	}
	if rec.Size() > journal.MaxEntry-1000 {
		return machine.ID{}, fmt.Errorf("%w: input and results of %d bytes", ErrTooLarge, rec.Size())
	}
	t.must(&rec)
	return s.ID, nil
}

func (t *turn) progress(key attemptKey, attempt int, progress json.RawMessage) error {
	if rec, ok := t.e.m.Report(key.run, key.step, attempt, progress, t.now); ok {
		t.must(&rec)
	}
	return nil
}

// Cancel ends a run. Its steps are told, and what they still return is noted
// and dropped. A dead run that is canceled is one that nobody will retry.
func (e *Engine) Cancel(ctx context.Context, id, by string) error {
	return e.with(ctx, "cancel", id, func(t *turn, run machine.ID) error {
		rec, err := e.m.Cancel(run, name(by), t.now)
		if err == nil {
			t.must(&rec)
		}
		return err
	})
}

// Retry puts a dead run back to work: steps that failed get a new set of
// attempts, what succeeded is kept.
func (e *Engine) Retry(ctx context.Context, id, by string) error {
	return e.with(ctx, "retry", id, func(t *turn, run machine.ID) error {
		if err := t.stuck(run); err != nil {
			return err
		}
		rec, err := e.m.Retry(run, name(by), t.now)
		if err == nil {
			t.must(&rec)
		}
		return err
	})
}

// stuck refuses to begin again what has not ended yet.
func (t *turn) stuck(id machine.ID) error {
	for key := range t.e.zombies {
		if key.run == id && !t.e.zombies[key] {
			return fmt.Errorf("%w: an attempt of run %s does not end and still runs in this process", ErrState, id)
		}
	}
	return nil
}

// Wake ends the waits of a run, so that the next attempts begin now.
func (e *Engine) Wake(ctx context.Context, id, by string) error {
	return e.with(ctx, "wake", id, func(t *turn, run machine.ID) error {
		recs, err := e.m.Wake(run, name(by), t.now)
		for i := range recs {
			t.must(&recs[i])
		}
		return err
	})
}

// Pause stops a run until Resume: nothing of it begins, and what runs is told to
// end and will be made again. Waits keep their times.
func (e *Engine) Pause(ctx context.Context, id, by string) error {
	return e.with(ctx, "pause", id, func(t *turn, run machine.ID) error {
		rec, err := e.m.Hold(run, name(by), t.now)
		if err == nil {
			t.must(&rec)
		}
		return err
	})
}

// Resume lets a run go on that was paused.
func (e *Engine) Resume(ctx context.Context, id, by string) error {
	return e.with(ctx, "resume", id, func(t *turn, run machine.ID) error {
		rec, err := e.m.Free(run, name(by), t.now)
		if err == nil {
			t.must(&rec)
		}
		return err
	})
}

// Postpone has a run wait until a time of the calendar. What runs is told to end,
// and is made again then; it does not count.
func (e *Engine) Postpone(ctx context.Context, id string, until time.Time, by string) error {
	return e.with(ctx, "postpone", id, func(t *turn, run machine.ID) error {
		recs, err := e.m.Postpone(run, calendar(until), name(by), t.now)
		for i := range recs {
			t.must(&recs[i])
		}
		return err
	})
}

// Reset forgets what a run has spent: attempts, windows and lost ones.
func (e *Engine) Reset(ctx context.Context, id, by string) error {
	return e.with(ctx, "reset", id, func(t *turn, run machine.ID) error {
		rec, err := e.m.Forgive(run, name(by), t.now)
		if err == nil {
			t.must(&rec)
		}
		return err
	})
}

// with asks the owner to do something with a run.
func (e *Engine) with(ctx context.Context, what, id string, f func(*turn, machine.ID) error) error {
	run, err := machine.ParseID(id)
	if err != nil {
		return fmt.Errorf("%s: %w: %q", what, ErrNotFound, id)
	}
	if err := e.do(ctx, func(t *turn) error { return f(t, run) }); err != nil {
		return fmt.Errorf("%s: %w", what, e.ended(ctx, what, id, err))
	}
	return nil
}

// ended makes an error clearer if the run is not in memory any more.
func (e *Engine) ended(ctx context.Context, what, id string, err error) error {
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	if i, e2 := e.Get(ctx, id); e2 == nil {
		return fmt.Errorf("%w: run %s has %s, nothing to %s", ErrState, id, i.State, what)
	}
	return err
}

// Replay starts a new run in the place of one that has ended, by the same
// definition, with another input if it is not nil. A dead run is replaced by it,
// and leaves the dead letters.
func (e *Engine) Replay(ctx context.Context, id string, input json.RawMessage, by string) (Started, error) {
	return e.repeat(ctx, id, by, func(_ *machine.Run, s *machine.Start) error {
		if input != nil {
			if !json.Valid(input) {
				return errors.New("input: not JSON")
			}
			s.Input = input
		}
		return nil
	})
}

// Rerun starts a new run in the place of one that has ended, which begins with
// the step: what the steps before it returned is taken over.
func (e *Engine) Rerun(ctx context.Context, id, step, by string) (Started, error) {
	return e.repeat(ctx, id, by, func(r *machine.Run, s *machine.Start) error {
		i := r.Def.Index(step)
		if i < 0 {
			return fmt.Errorf("step: workflow %q has no %q", r.Def.Name, step)
		}
		s.Outputs = make([][]byte, len(r.Steps))
		for k, again := range r.Def.Downstream(i) {
			if !again && r.Steps[k].Status == machine.Complete {
				s.Outputs[k] = r.Output(k)
			}
		}
		return nil
	})
}

// repeat starts a run like another one.
func (e *Engine) repeat(ctx context.Context, id, by string, change func(*machine.Run, *machine.Start) error) (Started, error) {
	r, err := e.load(ctx, id)
	if err != nil {
		return Started{}, err
	}
	if !r.Closed() {
		return Started{}, fmt.Errorf("%w: run %s is %s; cancel it first", ErrState, id, r.State())
	}
	s := &machine.Start{Input: r.Input, Origin: r.ID, Source: name(by)}
	if err := change(r, s); err != nil {
		return Started{}, err
	}
	if len(s.Input) > e.cfg.MaxPayload {
		return Started{}, fmt.Errorf("input: %w: %d bytes, at most %d", ErrTooLarge, len(s.Input), e.cfg.MaxPayload)
	}
	s.Hash = r.Def.Hash()
	err = e.do(ctx, func(t *turn) error { return t.repeat(r, s) })
	if err != nil {
		return Started{}, err
	}
	return Started{ID: s.ID.String(), e: e}, nil
}

// repeat starts a run, and says of a dead one that the new one does its work. Both
// or neither: of two who repeat a dead run at once, one is refused.
func (t *turn) repeat(r *machine.Run, s *machine.Start) error {
	if r.Outcome == machine.Dead {
		if _, err := t.e.m.Replace(r.ID, r.ID, t.now); err != nil {
			return err
		}
	}
	next, err := t.start(s, r.Def)
	if err != nil || r.Outcome != machine.Dead {
		return err
	}
	rec, err := t.e.m.Replace(r.ID, next, t.now)
	if err == nil {
		t.must(&rec)
	}
	return err
}

// load returns a copy of a run, from memory or from the view.
func (e *Engine) load(ctx context.Context, id string) (*machine.Run, error) {
	run, err := machine.ParseID(id)
	if err != nil {
		return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	copied, err := ask(ctx, e, func(*turn) (*machine.Run, error) {
		r, ok := e.m.Run(run)
		if !ok {
			return nil, ErrNotFound
		}
		return e.m.Copy(r)
	})
	if err == nil {
		return copied, nil
	}
	v := e.view.Load()
	if !errors.Is(err, ErrNotFound) || v == nil {
		return nil, fmt.Errorf("%w: %s", err, id)
	}
	row, ok, err := v.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if !ok || len(row.Detail) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	copied, err = ask(ctx, e, func(*turn) (*machine.Run, error) { return e.m.Decode(row.Detail) })
	if err != nil {
		return nil, err
	}
	copied.Input = row.Input
	return copied, nil
}

// Get returns a run with its whole history.
func (e *Engine) Get(ctx context.Context, id string) (*Info, error) {
	r, err := e.load(ctx, id)
	if err != nil {
		return nil, err
	}
	return describe(r), nil
}

// Wait waits for the outcome of a run. That the run is dead is not an error of
// Wait.
func (e *Engine) Wait(ctx context.Context, id string) (*Info, error) {
	run, err := machine.ParseID(id)
	if err != nil {
		return nil, fmt.Errorf("wait: %w: %q", ErrNotFound, id)
	}
	for {
		if err := e.waitOnce(ctx, run); err != nil {
			return nil, fmt.Errorf("wait for %s: %w", id, err)
		}
		if i, err := e.Get(ctx, id); err != nil || i.Finished() {
			return i, err
		}
		// Somebody has put it back to work meanwhile.
	}
}

// waitOnce waits until the run is closed, or gone.
func (e *Engine) waitOnce(ctx context.Context, run machine.ID) error {
	over := make(chan struct{})
	err := e.do(ctx, func(*turn) error {
		if r, ok := e.m.Run(run); !ok || r.Closed() {
			close(over)
		} else {
			e.waiters[run] = append(e.waiters[run], over)
		}
		return nil
	})
	if err != nil {
		return err
	}
	select {
	case <-over:
		return e.Err()
	case <-e.stop:
		return ErrClosed
	case <-ctx.Done():
		e.unwait(run, over)
		return context.Cause(ctx)
	}
}

// unwait takes back a wait.
func (e *Engine) unwait(id machine.ID, over chan struct{}) {
	_ = e.do(context.Background(), func(*turn) error {
		list := e.waiters[id]
		for i, w := range list {
			if w == over {
				list = append(list[:i], list[i+1:]...)
				break
			}
		}
		if e.waiters[id] = list; len(list) == 0 {
			delete(e.waiters, id)
		}
		return nil
	})
}
