package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// Start starts a run in the shard.
func (sh *Shard) Start(ctx context.Context, def *machine.Definition, s *machine.Start) (*startedRun, error) {
	if err := CheckInput(def, s, sh.process.Settings.MaxPayload); err != nil {
		return nil, err
	}
	if err := sh.process.Peers.CheckFormat(def.Format()); err != nil {
		return nil, fmt.Errorf("start %s: %w", def.Name, err)
	}
	s.Hash = def.Hash()
	r := &request{start: s, def: def, done: make(chan struct{})}
	err := sh.send(ctx, sh.starts, r)
	if _, stopped := errors.AsType[NotAccepted](err); stopped {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", def.Name, err)
	}
	st := &startedRun{ID: r.id.String(), Existing: r.existing}
	if r.existing && !r.sameInput {
		run, err := queries{sh}.load(ctx, st.ID)
		switch {
		case errors.Is(err, machine.ErrUnknown): // the key is still known, but the run was deleted
		case err != nil:
			return nil, fmt.Errorf("start %s: the key is that of run %s, whose input can't be compared: %w", def.Name, st.ID, err)
		default:
			st.InputDiffers = !workflow.SameJSON(run.Input, s.Input)
		}
	}
	return st, nil
}

// CheckInput returns an error if the input of a start is too large.
func CheckInput(def *machine.Definition, s *machine.Start, most int) error {
	if err := workflow.CheckSize(len(s.Input), most); err != nil {
		return fmt.Errorf("start %s: %w", def.Name, err)
	}
	return nil
}

// startCalled carries out OpStart. If an earlier call has started the run already, it returns
// that run.
func (c commands) startCalled(ctx context.Context, s *Start) (*startedRun, error) {
	if s == nil {
		return nil, fmt.Errorf("%w: a start without a run", ErrCall)
	}
	remote := s.Def == nil
	def, err := s.definition()
	if err != nil {
		return nil, err
	}
	id, err := machine.ParseID(s.ID)
	if err != nil {
		return nil, err
	}
	parent, err := s.Parent.parent()
	if err != nil {
		return nil, err
	}
	var origin machine.ID
	if s.Origin != "" {
		if origin, err = machine.ParseID(s.Origin); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCall, err)
		}
	}
	if s.Again || remote { // an earlier call may have started it
		switch stored, err := queries(c).stored(ctx, id); {
		case err != nil:
			return nil, err
		case stored:
			return &startedRun{ID: s.ID}, nil
		}
	}
	return c.sh.Start(ctx, def, &machine.Start{
		ID: id, Key: s.Key, Source: s.Source, Input: s.Input, At: s.At, In: s.In, Timeout: s.Timeout, Trace: s.Trace, Parent: parent,
		Previous: origin, Origin: origin, Undos: s.Undos,
	})
}
