package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// Child starts a run of another workflow, the child, waits until it has ended, and returns its
// output. The child has the id of this operation, so it is started only once, whatever dies. Like
// that of [Sleep], the wait costs no goroutine and no place.
//
// If the child does not succeed, the error is an [*OpError] with the child's error and code. A
// retry of this run then continues the same child: it retries a dead one, and waits for one that was
// retried or replaced meanwhile. If the child was canceled or is not stored any more, it starts
// another one with the same [Task.Origin]. If this run is canceled, times out or dies, its children
// are canceled, unless they are [Detached].
func Child[Out any](f *Flow, name string, w *Workflow, input any, opts ...StepOption) (v Out, err error) {
	o, err := f.operation(machine.ChildKind, name, opts)
	if err != nil {
		return v, err
	}
	defer f.busy.Store(false)
	g := &opGroup{name: o.identity, n: 1, parallel: 1}
	if err := f.performChildren(g, o, w, []any{input}); err != nil {
		return v, err
	}
	return decoded[Out](&g.results[0])
}

// Children starts a child for each input, [Parallel] of them side by side, and returns their
// outputs: see [Child] and [Map].
func Children[In, Out any](f *Flow, name string, w *Workflow, inputs []In, opts ...StepOption) ([]Out, error) {
	o, err := f.operation(childrenKind, name, opts)
	if err != nil {
		return nil, err
	}
	defer f.busy.Store(false)
	items := make([]any, len(inputs))
	texts := make([][]byte, len(inputs))
	for i := range inputs {
		items[i] = inputs[i]
		if texts[i], err = json.Marshal(inputs[i]); err != nil {
			return nil, f.misuse(o.identity, fmt.Errorf("input %d: %w", i, err))
		}
	}
	if err := f.checkItems(&o, texts); err != nil {
		return nil, err
	}
	g := &opGroup{name: o.identity, n: len(inputs), parallel: o.parallel, isMap: true}
	if err := f.performChildren(g, o, w, items); err != nil {
		return nil, err
	}
	return mapResults[Out](g)
}

// childrenKind is the kind of the operation that stores what [Children] starts.
const childrenKind = "children"

// Detached says that a child continues if the run that has started it ends: see [Child].
func Detached() StepOption {
	return func(s *stepBuilder) { s.detached = true }
}

// childStarts is what the operations of a group start.
type childStarts struct {
	def      *machine.Definition
	inputs   []json.RawMessage
	refused  map[int]error // inputs with which a child can't be started, of operations that were called
	detached bool
	shard    int                         // shard of the children; -1 means that of their parent
	missing  bool                        // their workflow is not registered: shard and inputs are not known
	former   map[int]machine.FormerChild // of operations that have not been called
}

// performChildren is perform for operations that start children.
func (f *Flow) performChildren(g *opGroup, o operation, w *Workflow, inputs []any) error {
	c := f.call
	if w == nil {
		return f.misuse(o.identity, errors.New("the workflow is nil"))
	}
	asked := w
	w, err := c.sh.handlers.resolve(asked)
	if err != nil {
		return f.misuse(o.identity, err)
	}
	g.child = &childStarts{def: asked.def, inputs: make([]json.RawMessage, len(inputs)), detached: o.detached, shard: -1, refused: map[int]error{}, former: map[int]machine.FormerChild{}}
	if w == nil {
		g.child.missing = true
		return f.performStarted(g)
	}
	g.child.def = w.def
	if c.sh.childShard != nil {
		if err := c.sh.placeChildren(c, w, g.child); err != nil {
			return err
		}
	}
	for i := range inputs {
		if f.isStarted(g, i) {
			continue
		}
		text, err := w.inputOf(inputs[i])
		if most := c.sh.cfg.MaxPayload; err == nil && len(text) > most {
			err = inputTooLarge(len(text), most)
		}
		_, pending := f.pending[g.identity(i)]
		switch {
		case err == nil:
			g.child.inputs[i] = text
		case pending: // the child may have been started: see startElsewhere
			g.child.refused[i] = err
		default:
			return &OpError{Name: label(g.identity(i)), Code: inputRefused, Text: err.Error()}
		}
	}
	if err := f.setFormer(g); err != nil {
		return err
	}
	return f.perform(g)
}

// inputRefused is the code of an operation whose child can't be started with its input.
const inputRefused = "input"

// isStarted reports whether an operation needs no input any more, because its child was started. A
// child in another shard may not be started although the operation was called.
func (f *Flow) isStarted(g *opGroup, i int) bool {
	identity := g.identity(i)
	_, pending := f.pending[identity]
	_, again := f.former[identity] // its former child may have to be replaced: see replaceFormer
	return f.ended.has(identity) || pending && g.child.shard < 0 && !again
}

