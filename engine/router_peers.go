package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// The router implements [peers], also for the only shard of a folder.

// deliver brings a delivery to the shard that it is for.
func (r *router) deliver(ctx context.Context, d *delivery) error {
	switch d.kind {
	case startChild:
		return r.startChild(ctx, d)
	case cancelChild:
		if d.former != d.run {
			if err := r.cancelAdopted(ctx, d.former.String(), d.parent.Run.String(), d.by); err != nil {
				return err
			}
		}
		return r.cancelChain(ctx, d.run.String(), d.by)
	case childHasEnded:
		return r.change(ctx, d.run.String(), &call{Op: opChildEnded, Input: d.end})
	case adoptChild:
		parent := d.parent.Run.String()
		a, err := r.of(ctx, d.run.String(), &call{Op: opAdopt, By: "its parent " + parent, Start: &start{Parent: &childOf{Run: parent, Number: d.parent.Number}}})
		d.adopted = a.Adopted
		return oldMemberError(err)
	}
	return fmt.Errorf("a delivery of kind %d", d.kind)
}

// startChild starts a child. If it can't be started with its input now, startChild succeeds only if
// the child was started before, when its input was accepted.
func (r *router) startChild(ctx context.Context, d *delivery) error {
	if d.refused != nil {
		_, err := r.read(ctx, d.run.String())
		if errors.Is(err, ErrNotFound) {
			return d.refused
		}
		return err
	}
	asked := &call{Op: opStartFlow, Start: d.start}
	if d.start.Origin != "" {
		asked.Op = opStartAgain
	}
	_, err := r.at(ctx, d.shard, asked)
	return oldMemberError(err)
}

// read returns a run of any shard.
func (r *router) read(ctx context.Context, run string) (*Info, error) {
	a, err := r.of(ctx, run, &call{Op: opGet})
	return a.Info, err
}

// wait waits until a run has ended, or the last run that continues it.
func (r *router) wait(ctx context.Context, id string) (*Info, error) {
	defer r.deadlocks.begin(ctx, id)()
	for {
		a, err := r.of(ctx, id, &call{Op: opWait})
		if err != nil {
			return nil, fmt.Errorf("wait for %s: %w", id, err)
		}
		if !a.Over {
			continue // an owner in another process answers after some time, even if the run has not ended
		}
		i, err := r.read(ctx, id)
		switch {
		case err != nil:
			return nil, err
		case i.ContinuedBy != "":
			id = i.ContinuedBy
		case i.Finished():
			return i, nil
		}
		// The run was continued by another one, or was retried after it had ended: wait again.
	}
}

// formerChild returns the child that a run had for an operation.
func (r *router) formerChild(ctx context.Context, run string, of flow.OperationName) (*formerOf, error) {
	a, err := r.of(ctx, run, &call{Op: opFormerChild, Text: of.Identity, Keep: of.Earlier, Limit: of.Slot})
	return a.Former, oldMemberError(err)
}

// childShard returns the shard of the children of a workflow: see [placement.childShard].
func (r *router) childShard(ctx context.Context, w *workflow.Workflow) (int, error) {
	if r.cluster == nil {
		return -1, nil
	}
	return r.cluster.placement.childShard(ctx, w)
}

// checkFormat returns an [ErrOldMember] if a member of the cluster can't read a format.
func (r *router) checkFormat(format int) error {
	if r.cluster == nil {
		return nil
	}
	return checkFormat(r.cluster.log, format)
}

// cancelAdopted cancels the former child of an operation, or the run that has replaced or continued
// it, if the operation waited for that run and has not recorded it.
func (r *router) cancelAdopted(ctx context.Context, id, parent, by string) error {
	for {
		i, err := r.read(ctx, id)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil
		case err != nil:
			return err
		case i.ReplacedBy != "" || i.ContinuedBy != "":
			id = cmp.Or(i.ReplacedBy, i.ContinuedBy)
		case i.Parent != parent || i.Ended != nil:
			return nil
		default:
			return r.cancelChain(ctx, id, by)
		}
	}
}

// cancelChain cancels a run, or the run that continues it. It is no error if that has ended.
func (r *router) cancelChain(ctx context.Context, id, by string) error {
	for {
		err := r.change(ctx, id, &call{Op: opCancel, By: by})
		if !errors.Is(err, ErrState) {
			return err
		}
		i, err := r.read(ctx, id)
		if err != nil || i.ContinuedBy == "" {
			return err
		}
		id = i.ContinuedBy
	}
}

// oldMemberError converts the error of a member that does not know an operation: it has an older
// release.
func oldMemberError(err error) error {
	if errors.Is(err, errCall) {
		return fmt.Errorf("%w: %w", ErrOldMember, err)
	}
	return err
}
