package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/workflow"
)

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
		if t.After(workflow.LatestTime) {
			return fmt.Errorf("start: %v is after %s, the last time that can be stored", t, workflow.LatestTime.Format(time.DateOnly))
		}
		s.at, s.due = t.UnixNano(), time.Time{}
		return nil
	}
}

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
	return func(s *startSettings) error { s.source = shard.CallerName(who); return nil }
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
	core := coreOf(w)
	if err := e.process.Handlers.Admit(core); err != nil {
		return Started{}, fmt.Errorf("start: %w", err)
	}
	text, err := core.InputOf(input)
	if err != nil {
		return Started{}, fmt.Errorf("start %s: %w", w.Name(), err)
	}
	var s startSettings
	for _, opt := range opts {
		if err := opt(&s); err != nil {
			return Started{}, fmt.Errorf("start %s: %w", w.Name(), err)
		}
	}
	return e.started(e.router.Start(ctx, core, &machine.Start{
		Input: text, Key: s.key, Source: s.source, At: s.at, Timeout: s.timeout, Trace: inject(ctx, e.cfg.Propagator, e.cfg.Logger),
	}, s.due))
}

// started returns the Started of an answer, with the engine that Started.Wait needs.
func (e *Engine) started(a shard.Answer, err error) (Started, error) {
	if err != nil {
		return Started{}, err
	}
	s := a.Started
	return Started{ID: s.ID, Existing: s.Existing, InputDiffers: s.InputDiffers, e: e}, nil
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