// performStarted is perform for children whose workflow is not registered. If one has to be
// started, the run waits until the workflow is registered.
func (f *Flow) performStarted(g *opGroup) error {
	for i := range g.n {
		identity := g.identity(i)
		_, pending := f.pending[identity]
		if !f.ended.has(identity) && !pending {
			return f.misuse(g.name, &missingWorkflowError{g.child.def.Name})
		}
	}
	return f.perform(g)
}

// missingWorkflowError says that a child can't be started, because its workflow is not registered.
type missingWorkflowError struct{ name string }

func (e *missingWorkflowError) Error() string {
	return fmt.Sprintf("there is no workflow %q now", e.name)
}

// placeChildren determines the shard of the children. In a cluster, all runs of a workflow with a
// limit are in one shard. The others are in that of their parent.
func (sh *shard) placeChildren(c *flowCall, w *Workflow, to *childStarts) error {
	ctx, cancel := c.context()
	defer cancel()
	shard, err := retry.Value(ctx, errandPolicy, func(ctx context.Context) (int, error) { return sh.childShard(ctx, w) })
	if err != nil {
		c.exitIfStopped()
		return err
	}
	if shard >= 0 && shard != sh.number {
		to.shard = shard
	}
	return nil
}

// childShard returns the shard in which children of the workflow are started if all its runs are
// in one shard; -1 if they are started in that of their parent.
func (p *placement) childShard(ctx context.Context, w *Workflow) (int, error) {
	gathered, err := p.isGathered(ctx, w)
	if err != nil || !gathered {
		return -1, err
	}
	return machine.WorkflowSlot(w.Name()) % p.log.Shards(), nil
}

// callChild records the call of an operation that starts a child, and returns its number. A child
// in this shard is started with it, in the same entry of the log.
func (d *dispatcher) callChild(g *opGroup, run *machine.Run, i int) int {
	t := &d.o.turn
	called, _ := run.CalledOps()
	former := g.child.former[i]
	s := d.childStart(g, run, called+1, i, former)
	if g.child.shard < 0 && former.ID.IsZero() {
		t.next = followUps{again: s, againDef: g.child.def}
	}
	rec := d.o.m.Call(run, &machine.OpCall{Name: g.identity(i), Child: &machine.Child{ID: s.ID, Detached: g.child.detached, Former: former}}, t.now)
	t.must(&rec)
	return rec.Step
}

// childStart returns the start of the child of an operation. The origin is that of the former child,
// if there is one.
func (d *dispatcher) childStart(g *opGroup, run *machine.Run, number, i int, former machine.FormerChild) *machine.Start {
	slot := run.ID.Slot()
	switch {
	case g.child.shard >= 0:
		slot = machine.WorkflowSlot(g.child.def.Name)
	case slot%d.sh.shards != d.sh.number: // the run was moved here
		slot = d.sh.number
	}
	return &machine.Start{
		ID: machine.ChildID(run, number, slot), Hash: g.child.def.Hash(), Input: g.child.inputs[i], Source: "child of " + run.ID.String(),
		Parent: machine.Parent{Run: run.ID, Number: number}, Trace: run.Trace(),
		Previous: former.Origin, Origin: former.Origin, Undos: former.Undos,
	}
}

// startPending starts the child of an operation that was called, if it belongs to another shard and
// is not known to be started. If its workflow is not registered, the run waits for that: see
// suspendIdle.
func (d *dispatcher) startPending(c *flowCall, g *opGroup, run *machine.Run, number, i int) {
	switch former := run.FormerOf(number); {
	case run.ChildStarted(number):
	case !former.ID.IsZero():
		d.adoptFormer(c, g, run, number, i)
	case g.child.shard < 0 && !g.child.missing:
	case g.child.shard >= 0:
		d.startElsewhere(c, g, run, number, i, former)
	case !d.isHere(run.ChildOf(number)):
		_ = c.noteWrong(fmt.Errorf("operation %s: %w", label(g.identity(i)), &missingWorkflowError{g.child.def.Name}))
	}
}

// isHere reports whether a run that was started is in this shard, even if it is not in memory. One
// that was moved here may belong to another shard by its id.
func (d *dispatcher) isHere(id machine.ID) bool {
	_, here := d.o.m.Run(id)
	return here || id.Slot()%d.sh.shards == d.sh.number
}

