package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// An operation that is called again, by a retry of its run or by a run that repeats its run, must
// not repeat the work of the child that it had before under another idempotency key: either it
// waits for that child, or its new child has the same origin. See [machine.FormerChild].

// adoption says what became of the former child of an operation that is called again.
type adoption struct {
	Run   string            `json:"run,omitempty"`   // the operation waits for this run now
	End   *machine.ChildEnd `json:"end,omitempty"`   // the former child has succeeded
	Undos int               `json:"undos,omitempty"` // neither: the operation needs another child; see machine.FormerChild
}

// adoptFormer has an operation that was called again wait for its former child.
func (d *dispatcher) adoptFormer(c *flowCall, g *opGroup, run *machine.Run, number, i int) {
	parent, former := machine.Parent{Run: run.ID, Number: number}, run.FormerOf(number)
	asked := &call{Op: opAdopt, By: "its parent " + run.ID.String(), Start: &start{Parent: &childOf{Run: run.ID.String(), Number: number}}}
	var got *adoption
	sh := d.sh
	c.starting++
	d.errands = append(d.errands, &errand{
		shard: former.ID.Slot() % sh.shards,
		ask: func(ctx context.Context) error {
			a, err := sh.askRun(ctx, former.ID.String(), asked)
			got = a.Adopted
			return oldMemberError(err)
		},
		report: func(err error) func(*turn) error {
			return func(t *turn) error {
				c.starting--
				switch {
				case errors.Is(err, ErrNotFound): // its retention is over
					d.replaceFormer(c, g, parent, i, former)
				case err != nil:
					t.endChild(&machine.ChildEnd{Parent: parent, Child: former.ID, Reason: retry.StopPermanent, Code: "retry", Text: err.Error(), Undos: former.Undos})
				case got.End != nil:
					t.endChild(got.End)
				case got.Run == "":
					former.Undos = max(former.Undos, got.Undos)
					d.replaceFormer(c, g, parent, i, former)
				default:
					child := machine.Child{Number: number, Detached: g.child.detached}
					child.ID, _ = machine.ParseID(got.Run) // the shard has formatted it
					t.childStarted(parent, child)
				}
				if run, ok := t.o.m.Run(c.run); ok && d.flows[c.run] == c {
					d.suspendIdle(c, run)
				}
				return nil
			}
		},
	})
}

// replaceFormer starts another child for an operation, because its former child was canceled or is
// not stored any more. If the call is over, the next one does it.
func (d *dispatcher) replaceFormer(c *flowCall, g *opGroup, parent machine.Parent, i int, former machine.FormerChild) {
	t := &d.o.turn
	run, err := t.o.m.Read(parent.Run)
	if err != nil || d.flows[c.run] != c || run.Outcome != machine.Undecided || run.IsUndoing() || run.Step(parent.Number) == nil || run.ChildStarted(parent.Number) {
		return
	}
	refuse := func(code string, err error) {
		t.endChild(&machine.ChildEnd{Parent: parent, Child: former.ID, Reason: retry.StopPermanent, Code: code, Text: err.Error(), Undos: former.Undos})
	}
	switch s := d.childStart(g, run, parent.Number, i, former); {
	case g.child.missing:
		_ = c.noteWrong(fmt.Errorf("operation %s: %w", label(g.identity(i)), &missingWorkflowError{g.child.def.Name}))
	case g.child.shard >= 0:
		d.startElsewhere(c, g, run, parent.Number, i, former)
	case g.child.refused[i] != nil:
		refuse(inputRefused, g.child.refused[i])
	default:
		if _, _, err := t.start(s, g.child.def); err != nil {
			refuse("start", err)
			return
		}
		t.childStarted(parent, machine.Child{Number: parent.Number, ID: s.ID, Detached: g.child.detached})
	}
}

// adopt carries out opAdopt: the operation of the call waits for the run, or for the one that has
// replaced or continued it. A dead run is retried.
func (c *commands) adopt(ctx context.Context, asked *call) (*adoption, error) {
	if asked.Start == nil {
		return nil, fmt.Errorf("%w: no parent", errCall)
	}
	parent, err := asked.Start.Parent.parent()
	if err != nil {
		return nil, err
	}
	if err := c.sh.checkMembers(machine.ChildFormat); err != nil {
		return nil, err
	}
	id, err := machine.ParseID(asked.ID)
	if err != nil {
		return nil, fmt.Errorf("adopt: %w: %q", ErrNotFound, asked.ID)
	}
	for {
		a, next := new(adoption), machine.ID{}
		err := c.sh.do(ctx, func(t *turn) (err error) {
			run, err := t.o.m.Read(id)
			if err == nil {
				next, err = t.adopt(run, parent, name(asked.By), a)
			}
			return err
		})
		if errors.Is(err, ErrNotFound) {
			run, loadErr := c.sh.queries.loadEnded(ctx, id.String())
			if err = loadErr; err == nil {
				next, err = c.sh.formerEnd(run, parent, a)
			}
		}
		if err != nil || next.IsZero() {
			return a, err
		}
		id = next
	}
}

