package flow

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// PrepareChildren says which children the operations of a group start. It must be called before Perform.
func (f *Flow) PrepareChildren(g *Group, o Called, w *workflow.Workflow, inputs []any) error {
	c := f.call
	if w == nil {
		return f.Misuse(o.Identity, errors.New("the workflow is nil"))
	}
	asked := w
	w, err := c.settings.Registry.Resolve(asked)
	if err != nil {
		return f.Misuse(o.Identity, err)
	}
	g.child = &childStarts{def: asked.Def, inputs: make([]json.RawMessage, len(inputs)), detached: o.detached, shard: -1, refused: map[int]error{}, former: map[int]machine.FormerChild{}}
	if w == nil {
		g.child.missing = true
		return f.checkStarted(g)
	}
	g.child.def = w.Def
	if c.settings.IsClustered {
		if err := c.placeChildren(w, g.child); err != nil {
			return err
		}
	}
	for i := range inputs {
		if f.isStarted(g, i) {
			continue
		}
		text, err := w.InputOf(inputs[i])
		if err == nil {
			err = workflow.CheckSize(len(text), c.settings.MaxPayload)
		}
		_, pending := f.pending[g.identity(i)]
		switch {
		case err == nil:
			g.child.inputs[i] = text
		case pending: // the child may have been started: see startElsewhere
			g.child.refused[i] = err
		default:
			return &info.OpError{Name: machine.OpName(g.identity(i)), Code: inputRefused, Text: err.Error()}
		}
	}
	return f.setFormer(g)
}

// inputRefused is the code of an operation whose child can't be started with its input.
const inputRefused = "input"

// isStarted reports whether an operation needs no input any more, because its child was started. A
// child in another shard may not be started although the operation was called.
func (f *Flow) isStarted(g *Group, i int) bool {
	identity := g.identity(i)
	_, pending := f.pending[identity]
	_, again := f.former[identity] // its former child may have to be replaced: see replaceFormer
	return f.ended.has(identity) || pending && g.child.shard < 0 && !again
}

// checkStarted returns an error if a child has to be started, whose workflow is not registered: the run waits
// until it is.
func (f *Flow) checkStarted(g *Group) error {
	for i := range g.n {
		identity := g.identity(i)
		_, pending := f.pending[identity]
		if !f.ended.has(identity) && !pending {
			return f.Misuse(g.Name, &missingWorkflowError{g.child.def.Name})
		}
	}
	return nil
}

// placeChildren determines the shard of the children. In a cluster, all runs of a workflow with a
// limit are in one shard. The others are in that of their parent.
func (c *call) placeChildren(w *workflow.Workflow, to *childStarts) error {
	ctx, cancel := c.context()
	defer cancel()
	shard, err := c.settings.Host.ChildShard(ctx, w)
	if err != nil {
		c.exitIfStopped()
		return err
	}
	if shard >= 0 && shard != c.settings.Shard {
		to.shard = shard
	}
	return nil
}

// setFormer finds the former children of the operations of a group that have not been called.
func (f *Flow) setFormer(g *Group) error {
	c := f.call
	for i := range g.n {
		identity := g.identity(i)
		_, pending := f.pending[identity]
		former, known := f.former[identity]
		switch {
		case pending, f.ended.has(identity):
			continue
		case !known && !c.previous.IsZero():
			var err error
			if former, err = c.formerOfRepeated(identity, f.earlierNames(identity), g); err != nil {
				return err
			}
		}
		if !former.Origin.IsZero() {
			g.child.former[i] = former
		}
	}
	return nil
}

// formerOfRepeated returns the former child of an operation of a run that repeats another one: the
// child of this operation in that run, or in the one that it repeats itself.
func (c *call) formerOfRepeated(identity string, earlier []string, g *Group) (former machine.FormerChild, err error) {
	ctx, cancel := c.context()
	defer cancel()
	slot := machine.WorkflowSlot(g.child.def.Name)
	if g.child.shard < 0 {
		slot = c.run.Slot()
	}
	for id := c.previous; !id.IsZero(); {
		of, previous, err := c.settings.Host.FormerChild(ctx, id, OperationName{identity, earlier, slot})
		switch {
		case errors.Is(err, machine.ErrUnknown):
			return former, &info.OpError{Name: machine.OpName(identity), Code: "origin-purged", Text: fmt.Sprintf(
				"run %s, which this run repeats, is not stored any more: it may have started the same child, whose idempotency keys are not known now: check by hand what that child has done, and start a new run", id)}
		case err != nil:
			c.exitIfStopped()
			return former, err
		case !of.Origin.IsZero():
			return of, nil
		}
		id = previous
	}
	return former, nil
}