// startElsewhere starts the child of an operation in another shard. The function is not suspended
// before that is known to be stored: if this process dies first, the function is called again, and
// starts the child again, which has no effect if it was started.
func (d *dispatcher) startElsewhere(c *flowCall, g *opGroup, run *machine.Run, number, i int, former machine.FormerChild) {
	s := d.childStart(g, run, number, i, former)
	def, shard := g.child.def, g.child.shard
	child := machine.Child{Number: number, ID: s.ID, Detached: g.child.detached}
	asked := &call{Op: opStartFlow, Start: &start{
		ID: s.ID.String(), Definition: def.Text(), Source: s.Source, Input: s.Input, Trace: s.Trace, Again: true,
		Parent: &childOf{Run: run.ID.String(), Number: number}, Origin: s.Origin.String(), Undos: s.Undos, def: def,
	}}
	if !s.Origin.IsZero() {
		asked.Op = opStartAgain
	}
	code := "start"
	refused := g.child.refused[i]
	if refused != nil {
		code = inputRefused
	}
	c.starting++
	ask := func(ctx context.Context) error { return oldMemberError(d.sh.askShard(ctx, shard, asked)) }
	if refused != nil {
		ask = func(ctx context.Context) error {
			_, err := d.sh.getRun(ctx, s.ID.String())
			if errors.Is(err, ErrNotFound) { // it was not started before with an input that was accepted then
				return refused
			}
			return err
		}
	}
	d.errands = append(d.errands, &errand{shard: shard, ask: ask, report: func(err error) func(*turn) error {
		return func(t *turn) error {
			c.starting--
			if err != nil {
				t.endChild(&machine.ChildEnd{Parent: s.Parent, Child: s.ID, Reason: retry.StopPermanent, Code: code, Text: err.Error()})
				return nil
			}
			t.childStarted(s.Parent, child)
			if run, ok := t.o.m.Run(c.run); ok && d.flows[c.run] == c {
				d.suspendIdle(c, run)
			}
			return nil
		}
	}})
}

// childStarted records that a child was started in another shard, so that it is not started again
// when it is not stored any more. If its parent has ended meanwhile, the child is canceled: the
// cancellation may have come to the other shard before the start.
func (t *turn) childStarted(parent machine.Parent, c machine.Child) {
	run, err := t.o.m.Read(parent.Run)
	if rec, ok := t.o.m.StartChild(parent, c.ID, t.now); ok {
		t.must(&rec)
	}
	if c.Detached || err == nil && run.Outcome == machine.Undecided && !run.IsUndoing() {
		return
	}
	t.cancelElsewhere(parent.Run, c, "its parent "+parent.Run.String())
}

// childOf is the parent of a run, as it is sent between processes.
type childOf struct {
	Run    string `json:"run"`
	Number int    `json:"number"`
}

// parent returns the parent of a run to start.
func (c *childOf) parent() (p machine.Parent, err error) {
	if c == nil {
		return p, nil
	}
	p.Number = c.Number
	p.Run, err = machine.ParseID(c.Run)
	if err != nil || c.Number < 1 || c.Number > math.MaxInt32 {
		return p, fmt.Errorf("%w: a child of operation %d of run %.100q", errCall, c.Number, c.Run)
	}
	return p, nil
}

// tellFamily does what follows from the end of a run: it cancels its children, and tells its
// parent. If another run continues it, that one tells the parent.
func (t *turn) tellFamily(id machine.ID) {
	run, err := t.o.m.Read(id)
	if err != nil {
		t.o.sh.health.broken(err)
		return
	}
	if run.Outcome == machine.Undecided {
		return
	}
	t.cancelChildren(run)
	if p := run.Parent(); !p.Run.IsZero() && !p.Told {
		t.tellParent(run)
	}
}

// cancelChildren cancels the children of a run that has ended, or undoes its operations.
func (t *turn) cancelChildren(run *machine.Run) {
	for _, c := range run.Children() {
		if !c.Detached {
			t.cancelChild(run, c)
		}
	}
}

// cancelChild cancels a child of a run.
func (t *turn) cancelChild(run *machine.Run, c machine.Child) {
	by := "its parent " + run.ID.String()
	for id := c.ID; ; {
		child, here := t.o.m.Run(id)
		switch {
		case !here:
			t.cancelElsewhere(run.ID, c, by)
		case child.Continued():
			id = child.ReplacedBy()
			continue
		case child.Outcome == machine.Undecided:
			rec, err := t.o.m.Cancel(id, by, t.now)
			if err == nil {
				t.must(&rec)
			}
		}
		return
	}
}

