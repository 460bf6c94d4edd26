package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// ErrNoEvent says that no signal came in the time of [Within]. The error of [Await] matches it.
var ErrNoEvent = errors.New("no signal came in time")

// ErrTooManySignals says that a run has too many signals that its function has not waited for.
var ErrTooManySignals = machine.ErrSignals

// ErrSignalUsed says that a run has got a signal with the id before: see [Once].
var ErrSignalUsed = errors.New("a signal with this id has come before")

// Await waits for a signal with this name, and returns its payload: see [Engine.Signal]. A
// signal that came before is taken at once; of several, the oldest one. To wait for signals of
// the same name more than once, use [ForKey].
//
// The wait survives the process, and costs no goroutine and no memory beside the state of the
// run. With [Within] it ends after that time with an [*OpError] that matches [ErrNoEvent]. A
// signal that comes later is kept for the next Await.
func Await[T any](f *Flow, name string, opts ...StepOption) (v T, err error) {
	o, err := f.operation(machine.AwaitKind, name, opts)
	if err != nil {
		return v, err
	}
	defer f.busy.Store(false)
	if f.stored(&o) {
		return resultOf[T](&o)
	}
	g := &opGroup{name: o.identity, n: 1, parallel: 1, sleep: o.within, isAwait: true}
	if err := f.perform(g); err != nil {
		return v, err
	}
	return decoded[T](&g.results[0])
}

// Within limits how long [Await] waits for its signal. Without it there is no limit.
func Within(d time.Duration) StepOption {
	return func(s *stepBuilder) {
		if d <= 0 {
			s.errs = append(s.errs, fmt.Errorf("within: %v is not positive", d))
		}
		s.within = d
	}
}

// Is makes errors.Is match [ErrNoEvent].
func (e *OpError) Is(target error) bool { return target == ErrNoEvent && e.Code == machine.NoEvent }

// SignalOption is an option of [Engine.Signal].
type SignalOption func(*signal) error

// ID sets the id of a signal. Of two signals with the same id, a run gets only one. So a sender
// that does not know whether a signal has arrived can send it again.
func ID(id string) SignalOption {
	return func(s *signal) error {
		if id == "" || len(id) > maxSignalID || hasControl(id) {
			return fmt.Errorf("id: %.200q must have 1 to %d bytes without control characters", id, maxSignalID)
		}
		s.ID = id
		return nil
	}
}

const maxSignalID = 256

// Once makes a signal an error whose id the run has got before: [ErrSignalUsed]. Without Once,
// such a signal is accepted and ignored.
func Once() SignalOption {
	return func(s *signal) error {
		s.once = true
		return nil
	}
}

// SentBy sets the name of the sender of a signal, for the history of the run.
func SentBy(who string) SignalOption {
	return func(s *signal) error {
		s.By = strings.ReplaceAll(name(who), "\x00", "")
		return nil
	}
}

// Signal sends a signal to a run of a flow. The payload is any value that encoding/json can
// write; a json.RawMessage is used as it is. When Signal returns nil, the signal is stored, and
// the run's next [Await] with this name gets it: signals of one name arrive in the order in
// which they were sent.
//
// A run keeps at most 1 000 signals, and 256 KiB of them, that it has not waited for. Then the
// error is [ErrTooManySignals]. A run that has ended takes no signals: the error is an
// [ErrState] that names the outcome. If the run was continued by [Again], the run that continues
// it gets the signal.
func (e *Engine) Signal(ctx context.Context, run, name string, payload any, opts ...SignalOption) error {
	s, err := newSignal(name, payload, e.cfg.MaxPayload, opts)
	if err != nil {
		return err
	}
	return e.signal(ctx, run, s)
}

// RunKey identifies a run by its workflow and its [Key].
type RunKey struct{ Workflow, Key string }

