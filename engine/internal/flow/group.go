package flow

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/goroutine"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/retry"
)

// stops reports whether no operation begins any more that was not called before.
func (g *Group) stops() bool { return g.failed && !g.All || g.halted.Load() }

func (g *Group) isUndo() bool { return g.kind.Name == machine.UndoKind }

// identity returns the identity of an operation of the group.
func (g *Group) identity(i int) string {
	if !g.isMap {
		return g.Name
	}
	if g.items != nil {
		i = g.items[i]
	}
	return g.kind.Name + ":" + machine.OpName(g.Name) + "#" + strconv.Itoa(i)
}

// end wakes the function. Only the first call has an effect.
func (g *Group) end() { g.once.Do(func() { close(g.attempts) }) }

// endWith is end for a group of one operation, with its result.
func (g *Group) endWith(res machine.OpResult) {
	g.once.Do(func() {
		g.Results[0] = res
		close(g.attempts)
	})
}

// setResult sets the result of an operation that has ended.
func (g *Group) setResult(i int, res machine.OpResult) {
	g.failed = g.failed || res.Reason != 0
	if g.isMap {
		g.Results[i] = res
	} else {
		g.endWith(res) // unless the attempt has delivered it
	}
}

// opCall returns the call of an operation of the group.
func (g *Group) opCall(i int, now int64) *machine.OpCall {
	call := &machine.OpCall{Name: g.identity(i), Def: g.def, About: g.question, Undo: g.undoable}
	if g.kind.Waits == machine.ForTime || g.limit > 0 {
		call.Due = workflow.StoredTime(time.Unix(0, now).Add(g.limit))
	}
	return call
}

// storedResult returns the result of an operation that has ended. The operation may have another
// name since.
func storedResult(run *machine.Run, number int, identity string) (res machine.OpResult) {
	for res = range machine.ReadResults(run.Flow().Results()) {
		if res.Number == number {
			break
		}
	}
	res.Name = identity
	return res
}

// outcomeOf returns the result of the operation that the record ends.
func outcomeOf(identity string, rec *machine.Record) machine.OpResult {
	output, code, text := rec.OpOutcome()
	return machine.OpResult{Number: rec.Step, Name: identity, Ended: rec.At, Reason: rec.Reason, Code: code, Text: text, Data: slices.Clone(output)}
}

// IsZero reports whether there is no operation.
func (op Operation) IsZero() bool { return op.Group == nil }

// IsInline reports whether the goroutine of the function makes the attempts.
func (op Operation) IsInline() bool { return op.Group != nil && op.inline }

// Name returns the name of the operation or of its map, without its kind and key.
func (op Operation) Name() string { return machine.BaseName(machine.OpName(op.Group.Name)) }

// Task returns what an attempt of the operation knows about its run.
func (op Operation) Task(run *machine.Run, number int) info.Task {
	t := op.message.call.task
	t.Input = nil // the function passes to its operations what they need
	if t.Step = run.StepName(number); run.Flow().IsUndo(number) {
		t.Step = run.Flow().Identity(number)
	}
	t.Operation = number
	if op.undoable || op.isUndo() {
		t.Undos = machine.Undos(run)
	}
	return t
}

// TaskOf returns the fields of a Task that describe the run.
func TaskOf(run *machine.Run) info.Task {
	t := info.Task{
		Run: run.ID.String(), Workflow: run.Def.Name, Key: run.Key, Created: time.Unix(0, run.Created), Source: run.Source(),
		Args: run.Def.Steps[0].Args, Input: run.Input,
	}
	t.Origin = t.Run
	origin, key, _ := machine.Origin(run)
	if t.OriginKey = key; origin != run.ID {
		t.Origin = origin.String()
	}
	return t
}

// Do executes the operation. Its output is JSON.
func (op Operation) Do(ctx context.Context) ([]byte, error) {
	if w := op.message.call.settings.Watch; w != nil {
		defer w.Begin(goroutine.Operation)()
	}
	return op.do(ctx, op.index)
}

// Pass has the goroutine of the function make an attempt. It returns false if that goroutine makes none.
func (op Operation) Pass(a Attempt) bool {
	if c := op.message.call; !op.inline || c.stopping || c.exiting.Load() {
		return false // deferred calls of the function may take long
	}
	op.attempts <- a // the function waits for it
	return true
}

// EndGoroutine says that an attempt has ended its goroutine. If that is the one of the function, it makes no
// other attempt.
func (op Operation) EndGoroutine() {
	if op.inline {
		op.message.call.exiting.Store(true)
	}
}

// Deliver gives the result of a single operation to its function at once: the owner stores the
// result before anything that the function does next.
func (op Operation) Deliver(number int, output []byte) {
	if !op.isMap {
		op.endWith(machine.OpResult{Number: number, Name: op.Group.Name, Data: output})
	}
}

// Reserve counts a result that is about to be reported. It returns an error, and does not count it,
// if the results of the run would be too large. An undo must be possible.
func (op Operation) Reserve(result []byte) error {
	size := &op.message.call.size
	if op.isUndo() || size.Add(int64(len(result))) <= machine.MaxResults {
		return nil
	}
	size.Add(-int64(len(result)))
	return retry.Permanent(workflow.Coded("too-large", fmt.Errorf("the results of the run would have more than %d MiB; store them elsewhere and return references", machine.MaxResults>>20)))
}

// Release takes back what Reserve has counted: nothing stores the result.
func (op Operation) Release(result []byte) { op.message.call.size.Add(-int64(len(result))) }
