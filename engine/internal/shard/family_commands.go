package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/internal/machine"
)

// childEnded carries out OpChildEnded.
func (c commands) childEnded(ctx context.Context, asked *Call) error {
	end := new(machine.ChildEnd)
	if err := json.Unmarshal(asked.Input, end); err != nil {
		return fmt.Errorf("%w: %w", ErrCall, err)
	}
	return c.with(ctx, string(asked.Op), asked.ID, func(t Recorder, id machine.ID) error {
		if _, err := t.State().Read(id); err != nil {
			return err
		}
		if end.Parent.Run != id || len(end.Output) > c.sh.process.Settings.MaxPayload || end.Reason == 0 && !json.Valid(end.Output) {
			return fmt.Errorf("%w: the end of a child of run %s with %d bytes", ErrCall, end.Parent.Run, len(end.Output))
		}
		c.sh.family.endChild(t, end)
		return nil
	})
}

// adopt carries out OpAdopt: the operation of the call waits for the run, or for the one that has
// replaced or continued it. A dead run is retried.
func (c commands) adopt(ctx context.Context, asked *Call) (*adoption, error) {
	if asked.Start == nil {
		return nil, fmt.Errorf("%w: no parent", ErrCall)
	}
	parent, err := asked.Start.Parent.parent()
	if err != nil {
		return nil, err
	}
	if err := c.sh.process.Peers.CheckFormat(machine.ChildFormat); err != nil {
		return nil, err
	}
	id, err := machine.ParseID(asked.ID)
	if err != nil {
		return nil, fmt.Errorf("adopt: %w: %q", machine.ErrUnknown, asked.ID)
	}
	for {
		a, next := new(adoption), machine.ID{}
		err := c.sh.Do(ctx, func(t Recorder) (err error) {
			run, err := t.State().Read(id)
			if err == nil {
				next, err = c.sh.family.adopt(t, run, parent, CallerName(asked.By), a)
			}
			return err
		})
		if errors.Is(err, machine.ErrUnknown) {
			var run *machine.Run
			if run, err = queries(c).loadEnded(ctx, id.String()); err == nil {
				next = c.sh.family.formerEnd(run, parent, a)
			}
		}
		if err != nil || next.IsZero() {
			return a, err
		}
		id = next
	}
}

// formerChild carries out OpFormerChild: it returns the child that a run had for an operation.
func (c commands) formerChild(ctx context.Context, asked *Call) (*FormerOf, error) {
	run, err := queries(c).load(ctx, asked.ID)
	if err != nil {
		return nil, err
	}
	of := &FormerOf{Previous: run.Previous().String()}
	for _, identity := range append([]string{asked.Text}, asked.Keep...) {
		if former, ok := machine.FormerChildOf(run, identity, asked.Limit); ok {
			of.Origin, of.Undos = former.Origin.String(), former.Undos
			break
		}
	}
	return of, nil
}
