package flow

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/retry"
)

// PrepareChildren says which children the operations of a group start, with these inputs. It must be called before
// Perform.
func (f *Flow) PrepareChildren(g *Group, o Called, w *workflow.Workflow, inputOf func(i int) any) error {
	c := f.call
	if w == nil {
		return f.Misuse(o.Identity, errors.New("the workflow is nil"))
	}
	asked := w
	w, err := c.settings.Registry.Resolve(asked)
	if err != nil {
		return f.Misuse(o.Identity, err)
	}
	g.child = &childStarts{def: asked.Def, inputs: make([]json.RawMessage, g.n), detached: o.detached, shard: -1, refused: map[int]error{}, former: map[int]machine.FormerChild{}}
	if w == nil {
		g.child.missing = true
		return f.checkStarted(g)
	}
	g.child.def = w.Def
	if c.settings.IsClustered {
		if err := f.placeChildren(w, g.child); err != nil {
			return err
		}
	}
	for i := range g.n {
		if f.isStarted(g, i) {
			continue
		}
		text, err := w.InputOf(inputOf(i))
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
func (f *Flow) placeChildren(w *workflow.Workflow, to *childStarts) error {
	c := f.call
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
			if former, err = f.formerOfRepeated(identity, f.earlierNames(identity), g); err != nil {
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
func (f *Flow) formerOfRepeated(identity string, earlier []string, g *Group) (former machine.FormerChild, err error) {
	c := f.call
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

// callChild records the call of an operation that starts a child, and returns its number. A child
// in this shard is started with it, in the same entry of the log.
func (a *Calls) callChild(t Turn, g *Group, run *machine.Run, i int) int {
	called, _ := run.Flow().Called()
	former := g.child.former[i]
	s := a.childStart(g, run, called+1, i, former)
	rec := machine.CallOp(run, &machine.OpCall{Name: g.identity(i), Child: &machine.Child{ID: s.ID, Detached: g.child.detached, Former: former}}, t.Now())
	if g.child.shard < 0 && former.ID.IsZero() {
		t.RecordStart(rec, s, g.child.def)
	} else {
		t.Record(rec)
	}
	return rec.Step
}

// childStart returns the start of the child of an operation. The origin is that of the former child,
// if there is one.
func (a *Calls) childStart(g *Group, run *machine.Run, number, i int, former machine.FormerChild) *machine.Start {
	slot := run.ID.Slot()
	switch {
	case g.child.shard >= 0:
		slot = machine.WorkflowSlot(g.child.def.Name)
	case slot%a.settings.Shards != a.settings.Shard: // the run was moved here
		slot = a.settings.Shard
	}
	return &machine.Start{
		ID: machine.ChildID(run, number, slot), Hash: g.child.def.Hash(), Input: g.child.inputs[i], Source: "child of " + run.ID.String(),
		Parent: machine.Parent{Run: run.ID, Number: number}, Trace: machine.Trace(run),
		Previous: former.Origin, Origin: former.Origin, Undos: former.Undos,
	}
}

// startPending starts the child of an operation that was called, if it belongs to another shard and
// is not known to be started. If its workflow is not registered, the run waits for that: see
// suspendIdle.
func (a *Calls) startPending(t Turn, c *call, g *Group, run *machine.Run, number, i int) {
	switch child := run.Flow().ChildOf(number); {
	case child.Started:
	case !child.Former.ID.IsZero():
		a.adoptFormer(t, c, g, run, number, i)
	case g.child.shard < 0 && !g.child.missing:
	case g.child.shard >= 0:
		a.startElsewhere(t, c, g, run, number, i, child.Former)
	case !a.isHere(t, child.Run()):
		c.noteMissingWorkflow(g, i)
	}
}

// isHere reports whether a run that was started is in this shard, even if it is not in memory. One
// that was moved here may belong to another shard by its id.
func (a *Calls) isHere(t Turn, id machine.ID) bool {
	_, here := t.State().Run(id)
	return here || id.Slot()%a.settings.Shards == a.settings.Shard
}

// startElsewhere starts the child of an operation in another shard. The function is not suspended
// before that is known to be stored: if this process dies first, the function is called again, and
// starts the child again, which has no effect if it was started.
func (a *Calls) startElsewhere(t Turn, c *call, g *Group, run *machine.Run, number, i int, former machine.FormerChild) {
	s := a.childStart(g, run, number, i, former)
	child := machine.Child{Number: number, ID: s.ID, Detached: g.child.detached}
	code, refused := "start", g.child.refused[i]
	if refused != nil {
		code = inputRefused
	}
	c.starting++
	t.StartElsewhere(g.child.shard, s, g.child.def, refused, func(t Turn, err error) {
		c.starting--
		if err != nil {
			t.EndChild(&machine.ChildEnd{Parent: s.Parent, Child: s.ID, Reason: retry.StopPermanent, Code: code, Text: err.Error()})
			return
		}
		t.ChildStarted(s.Parent, child)
		a.suspendStarted(t, c)
	})
}

// suspendStarted suspends the function if it had to wait only for the start of a child.
func (a *Calls) suspendStarted(t Turn, c *call) {
	if run, ok := t.State().Run(c.run); ok && a.running[c.run] == c {
		a.suspendIdle(t, c, run)
	}
}

// adoptFormer has an operation that was called again wait for its former child.
func (a *Calls) adoptFormer(t Turn, c *call, g *Group, run *machine.Run, number, i int) {
	parent, former := machine.Parent{Run: run.ID, Number: number}, run.Flow().ChildOf(number).Former
	c.starting++
	t.Adopt(former.ID, parent, func(t Turn, got AdoptedChild, err error) {
		c.starting--
		switch {
		case errors.Is(err, machine.ErrUnknown): // its retention is over
			a.replaceFormer(t, c, g, parent, i, former)
		case err != nil:
			t.EndChild(&machine.ChildEnd{Parent: parent, Child: former.ID, Reason: retry.StopPermanent, Code: "retry", Text: err.Error(), Undos: former.Undos})
		case got.End != nil:
			t.EndChild(got.End)
		case got.Run == "":
			former.Undos = max(former.Undos, got.Undos)
			a.replaceFormer(t, c, g, parent, i, former)
		default:
			id, _ := machine.ParseID(got.Run) // the shard has formatted it
			t.ChildStarted(parent, machine.Child{Number: number, ID: id, Detached: g.child.detached})
		}
		a.suspendStarted(t, c)
	})
}

// replaceFormer starts another child for an operation, because its former child was canceled or is
// not stored any more. If the call is over, the next one does it.
func (a *Calls) replaceFormer(t Turn, c *call, g *Group, parent machine.Parent, i int, former machine.FormerChild) {
	run, err := t.State().Read(parent.Run)
	if err != nil || a.running[c.run] != c || run.Outcome != machine.Undecided || run.Flow().IsUndoing() || run.Step(parent.Number) == nil || run.Flow().ChildOf(parent.Number).Started {
		return
	}
	refuse := func(code string, err error) {
		t.EndChild(&machine.ChildEnd{Parent: parent, Child: former.ID, Reason: retry.StopPermanent, Code: code, Text: err.Error(), Undos: former.Undos})
	}
	switch s := a.childStart(g, run, parent.Number, i, former); {
	case g.child.missing:
		c.noteMissingWorkflow(g, i)
	case g.child.shard >= 0:
		a.startElsewhere(t, c, g, run, parent.Number, i, former)
	case g.child.refused[i] != nil:
		refuse(inputRefused, g.child.refused[i])
	default:
		if _, _, err := t.StartRun(s, g.child.def); err != nil {
			refuse("start", err)
			return
		}
		t.ChildStarted(parent, machine.Child{Number: parent.Number, ID: s.ID, Detached: g.child.detached})
	}
}