// adopt records that the operation waits for the run, unless the run has ended. next is the run that
// has replaced or continued this one; zero for none.
func (t *turn) adopt(run *machine.Run, parent machine.Parent, by string, a *adoption) (next machine.ID, err error) {
	switch p := run.Parent(); {
	case p.Run == parent.Run && p.Number == parent.Number: // by an earlier call
		a.Run = run.ID.String()
		return next, nil
	case run.Outcome != machine.Undecided && !run.Closed():
		return next, fmt.Errorf("%w: an attempt of run %s is still being stopped", errBusy, run.ID)
	case run.Outcome == machine.Dead && run.ReplacedBy().IsZero():
		if err := t.o.sh.dispatcher.checkStuck(run.ID); err != nil {
			return next, err
		}
		rec, err := t.o.m.Retry(run.ID, by, t.now)
		if err != nil {
			return next, fmt.Errorf("%w: %w", errBusy, err) // its children are being canceled
		}
		t.must(&rec)
	case run.Outcome != machine.Undecided:
		return t.o.sh.formerEnd(run, parent, a)
	}
	rec := t.o.m.Adopt(run, parent, t.now)
	t.must(&rec)
	a.Run = run.ID.String()
	return next, nil
}

// formerEnd sets what became of a run that has ended for good. next is the run that has replaced or
// continued it; zero for none.
func (sh *shard) formerEnd(run *machine.Run, parent machine.Parent, a *adoption) (next machine.ID, err error) {
	if next := run.ReplacedBy(); !next.IsZero() {
		return next, nil
	}
	a.Undos = run.AllUndos()
	if run.Outcome == machine.Succeeded {
		a.End = sh.endOfChild(run)
		a.End.Parent = parent
	}
	return next, nil
}

// formerOf is the former child of an operation in a run that another one repeats.
type formerOf struct {
	Origin   string `json:"origin,omitempty"` // "" if the run has not called the operation
	Undos    int    `json:"undos,omitempty"`
	Previous string `json:"previous,omitempty"` // the run that the run repeats itself; "" for none
}

// formerChild carries out opFormerChild: it returns the child that a run had for an operation.
func (c *commands) formerChild(ctx context.Context, asked *call) (*formerOf, error) {
	run, err := c.sh.queries.load(ctx, asked.ID)
	if err != nil {
		return nil, err
	}
	of := &formerOf{Previous: run.Previous().String()}
	for _, identity := range append([]string{asked.Text}, asked.Keep...) {
		if former, ok := run.FormerChild(identity, asked.Limit); ok {
			of.Origin, of.Undos = former.Origin.String(), former.Undos
			break
		}
	}
	return of, nil
}

// setFormer finds the former children of the operations of a group that have not been called.
func (f *Flow) setFormer(g *opGroup) error {
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
func (c *flowCall) formerOfRepeated(identity string, earlier []string, g *opGroup) (former machine.FormerChild, err error) {
	ctx, cancel := c.context()
	defer cancel()
	slot := machine.WorkflowSlot(g.child.def.Name)
	if g.child.shard < 0 {
		slot = c.run.Slot()
	}
	for id := c.previous.String(); id != ""; {
		asked := &call{Op: opFormerChild, Text: identity, Keep: earlier, Limit: slot}
		of, err := retry.Value(ctx, errandPolicy, func(ctx context.Context) (*formerOf, error) {
			a, err := c.sh.askRun(ctx, id, asked)
			if err = oldMemberError(err); err != nil && !canRepeat(err) {
				err = retry.Permanent(err)
			}
			return a.Former, err
		})
		switch {
		case errors.Is(err, ErrNotFound):
			return former, &OpError{Name: label(identity), Code: "origin-purged", Text: fmt.Sprintf(
				"run %s, which this run repeats, is not stored any more: it may have started the same child, whose idempotency keys are not known now: check by hand what that child has done, and start a new run", id)}
		case err != nil:
			c.exitIfStopped()
			return former, err
		case of.Origin != "":
			former.Undos = of.Undos
			former.Origin, err = machine.ParseID(of.Origin)
			return former, err
		}
		id = of.Previous
	}
	return former, nil
}

// earlierNames returns the identities that an operation had before [Renamed].
func (f *Flow) earlierNames(identity string) (list []string) {
	kind, name := splitIdentity(identity)
	mapped, index := cutIndex(name)
	for _, r := range slices.Backward(f.renamed) {
		switch {
		case r[1] == name:
			name = r[0]
		case r[1] == mapped && index != "":
			mapped = r[0]
			name = mapped + "#" + index
		default:
			continue
		}
		list = append(list, kind+":"+name)
	}
	return list
}

// oldMemberError converts the error of a member that does not know an operation: it has an older
// release.
func oldMemberError(err error) error {
	if errors.Is(err, errCall) {
		return fmt.Errorf("%w: %w", ErrOldMember, err)
	}
	return err
}