// cancelElsewhere cancels a child in another shard.
func (t *turn) cancelElsewhere(parent machine.ID, c machine.Child, by string) {
	sh := t.o.sh
	never := &machine.ChildEnd{
		Parent: machine.Parent{Run: parent, Number: c.Number}, Child: c.Run(), Reason: retry.StopCanceled, Code: "canceled", Text: "it was not started",
	}
	sh.dispatcher.errands = append(sh.dispatcher.errands, &errand{
		shard: c.ID.Slot() % sh.shards,
		ask: func(ctx context.Context) error {
			if former := c.Run(); former != c.ID {
				if err := sh.cancelAdopted(ctx, former.String(), parent.String(), by); err != nil {
					return err
				}
			}
			return sh.cancelRun(ctx, c.ID.String(), by)
		},
		report: func(err error) func(*turn) error {
			if !errors.Is(err, ErrNotFound) {
				return nil
			}
			return func(t *turn) error { t.endChild(never); return nil }
		},
	})
}

// cancelAdopted cancels the former child of an operation, or the run that has replaced or continued
// it, if the operation waited for that run and has not recorded it.
func (p *process) cancelAdopted(ctx context.Context, id, parent, by string) error {
	for {
		i, err := p.getRun(ctx, id)
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
			return p.cancelRun(ctx, id, by)
		}
	}
}

// cancelChain cancels a run, or the run that continues it. It is no error if that has ended.
func (e *Engine) cancelChain(ctx context.Context, id, by string) error {
	for {
		err := e.Cancel(ctx, id, by)
		if !errors.Is(err, ErrState) {
			return err
		}
		i, err := e.Get(ctx, id)
		if err != nil || i.ContinuedBy == "" {
			return err
		}
		id = i.ContinuedBy
	}
}

// tellParent tells the parent of a run that the run has ended.
func (t *turn) tellParent(run *machine.Run) {
	end := t.o.sh.endOfChild(run)
	if _, here := t.o.m.Run(end.Parent.Run); here {
		t.endChild(end)
		rec := t.o.m.Tell(run, t.now)
		t.must(&rec)
		return
	}
	text, err := json.Marshal(end)
	if err != nil {
		t.o.sh.health.broken(err)
		return
	}
	sh, id := t.o.sh, run.ID
	told := func(t *turn) error {
		if run, ok := t.o.m.Run(id); ok && !run.Parent().Told {
			rec := t.o.m.Tell(run, t.now)
			t.must(&rec)
		}
		return nil
	}
	sh.dispatcher.errands = append(sh.dispatcher.errands, &errand{
		shard: end.Parent.Run.Slot() % sh.shards,
		ask: func(ctx context.Context) error {
			_, err := sh.askRun(ctx, end.Parent.Run.String(), &call{Op: opChildEnded, Input: text})
			return err
		},
		report: func(err error) func(*turn) error {
			if err != nil && !errors.Is(err, ErrNotFound) {
				sh.cfg.Logger.Error("the end of a run can't be told to its parent", "run", id, "parent", end.Parent.Run, "error", err)
			}
			return told
		},
	})
}

// endOfChild returns how a run has ended, for its parent.
func (sh *shard) endOfChild(run *machine.Run) *machine.ChildEnd {
	end := run.EndOfChild()
	if n := len(end.Output); n > sh.cfg.MaxPayload { // of several steps together
		end.Reason, end.Code, end.Output = retry.StopPermanent, "too-large", nil
		end.Text = fmt.Sprintf("run %s succeeded, but its output has %d bytes, and a parent can get at most %d", run.ID, n, sh.cfg.MaxPayload)
	}
	return end
}

// childEnded carries out opChildEnded.
func (c *commands) childEnded(ctx context.Context, asked *call) error {
	end := new(machine.ChildEnd)
	if err := json.Unmarshal(asked.Input, end); err != nil {
		return fmt.Errorf("%w: %w", errCall, err)
	}
	return c.with(ctx, string(asked.Op), asked.ID, func(t *turn, id machine.ID) error {
		if _, err := t.o.m.Read(id); err != nil {
			return err
		}
		if end.Parent.Run != id || len(end.Output) > c.sh.cfg.MaxPayload || end.Reason == 0 && !json.Valid(end.Output) {
			return fmt.Errorf("%w: the end of a child of run %s with %d bytes", errCall, end.Parent.Run, len(end.Output))
		}
		t.endChild(end)
		return nil
	})
}

// endChild records the end of a child in its parent, if an operation of the parent waits for it.
func (t *turn) endChild(end *machine.ChildEnd) {
	rec, ok, err := t.o.m.EndChild(end, t.now)
	switch {
	case errors.Is(err, ErrNotFound): // the parent is not kept any more
	case err != nil:
		t.o.sh.health.broken(err)
	case ok:
		t.must(&rec)
		t.o.sh.dispatcher.signaled(rec.Run, &rec)
	}
}
