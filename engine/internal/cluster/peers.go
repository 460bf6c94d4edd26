package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// The router implements [shard.Peers], also for the only shard of a folder.

// Deliver brings a delivery to the shard that it is for.
func (r *Router) Deliver(ctx context.Context, d *shard.Delivery) error {
	switch d.Kind {
	case shard.StartChild:
		return r.startChild(ctx, d)
	case shard.CancelChild:
		if d.Former != d.Run {
			if err := r.cancelAdopted(ctx, d.Former.String(), d.Parent.Run.String(), d.By); err != nil {
				return err
			}
		}
		return r.cancelChain(ctx, d.Run.String(), d.By)
	case shard.ChildHasEnded:
		return r.Change(ctx, d.Run.String(), &shard.Call{Op: shard.OpChildEnded, Input: d.End})
	case shard.AdoptChild:
		parent := d.Parent.Run.String()
		a, err := r.Of(ctx, d.Run.String(), &shard.Call{Op: shard.OpAdopt, By: "its parent " + parent, Start: &shard.Start{Parent: &shard.ChildOf{Run: parent, Number: d.Parent.Number}}})
		d.Adopted = a.Adopted
		return oldMemberError(err)
	}
	return fmt.Errorf("a delivery of kind %d", d.Kind)
}

// startChild starts a child. If it can't be started with its input now, startChild succeeds only if
// the child was started before, when its input was accepted.
func (r *Router) startChild(ctx context.Context, d *shard.Delivery) error {
	if d.Refused != nil {
		_, err := r.Read(ctx, d.Run.String())
		if errors.Is(err, machine.ErrUnknown) {
			return d.Refused
		}
		return err
	}
	asked := &shard.Call{Op: shard.OpStartFlow, Start: d.Start}
	if d.Start.Origin != "" {
		asked.Op = shard.OpStartAgain
	}
	_, err := r.At(ctx, d.Shard, asked)
	return oldMemberError(err)
}

// Read returns a run of any shard.
func (r *Router) Read(ctx context.Context, run string) (*info.Info, error) {
	a, err := r.Of(ctx, run, &shard.Call{Op: shard.OpGet})
	return a.Info, err
}

// Wait waits until a run has ended, or the last run that continues it.
func (r *Router) Wait(ctx context.Context, id string) (*info.Info, error) {
	defer r.deadlocks.begin(ctx, id)()
	for {
		a, err := r.Of(ctx, id, &shard.Call{Op: shard.OpWait})
		if err != nil {
			return nil, fmt.Errorf("wait for %s: %w", id, err)
		}
		if !a.Over {
			continue // an owner in another process answers after some time, even if the run has not ended
		}
		i, err := r.Read(ctx, id)
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

// FormerChild returns the child that a run had for an operation.
func (r *Router) FormerChild(ctx context.Context, run string, of flow.OperationName) (*shard.FormerOf, error) {
	a, err := r.Of(ctx, run, &shard.Call{Op: shard.OpFormerChild, Text: of.Identity, Keep: of.Earlier, Limit: of.Slot})
	return a.Former, oldMemberError(err)
}

// ChildShard returns the shard of the children of a workflow; -1 means that of their parent.
func (r *Router) ChildShard(ctx context.Context, w *workflow.Workflow) (int, error) {
	if r.cluster == nil {
		return -1, nil
	}
	return r.cluster.placement.home(ctx, w)
}

// CheckFormat returns a [shard.ErrOldMember] if a member of the cluster can't read a format.
func (r *Router) CheckFormat(format int) error {
	if r.cluster == nil {
		return nil
	}
	return checkFormat(r.cluster.log, format)
}

// cancelAdopted cancels the former child of an operation, or the run that has replaced or continued
// it, if the operation waited for that run and has not recorded it.
func (r *Router) cancelAdopted(ctx context.Context, id, parent, by string) error {
	for {
		i, err := r.Read(ctx, id)
		switch {
		case errors.Is(err, machine.ErrUnknown):
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
func (r *Router) cancelChain(ctx context.Context, id, by string) error {
	for {
		err := r.Change(ctx, id, &shard.Call{Op: shard.OpCancel, By: by})
		if !errors.Is(err, machine.ErrState) {
			return err
		}
		i, err := r.Read(ctx, id)
		if err != nil || i.ContinuedBy == "" {
			return err
		}
		id = i.ContinuedBy
	}
}

// oldMemberError converts the error of a member that does not know an operation: it has an older
// release.
func oldMemberError(err error) error {
	if errors.Is(err, shard.ErrCall) {
		return fmt.Errorf("%w: %w", shard.ErrOldMember, err)
	}
	return err
}