// SignalKey is [Engine.Signal] for the run that has a key.
func (e *Engine) SignalKey(ctx context.Context, to RunKey, name string, payload any, opts ...SignalOption) error {
	s, err := newSignal(name, payload, e.cfg.MaxPayload, opts)
	if err != nil {
		return err
	}
	run, err := e.router.keyed(ctx, to)
	if err != nil {
		return fmt.Errorf("signal %s: %w", name, err)
	}
	return e.signal(ctx, run, s)
}

// signal is a signal as it is sent between processes.
type signal struct {
	Name string          `json:"name"`
	ID   string          `json:"id"`
	By   string          `json:"by,omitempty"`
	Data json.RawMessage `json:"data"`

	once bool // in the process of the sender; a call has another operation then
}

// newSignal returns a signal with these options. It has an id, so that it can be sent again if a
// process of the cluster does not answer.
func newSignal(name string, payload any, most int, opts []SignalOption) (*signal, error) {
	if err := checkName(name); err != nil {
		return nil, fmt.Errorf("signal: %w", err)
	}
	s := &signal{Name: name, ID: rand.Text()}
	for _, opt := range opts {
		if err := opt(s); err != nil {
			return nil, fmt.Errorf("signal %s: %w", name, err)
		}
	}
	text, ok := payload.(json.RawMessage)
	if !ok {
		var err error
		if text, err = json.Marshal(payload); err != nil {
			return nil, fmt.Errorf("signal %s: payload: %w", name, err)
		}
	}
	switch {
	case len(text) == 0:
		text = json.RawMessage("null")
	case ok && !json.Valid(text):
		return nil, fmt.Errorf("signal %s: payload: not JSON", name)
	case len(text) > most:
		return nil, fmt.Errorf("signal %s: payload: %w: %d bytes, at most %d; store it elsewhere and send a reference", name, ErrTooLarge, len(text), most)
	}
	s.Data = text
	return s, nil
}

// signal sends a signal to a run, or to the run that continues it.
func (e *Engine) signal(ctx context.Context, run string, s *signal) error {
	op := opSignal
	if s.once {
		op = opSignalOnce // which is not repeated: the second time would find the signal of the first
	}
	for {
		a, err := e.of(ctx, run, &call{Op: op, Signal: s})
		if err != nil || len(a.IDs) == 0 {
			return err
		}
		run = a.IDs[0]
	}
}

// keyed returns the run that has the key.
func (r *router) keyed(ctx context.Context, of RunKey) (string, error) {
	c := &call{Op: opKeyed, Text: of.Key, Workflow: of.Workflow}
	home := machine.KeySlot(of.Key) % r.count()
	a, err := r.at(ctx, home, c)
	if err == nil && len(a.IDs) > 0 {
		return a.IDs[0], nil
	}
	if r.alone != nil && err != nil {
		return "", err
	}
	var silent []int
	for n, got := range r.all(ctx, c) { // runs of a limited workflow, and scheduled ones, may be elsewhere
		switch {
		case got.err != nil:
			silent = append(silent, n)
		case len(got.IDs) > 0:
			return got.IDs[0], nil
		}
	}
	if len(silent) > 0 {
		return "", fmt.Errorf("no run of workflow %q with the key %q was found, but %w", of.Workflow, of.Key, away(silent))
	}
	return "", fmt.Errorf("%w: no run of workflow %q has the key %q", ErrNotFound, of.Workflow, of.Key)
}

// keyed answers the run of the workflow that has the key, if it is in this shard.
func (c *commands) keyed(ctx context.Context, workflow, key string) ([]string, error) {
	return ask(ctx, c.sh, func(t *turn) ([]string, error) {
		if id, of, ok := t.o.m.Keyed(key); ok && of == workflow {
			return []string{id.String()}, nil
		}
		return nil, nil
	})
}

