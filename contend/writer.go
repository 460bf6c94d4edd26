package contend

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/retry"
)

// Writer proposes values to a store that others write to as well. Make it once
// and share it among all goroutines. It measures how long attempts take.
type Writer struct {
	config    Config
	conflicts []func(error) bool
	random    func() uint64
	runner    *retry.Runner
	turns     turns

	mu   sync.Mutex
	pace Pace
}

// New returns a writer, or an error that lists every problem of the config and
// the options.
func New(c Config, opts ...Option) (*Writer, error) {
	s, err := applyOptions(opts)
	if err = errors.Join(c.Validate(), err); err != nil {
		return nil, fmt.Errorf("contend.New: %w", oneline.Error(err))
	}
	c = c.filled()
	w := &Writer{config: c, conflicts: s.conflicts, random: s.random}
	p := c.Policy
	own := append(s.runner, retry.WithRand(s.random), retry.WithClassifier(w.outcome))
	if c.Scale > 0 {
		p.Cap = math.MaxInt64 // the scaled policy has its own cap
		own = append(own, retry.WithSchedule(w.delay))
	}
	if w.runner, err = retry.New(p, own...); err != nil {
		return nil, fmt.Errorf("contend.New: %w", err)
	}
	return w, nil
}

// Must is [New] for package variables and tests: it panics with the error that
// New would return. It accepts a config, or a policy in the text form of
// [retry.Parse].
func Must[C Config | string](config C, opts ...Option) *Writer {
	c, err := parseConfig(config)
	if err != nil {
		panic(fmt.Errorf("contend.Must: %w", err))
	}
	w, err := New(c, opts...)
	if err != nil {
		panic(err)
	}
	return w
}

// parseConfig returns the config. The argument is a Config, or the text of its
// policy.
func parseConfig(config any) (c Config, err error) {
	text, ok := config.(string)
	if !ok {
		return config.(Config), nil
	}
	c.Policy, err = retry.Parse(text)
	return c, err
}

// Policy returns the policy for the next wait, scaled to the measured duration of
// attempts; see [Config.For].
func (w *Writer) Policy() retry.Policy {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.config.For(w.pace.Attempt())
}

// delay returns the wait before the next attempt, by the scaled policy.
func (w *Writer) delay(s retry.State, o retry.Outcome) time.Duration {
	return retry.Decide(w.Policy(), s, o, retry.Gates{}, w.random()).Wait
}

// outcome classifies a failure. An unmarked error ends the proposal, because
// the value may have been written: only an attempt that knows that it wrote
// nothing may be repeated.
func (w *Writer) outcome(err error) retry.Outcome {
	if t, ok := errors.AsType[*retry.TimeoutError](err); ok && t.Total {
		return retry.Outcome{} // the runner stops because of the total timeout
	}
	if statesOutcome(err) {
		return retry.OutcomeOf(err)
	}
	return retry.Outcome{Class: retry.ClassPermanent}
}

// conflict returns the error as a conflict, or nil if it is not a conflict. It does
// not call the functions of WithConflicts for an error that states its outcome.
func (w *Writer) conflict(err error) error {
	if _, ok := errors.AsType[*ConflictError](err); ok {
		return err
	}
	for _, lost := range w.conflicts {
		if !statesOutcome(err) && lost(err) {
			return &ConflictError{Err: err}
		}
	}
	return nil
}

// observe adds the duration of an attempt to the pace. The store must have answered
// the attempt.
func (w *Writer) observe(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pace.Observe(took)
}

// enter waits for the turn of a proposal. An attempt timeout would end that wait, so a policy with
// one takes no turns.
func (w *Writer) enter(ctx context.Context, first bool) (leave func(lost bool)) {
	if w.config.Policy.AttemptTimeout > 0 {
		return func(bool) {}
	}
	w.mu.Lock()
	pace := w.pace.Attempt()
	w.mu.Unlock()
	return w.turns.enter(ctx, first, pace)
}

// Do makes attempts until one succeeds or the policy gives up; the error is
// then an [*Error]. The attempt runs on the caller's goroutine, with a context
// that ends with it; Do always waits for it to return.
func (w *Writer) Do(ctx context.Context, propose func(context.Context, Try) error) error {
	switch {
	case w == nil || w.runner == nil:
		return errors.New("contend: the Writer was not made by New: use New or Must")
	case ctx == nil:
		return errors.New("contend: context: nil")
	case propose == nil:
		return errors.New("contend: propose: nil")
	}
	p := proposal{w: w, propose: propose}
	err := w.runner.Do(ctx, p.attempt)
	if why, ok := errors.AsType[*retry.Error](err); ok {
		return &Error{Err: why, Unsure: p.try.Unsure}
	}
	return err
}

// proposal is one call of Do.
type proposal struct {
	w       *Writer
	propose func(context.Context, Try) error
	try     Try
}

var errTurn = errors.New("another proposal of this writer had the turn")

// attempt makes one attempt, and records in p.try how it ended.
func (p *proposal) attempt(ctx context.Context) error {
	leave := p.w.enter(ctx, p.try.Number == 0)
	if leave == nil {
		return Lost(nil, errTurn) // nothing was written; the runner reports why the context has ended
	}
	defer func() { leave(p.try.Lost != nil) }()
	p.try.Number++
	start := clock.Now()
	err := p.propose(ctx, p.try)
	took := clock.Now() - start
	p.try.Lost = nil
	if err == nil {
		p.w.observe(took)
		return nil
	}
	if errors.Is(err, ErrUnsure) {
		p.try.Unsure = true
		return err
	}
	if lost := p.w.conflict(err); lost != nil {
		p.w.observe(took)
		p.try.Lost = lost
		return lost
	}
	// An interrupted attempt without a mark may have written.
	p.try.Unsure = p.try.Unsure || ctx.Err() != nil && !statesOutcome(err)
	return err
}

// Try describes the current attempt and how the attempts before it ended.
type Try struct {
	Number int   // number of this attempt, from 1
	Lost   error // the conflict of the previous attempt; nil if it had none
	Unsure bool  // an earlier attempt may have been written; check that before writing again
}

// Do is [Writer.Do] for a proposal with a result.
func Do[T any](ctx context.Context, w *Writer, propose func(context.Context, Try) (T, error)) (v T, err error) {
	var try func(context.Context, Try) error
	if propose != nil {
		try = func(ctx context.Context, t Try) (err error) { v, err = propose(ctx, t); return err }
	}
	if err = w.Do(ctx, try); err != nil {
		var none T
		return none, err
	}
	return v, nil
}

// Pace is the smoothed duration of an attempt: each new one counts an eighth,
// as in TCP's round-trip estimate. It reads no clock. The zero Pace has no
// measurement.
type Pace struct {
	smoothed time.Duration
}

// Observe adds the duration of an attempt that the store answered. Do not
// observe an attempt without a response: it measures the caller's timeout.
func (p *Pace) Observe(took time.Duration) {
	switch took = max(took, 1); p.smoothed {
	case 0:
		p.smoothed = took
	default:
		p.smoothed += (took - p.smoothed) / 8
	}
}

// Attempt returns the smoothed duration of an attempt; 0 if none was observed.
func (p *Pace) Attempt() time.Duration { return p.smoothed }
