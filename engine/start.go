package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
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
		if !utf8.ValidString(key) {
			return fmt.Errorf("key: %q is not UTF-8", key)
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
	ID       string `json:"id"`
	Existing bool   `json:"existing,omitempty"` // the key was known, nothing was started

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
	return e.startAt(ctx, w, s)
}

// accepts says whether the steps can read the input. One of their own type needs no
// second look.
func (w *Workflow) accepts(input any, text json.RawMessage) error {
	if w.input == nil || len(text) == 0 || reflect.TypeOf(input) == w.input {
		return nil
	}
	return json.Unmarshal(text, reflect.New(w.input).Interface())
}

func (sh *shard) start(ctx context.Context, def *machine.Definition, s *machine.Start) (*Started, error) {
	if len(s.Input) > sh.cfg.MaxPayload {
		return nil, tooLarge(def, s, sh.cfg.MaxPayload)
	}
	s.Hash = def.Hash()
	r := &request{start: s, def: def, done: make(chan struct{})}
	select {
	case sh.starts <- r:
	case <-sh.stop:
		return nil, untaken{fmt.Errorf("start %s: %w", def.Name, ErrClosed)}
	case <-sh.done:
		return nil, untaken{sh.reason()}
	case <-ctx.Done():
		return nil, fmt.Errorf("start %s: %w", def.Name, context.Cause(ctx))
	}
	var err error
	select {
	case <-r.done:
		err = r.err
	case <-sh.done:
		err = sh.answered(r)
	case <-ctx.Done():
		// It may be stored or not; with a key, asking again finds out.
		err = fmt.Errorf("%w before the start was known to be stored", context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", def.Name, err)
	}
	return &Started{ID: r.id.String(), Existing: s.ID.IsZero()}, nil
}

func tooLarge(def *machine.Definition, s *machine.Start, most int) error {
	return fmt.Errorf("start %s: input: %w: %d bytes, at most %d; store it elsewhere and pass where", def.Name, ErrTooLarge, len(s.Input), most)
}

// start decides about a start. The run gets its id here, so that the id has the
// time of the record in it.
func (t *turn) start(s *machine.Start, def *machine.Definition) (machine.ID, error) {
	sh := t.sh
	if err := t.define(def); err != nil {
		return machine.ID{}, err
	}
	if s.ID.IsZero() {
		s.ID = machine.NewID(t.now, sh.random(), sh.random()).In(sh.slot(s.Key))
	} else if _, again := sh.m.Run(s.ID); again {
		return s.ID, nil
	}
	rec, existing, err := sh.m.Start(s, t.now)
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

// define stores a definition, unless it is stored already.
func (t *turn) define(def *machine.Definition) error {
	rec, fresh := t.sh.m.Define(def, t.now)
	if !fresh {
		return nil
	}
	err := t.record(&rec)
	if err != nil {
		t.sh.health.broken(err)
	}
	return err
}