// signal carries out [Engine.Signal]. If another run continues the run, it returns the id of that
// one, and has sent nothing.
func (c *commands) signal(ctx context.Context, id string, s *signal, once bool) (next []string, err error) {
	if s == nil {
		return nil, fmt.Errorf("%w: a signal without a name", errCall)
	}
	if err := errors.Join(checkName(s.Name), ID(s.ID)(new(signal))); err != nil || !json.Valid(s.Data) || len(s.Data) > c.sh.cfg.MaxPayload || strings.Contains(s.By, "\x00") {
		return nil, fmt.Errorf("%w: signal %.200q with %d bytes: %w", errCall, s.Name, len(s.Data), cmp.Or(err, ErrInput))
	}
	run, err := machine.ParseID(id)
	if err != nil {
		return nil, fmt.Errorf("signal %s: %w: %q", s.Name, ErrNotFound, id)
	}
	err = c.sh.do(ctx, func(t *turn) error {
		r, ok := t.o.m.Run(run)
		if ok && r.Continued() {
			return machine.ErrUnknown // its stored state says what to do
		}
		sent := &machine.Signal{Run: run, Name: s.Name, ID: s.ID, By: s.By, Data: s.Data}
		if ok && r.IsFlow() {
			w := c.sh.handlers.function(r.Def.Steps[0].Handler, r.Def.Name)
			sent.Former = c.sh.handlers.editsOf(w).earlierNames(s.Name)
		}
		rec, known, err := t.o.m.Signal(sent, t.now)
		if err == nil && !known {
			t.must(&rec)
			c.sh.dispatcher.signaled(run, &rec)
		}
		if known && once {
			return ErrSignalUsed
		}
		return err
	})
	if !errors.Is(err, ErrNotFound) {
		return nil, wrapSignal(s, err)
	}
	r, loadErr := c.sh.queries.load(ctx, id)
	switch {
	case loadErr != nil:
		return nil, wrapSignal(s, loadErr)
	case r.HasSignal(s.ID) && once:
		return nil, wrapSignal(s, ErrSignalUsed)
	case r.HasSignal(s.ID):
		return nil, nil
	case r.Continued():
		return []string{r.ReplacedBy().String()}, nil
	}
	return nil, fmt.Errorf("signal %s: %w: run %s is %s, and takes no signals", s.Name, ErrState, id, r.State())
}

func wrapSignal(s *signal, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("signal %s: %w", s.Name, err)
}

// signaled tells the call of a run's function that a signal has come.
func (d *dispatcher) signaled(id machine.ID, rec *machine.Record) {
	if c := d.flows[id]; c != nil {
		c.size.Add(int64(len(rec.Data)))
	}
	if run, ok := d.o.m.Run(id); ok && rec.Step > 0 {
		d.opEnded(run, rec)
	}
}

// lingers has the calls of functions that wait for a signal. A signal may come soon. So such a
// call is suspended after suspendAfter only, unless many other functions are running.
type lingers struct {
	sh   *shard
	list []linger // ordered by time
}

// linger is a call that waits for a signal, and the time when it is to be suspended. If
// flowCall.lingerUntil is another time, the call has got the signal.
type linger struct {
	*flowCall
	until int64
}

// stay reports whether a signal may still come soon, so that the call is not suspended.
func (l *lingers) stay(c *flowCall, now int64) bool {
	switch {
	case c.lingerUntil != 0:
		return now < c.lingerUntil
	case l.sh.functions.few():
		return false
	}
	c.lingerUntil = now + int64(suspendAfter)
	l.list = append(l.list, linger{c, c.lingerUntil})
	return true
}

// nextDue returns when the next call is to be suspended.
func (l *lingers) nextDue() int64 {
	if len(l.list) == 0 {
		return math.MaxInt64
	}
	return l.list[0].until
}

// suspendLingering suspends the calls that have waited for a signal for long enough.
func (d *dispatcher) suspendLingering() {
	for l, now := &d.lingers, d.o.turn.now; l.nextDue() <= now; {
		c := l.list[0]
		l.list[0] = linger{}
		l.list = l.list[1:]
		run, ok := d.o.m.Run(c.run)
		if ok && d.flows[c.run] == c.flowCall && c.lingerUntil == c.until && run.Outcome == machine.Undecided {
			d.suspendIdle(c.flowCall, run)
		}
	}
}
