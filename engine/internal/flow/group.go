package flow

import (
	"slices"
	"strconv"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

func (s *operations) add(number int, item Operation) {
	if s.number == 0 {
		s.number, s.item = number, item
		return
	}
	if s.others == nil {
		s.others = map[int]Operation{}
	}
	s.others[number] = item
}

func (s *operations) get(number int) (item Operation, ok bool) {
	if s.number == number && number != 0 {
		return s.item, true
	}
	item, ok = s.others[number]
	return item, ok
}

func (s *operations) remove(number int) {
	if s.number == number {
		s.number, s.item = 0, Operation{}
		return
	}
	delete(s.others, number)
}

// numbers yields the numbers of the operations.
func (s *operations) numbers(yield func(int) bool) {
	if s.number != 0 && !yield(s.number) {
		return
	}
	for number := range s.others {
		if !yield(number) {
			return
		}
	}
}

// stops reports whether no operation begins any more that was not called before.
func (g *Group) stops() bool { return g.failed && !g.All || g.halted.Load() }

// identity returns the identity of an operation of the group.
func (g *Group) identity(i int) string {
	if !g.isMap {
		return g.Name
	}
	kind := "item"
	switch {
	case g.child != nil:
		kind = machine.ChildKind
	case g.isUndo:
		kind = machine.UndoKind
	}
	if g.items != nil {
		i = g.items[i]
	}
	return kind + ":" + machine.OpName(g.Name) + "#" + strconv.Itoa(i)
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
	if g.def == nil && (!g.isAwait || g.sleep > 0) {
		call.Due = workflow.StoredTime(time.Unix(0, now).Add(g.sleep))
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
