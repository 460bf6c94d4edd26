package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/textfmt"
)

// ErrInput says that an input is not JSON, can't be prepared, or can't be decoded as the
// input type of the workflow's steps.
var ErrInput = errors.New("input")

// StartOption says how a run is started.
type StartOption func(*startSettings) error

// startSettings has the values that start options set.
type startSettings struct {
	key     string
	source  string
	at      int64     // Unix time in nanoseconds; 0 means now
	due     time.Time // end of the wait of In, by the monotonic clock; zero for none
	timeout time.Duration
}

// Key makes a start idempotent. As long as the run is kept, another start with the same
// key starts nothing and returns that run. Then [Started.Existing] is true, and
// [Started.InputDiffers] says whether the inputs differ.
func Key(key string) StartOption {
	return func(s *startSettings) error {
		if len(key) > 512 {
			return fmt.Errorf("key: %d bytes, at most 512", len(key))
		}
		if !utf8.ValidString(key) {
			return fmt.Errorf("key: %q is not UTF-8", key)
		}
		s.key = key
		return nil
	}
}

// At starts the run when the wall clock of the process that has the run shows the time.
func At(t time.Time) StartOption {
	return func(s *startSettings) error {
		if t.After(farthest) {
			return fmt.Errorf("start: %v is after %s, the last time that can be stored", t, farthest.Format(time.DateOnly))
		}
		s.at, s.due = t.UnixNano(), time.Time{}
		return nil
	}
}

// farthest is the last time that can be stored, with room for waits after it.
var farthest = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// In starts the run after a delay. It counts elapsed time: neither a clock that is set nor the
// clock of another process of the cluster changes it.
func In(d time.Duration) StartOption {
	due := time.Now().Add(d)
	return func(s *startSettings) error {
		if err := At(due)(s); err != nil {
			return err
		}
		s.due = due
		return nil
	}
}

// setDelay sets how long a start has to wait from now on, if it has the wait of [In] that ends
// at due. If that is over, the time at, which is one of the caller's wall clock, does not count
// either.
func setDelay(due time.Time, at *int64, in *time.Duration) {
	if due.IsZero() {
		return
	}
	if *in = max(time.Until(due), 0); *in == 0 {
		*at = 0
	}
}

// RunTimeout limits how long the run may take. It replaces the workflow's [Timeout]. Runs that
// [Again] begins have it, too.
func RunTimeout(d time.Duration) StartOption {
	return func(s *startSettings) error {
		if d <= 0 {
			return fmt.Errorf("timeout: %v is not positive", d)
		}
		s.timeout = d
		return nil
	}
}

// Source sets who starts the run, for people who read its history.
func Source(who string) StartOption {
	return func(s *startSettings) error { s.source = name(who); return nil }
}

// name shortens the name of a caller to at most 200 bytes of valid UTF-8.
func name(who string) string {
	return strings.ToValidUTF8(textfmt.Truncate(who, 200), "\uFFFD")
}

// Started is the result of a start.
type Started struct {
	ID       string `json:"id"`
	Existing bool   `json:"existing,omitempty"` // the key belongs to this earlier run; nothing was started

	// InputDiffers says that the existing run has another input than this start. White
	// space and the order of an object's fields do not count.
	InputDiffers bool `json:"input_differs,omitempty"`

	e *Engine
}

// Wait waits until the run has ended: see [Engine.Wait].
func (s Started) Wait(ctx context.Context) (*Info, error) { return s.e.Wait(ctx, s.ID) }

