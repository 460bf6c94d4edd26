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

// Writer proposes values to a store that others write to as well. It is made
// once and shared by all goroutines; what it learns is how long attempts take.
type Writer struct {
	config    Config
	conflicts []func(error) bool
	random    func() uint64
	runner    *retry.Runner

	mu   sync.Mutex
	pace Pace
}

// New returns a writer. A config that is not valid is an error.
func New(c Config, opts ...Option) (*Writer, error) {
	s, err := apply(opts)
	if err = errors.Join(c.Validate(), err); err != nil {
		return nil, fmt.Errorf("contend.New: %w", oneline.Error(err))
	}
	w := &Writer{config: c, conflicts: s.conflicts, random: s.random}
	p := c.policy()
	own := append(s.runner, retry.WithRand(s.random), retry.WithClassifier(w.outcome))
	if c.Scale > 0 {
		p.Cap = math.MaxInt64 // the scaled policy has its own
		own = append(own, retry.WithSchedule(w.delay))
	}
	if w.runner, err = retry.New(p, own...); err != nil {
		return nil, fmt.Errorf("contend.New: %w", err)
	}
	return w, nil
}

// Must is [New] for package variables and tests: it panics with the error that New
// would return. It accepts a config, or a policy in the text form that [retry.Parse]
// reads.
func Must[C Config | string](config C, opts ...Option) *Writer {
	c, err := configOf(config)
	if err != nil {
		panic(fmt.Errorf("contend.Must: %w", err))
	}
	w, err := New(c, opts...)
	if err != nil {
		panic(err)
	}
	return w
}

// configOf returns a config that is given as such or as the text of its policy.
func configOf(config any) (c Config, err error) {
	text, ok := config.(string)
	if !ok {
		return config.(Config), nil
	}
	c.Policy, err = retry.Parse(text)
	return c, err
}

// Policy returns the policy that the next wait follows.
func (w *Writer) Policy() retry.Policy {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.config.For(w.pace.Attempt())
}

// delay is the wait by the scaled policy.
func (w *Writer) delay(s retry.State, o retry.Outcome) time.Duration {
	return retry.Decide(w.Policy(), s, o, retry.Gates{}, w.random()).Wait
}

// outcome says what a failure means. Only who knows that nothing was written
// may write again, so an error that says nothing ends the proposal.
func (w *Writer) outcome(err error) retry.Outcome {
	if t, ok := errors.AsType[*retry.TimeoutError](err); ok && t.Total {
		return retry.Outcome{} // for the total timeout to end it
	}
	if says(err) {
		return retry.OutcomeOf(err)
	}
	return retry.Outcome{Class: retry.ClassPermanent}
}

// conflict returns the error as a conflict, nil if it is none. Those who
// recognise conflicts are not asked about an error that says what it is.
func (w *Writer) conflict(err error) error {
	if _, ok := errors.AsType[*ConflictError](err); ok {
		return err
	}
	for _, lost := range w.conflicts {
		if !says(err) && lost(err) {
			return &ConflictError{Err: err}
		}
	}
	return nil
}

// observe learns from an attempt that was answered.
func (w *Writer) observe(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pace.Observe(took)
}

// Do makes attempts until one wins or the policy gives up; the error is then an
// [*Error]. The attempt runs on the caller's goroutine, under a context that
// ends with it, and is never abandoned.
func (w *Writer) Do(ctx context.Context, propose func(context.Context, Try) error) error {
	switch {
	case w == nil || w.runner == nil:
		return errors.New("contend: the Writer was not made by New")
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

// attempt makes one attempt, and remembers how it ended.
func (p *proposal) attempt(ctx context.Context) error {
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
	// An attempt that was interrupted, and says nothing more, may have written.
	p.try.Unsure = p.try.Unsure || ctx.Err() != nil && !says(err)
	return err
}
