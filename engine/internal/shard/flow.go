package shard

import (
	"context"
	"encoding/json"

	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/internal/flow"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/retry"
)

// Send implements [flow.Host].
func (sh *Shard) Send(m *flow.Message, stopped <-chan struct{}) bool {
	return sh.put(incoming{message: m}, stopped)
}

// CompleteInput implements [flow.Host].
func (sh *Shard) CompleteInput(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	return completeInput(ctx, sh.process.Peers, input)
}

// ChildShard implements [flow.Host].
func (sh *Shard) ChildShard(ctx context.Context, w *workflow.Workflow) (int, error) {
	return retry.Value(ctx, deliveryPolicy, func(ctx context.Context) (int, error) { return sh.process.Peers.ChildShard(ctx, w) })
}

// FormerChild implements [flow.Host].
func (sh *Shard) FormerChild(ctx context.Context, run machine.ID, op flow.OperationName) (former machine.FormerChild, previous machine.ID, err error) {
	of, err := retry.Value(ctx, deliveryPolicy, func(ctx context.Context) (*FormerOf, error) {
		of, err := sh.process.Peers.FormerChild(ctx, run.String(), op)
		if err != nil && !canRepeat(err) {
			err = retry.Permanent(err)
		}
		return of, err
	})
	if err != nil {
		return former, previous, err
	}
	former.Undos = of.Undos
	if of.Origin != "" {
		former.Origin, err = machine.ParseID(of.Origin)
	} else if of.Previous != "" {
		previous, err = machine.ParseID(of.Previous)
	}
	return former, previous, err
}

// Stuck implements [flow.Host].
func (sh *Shard) Stuck(machine.ID, int) { sh.stuck.now.Add(1) }

// Returned implements [flow.Host].
func (sh *Shard) Returned(run machine.ID, call int) {
	sh.stuck.returned(stuckHandler{attemptKey{run, 0}, call})
}

// Now implements [flow.Turn], as the other methods do.
func (t *turn) Now() int64 { return t.now }

func (t *turn) State() *machine.Machine { return t.o.m }

func (t *turn) Random() uint64 { return t.o.random() }

func (t *turn) CheckFormat(format int) error { return t.o.sh.process.Peers.CheckFormat(format) }

func (t *turn) Define(def *machine.Definition) { _ = t.define(def) } // an error stops the shard

func (t *turn) ReadClock() {
	now, jumped := t.o.clock.now()
	t.now = now
	t.o.sh.health.broken(t.o.recordJump(jumped))
}

func (t *turn) TakeNow(run *machine.Run, def *machine.Definition) (ticket admission.Ticket, ok bool) {
	q := t.o.m.EmptyQueue(run, def)
	if t.o.stopping || t.IsFull() || q == nil {
		return ticket, false
	}
	return t.o.sh.dispatcher.admission.TakeNow(q, run)
}

func (t *turn) Begin(run *machine.Run, op flow.Operation, ticket admission.Ticket, rec machine.Record) {
	t.o.sh.dispatcher.begin(run, rec.Step, stepCode{op: op}, ticket, &rec)
}

func (t *turn) StartElsewhere(shard int, s *machine.Start, def *machine.Definition, refused error, done func(flow.Turn, error)) {
	t.Deliver(&Delivery{
		Kind: StartChild, Shard: shard, Run: s.ID, Refused: refused,
		Start: &Start{
			ID: s.ID.String(), Definition: def.Text(), Source: s.Source, Input: s.Input, Trace: s.Trace, Again: true,
			Parent: &ChildOf{Run: s.Parent.Run.String(), Number: s.Parent.Number}, Origin: s.Origin.String(), Undos: s.Undos, Def: def,
		},
		done: func(t Recorder, err error) { done(t, err) },
	})
}

func (t *turn) Adopt(former machine.ID, parent machine.Parent, done func(flow.Turn, flow.AdoptedChild, error)) {
	asked := &Delivery{Kind: AdoptChild, Shard: former.Slot() % t.o.sh.shards, Run: former, Parent: parent}
	asked.done = func(t Recorder, err error) {
		var got flow.AdoptedChild
		if asked.Adopted != nil && err == nil {
			got = *asked.Adopted
		}
		done(t, got, err)
	}
	t.Deliver(asked)
}

func (t *turn) Deliver(d *Delivery) { t.o.sh.deliveries.pending = append(t.o.sh.deliveries.pending, d) }

func (t *turn) EndChild(end *machine.ChildEnd) { t.o.sh.family.endChild(t, end) }

func (t *turn) ChildStarted(parent machine.Parent, child machine.Child) {
	t.o.sh.family.childStarted(t, parent, child)
}

func (t *turn) CheckParked() {
	t.o.sh.dispatcher.known = 0 // see unpark
	t.o.sh.Wake()
}

func (t *turn) NoteStuck(run machine.ID, call int) {
	t.o.sh.stuck.note(stuckHandler{attemptKey{run, 0}, call}, false)
}