// Start starts a run. When it returns without an error, the run is stored, and continues
// after a restart if the process ends. The input is any value that encoding/json can write
// and then decode as the input type of the workflow's steps. A json.RawMessage is used as
// it is.
//
// A workflow that is not registered is registered first. If another workflow with the same
// name is registered, nothing is started and the error is [ErrRegistered]: use
// [Engine.Register] to replace it, or start the one that [Engine.Workflow] returns.
func (e *Engine) Start(ctx context.Context, w *Workflow, input any, opts ...StartOption) (Started, error) {
	if err := e.handlers.admit(w); err != nil {
		return Started{}, fmt.Errorf("start: %w", err)
	}
	text, err := w.inputOf(input)
	if err != nil {
		return Started{}, fmt.Errorf("start %s: %w", w.Name(), err)
	}
	var s startSettings
	for _, opt := range opts {
		if err := opt(&s); err != nil {
			return Started{}, fmt.Errorf("start %s: %w", w.Name(), err)
		}
	}
	return e.started(e.router.start(ctx, w, &machine.Start{
		Input: text, Key: s.key, Source: s.source, At: s.at, Timeout: s.timeout, Trace: e.process.inject(ctx),
	}, s.due))
}

// start starts a run, in the shard that the placement of the cluster chooses.
func (r *router) start(ctx context.Context, w *Workflow, s *machine.Start, due time.Time) (a answer, err error) {
	if r.alone != nil {
		setDelay(due, &s.At, &s.In)
		a.Started, err = r.alone.commands.start(ctx, w.def, s)
		return a, err
	}
	if most := r.process.cfg.MaxPayload; len(s.Input) > most {
		return a, tooLarge(w.def, s, most)
	}
	return r.cluster.placement.start(ctx, w, s, due)
}

// started returns the Started of an answer, with the engine that Started.Wait needs.
func (e *Engine) started(a answer, err error) (Started, error) {
	if err != nil {
		return Started{}, err
	}
	a.Started.e = e
	return *a.Started, nil
}

// StartRegistered starts a run of the workflow that is registered with the name of w, or of
// w itself if none is. It is for programs that replace workflows by [Engine.Register] or
// [Engine.Replace] while they start runs.
func (e *Engine) StartRegistered(ctx context.Context, w *Workflow, input any, opts ...StartOption) (Started, error) {
	current := func() *Workflow {
		if registered, ok := e.Workflow(w.Name()); ok {
			return registered
		}
		return w
	}
	s, err := e.Start(ctx, current(), input, opts...)
	if errors.Is(err, ErrRegistered) { // it was replaced between the two calls
		s, err = e.Start(ctx, current(), input, opts...)
	}
	return s, err
}

// inputOf returns the input of a run as it is stored: prepared and checked. Its size is not
// checked.
func (w *Workflow) inputOf(input any) (json.RawMessage, error) {
	text, ok := input.(json.RawMessage)
	if !ok {
		var err error
		if text, err = json.Marshal(input); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInput, err)
		}
	} else if len(text) > 0 && !json.Valid(text) {
		return nil, fmt.Errorf("%w: not JSON", ErrInput)
	}
	text, err := w.prepared(text, time.Time{})
	if err != nil {
		return nil, err
	}
	if err := w.accepts(input, text); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	return text, nil
}

// accepts returns an error if the JSON text can't be decoded as the input type of the steps.
// It does not decode the text if input has that type already.
func (w *Workflow) accepts(input any, text json.RawMessage) error {
	if w.input == nil || len(text) == 0 || reflect.TypeOf(input) == w.input {
		return nil
	}
	return json.Unmarshal(text, reflect.New(w.input).Interface())
}

// start starts a run in the shard.
func (c *commands) start(ctx context.Context, def *machine.Definition, s *machine.Start) (*Started, error) {
	sh := c.sh
	if len(s.Input) > sh.cfg.MaxPayload {
		return nil, tooLarge(def, s, sh.cfg.MaxPayload)
	}
	if err := sh.checkMembers(def.Format()); err != nil {
		return nil, fmt.Errorf("start %s: %w", def.Name, err)
	}
	s.Hash = def.Hash()
	r := &request{start: s, def: def, done: make(chan struct{})}
	ctx, cancel := sh.health.limitStoring(ctx)
	defer cancel()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("start %s: %w", def.Name, context.Cause(ctx))
	}
	select {
	case sh.starts <- r:
	case <-sh.stop:
		return nil, notAccepted{fmt.Errorf("start %s: %w", def.Name, ErrClosed)}
	case <-sh.done:
		return nil, notAccepted{sh.closedError()}
	case <-ctx.Done():
		return nil, fmt.Errorf("start %s: %w", def.Name, context.Cause(ctx))
	}
	var err error
	select {
	case <-r.done:
		err = r.err
	case <-sh.done:
		err = sh.answerOf(r)
	case <-ctx.Done():
		// The run may be stored or not. A second start with the same key finds out.
		if err = context.Cause(ctx); !errors.Is(err, ErrNotStored) {
			err = fmt.Errorf("%w before the start was known to be stored", err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", def.Name, err)
	}
	st := &Started{ID: r.id.String(), Existing: r.existing}
	if r.existing && !r.sameInput {
		if st.InputDiffers, err = c.inputDiffers(ctx, st.ID, s.Input); err != nil {
			return nil, fmt.Errorf("start %s: the key is that of run %s, whose input can't be compared: %w", def.Name, st.ID, err)
		}
	}
	return st, nil
}

// inputDiffers reports whether a stored run has another input. It reports false if the run
// is not stored any more.
func (c *commands) inputDiffers(ctx context.Context, id string, input []byte) (bool, error) {
	run, err := c.sh.queries.load(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return false, nil // the key is still known, but the run was deleted
	}
	if err != nil {
		return false, err
	}
	return !sameJSON(run.Input, input), nil
}

// sameJSON reports whether two texts are the same JSON value. An empty text means null.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, errA := decodeJSON(a)
	y, errB := decodeJSON(b)
	return errA == nil && errB == nil && reflect.DeepEqual(x, y)
}

// decodeJSON decodes a value. Numbers stay as they are written: two that differ only
// beyond the precision of a float64 are not the same.
func decodeJSON(text []byte) (v any, err error) {
	if len(text) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

func tooLarge(def *machine.Definition, s *machine.Start, most int) error {
	return fmt.Errorf("start %s: %w", def.Name, inputTooLarge(len(s.Input), most))
}

func inputTooLarge(size, most int) error {
	return fmt.Errorf("input: %w: %d bytes, at most %d; store it elsewhere and pass a reference", ErrTooLarge, size, most)
}

// start records the start of a run, and its definition if that is new. If the key belongs to
// an earlier run, it returns the id of that run and true. A run without an id gets one here,
// so that the id contains the time of the record.
func (t *turn) start(s *machine.Start, def *machine.Definition) (id machine.ID, existing bool, err error) {
	o := t.o
	if err := t.define(def); err != nil {
		return id, false, err
	}
	if s.ID.IsZero() {
		s.ID = machine.NewID(t.now, o.random(), o.random()).In(o.slot(s.Key))
	} else if _, again := o.m.Run(s.ID); again {
		return s.ID, false, nil
	}
	rec, other, err := o.m.Start(s, t.now)
	if err != nil || !other.IsZero() {
		return other, err == nil, err
	}
	if rec.Size() > journal.MaxEntry-1000 {
		return id, false, fmt.Errorf("%w: the input and the results that are taken over have %d bytes, at most %d can be stored: "+
			"rerun an earlier step, of which fewer results are taken over, or replay the whole run", ErrTooLarge, rec.Size(), journal.MaxEntry-1000)
	}
	t.must(&rec)
	return s.ID, false, nil
}

// startRequested handles the request of a start. For a known key it compares the inputs
// byte by byte, if the run is in memory: most such starts are repetitions, and need no
// comparison as JSON.
func (t *turn) startRequested(r *request) {
	r.id, r.existing, r.err = t.start(r.start, r.def)
	if run, ok := t.o.m.Run(r.id); ok && r.existing && !run.IsCold() {
		r.sameInput = bytes.Equal(run.Input, r.start.Input)
	}
}

// define records a definition, unless it is recorded already.
func (t *turn) define(def *machine.Definition) error {
	rec, fresh := t.o.m.Define(def, t.now)
	if !fresh {
		return nil
	}
	err := t.record(&rec)
	if err != nil {
		t.o.sh.health.broken(err)
	}
	return err
}
