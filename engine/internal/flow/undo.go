package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine/internal/machine"
)

// CanUndo notes how the operations of a group are undone. It must be called before they begin.
func (f *Flow) CanUndo(g *Group, o Called, isNil bool, execute func(ctx context.Context, i int, stored []byte) error) error {
	if isNil {
		return f.Misuse(o.Identity, errors.New("undo: no function"))
	}
	g.undoable = true
	f.undoers = append(f.undoers, undoer{group: g, def: o.undo, execute: execute})
	return nil
}

// called returns the items of the group whose operations the run has called.
func (u *undoer) called(f *Flow) (items []int) {
	for i := range u.group.n {
		if f.ended.has(u.group.identity(i)) {
			items = append(items, i)
		}
	}
	return items
}

// undo returns the group of operations that undo those of the group.
func (u *undoer) undo(f *Flow) *Group {
	items := u.called(f)
	return &Group{
		Name: machine.UndoKind + ":" + machine.OpName(u.group.Name), def: u.def, n: len(items), parallel: u.group.parallel, isMap: u.group.isMap, items: items, isUndo: true,
		do: func(ctx context.Context, k int) ([]byte, error) {
			i := items[k]
			var stored []byte
			if res := f.ended.get(u.group.identity(i)); res.Reason == 0 {
				stored = res.Data
			}
			if err := u.execute(ctx, i, stored); err != nil {
				return nil, err
			}
			return []byte("null"), nil
		},
	}
}

// undoAll undoes the operations that the run has called, the last one first. It stops at an undo
// that gives up.
func (f *Flow) undoAll() callEnd {
	registered := 0
	for i := range f.undoers {
		registered += len(f.undoers[i].called(f))
	}
	if most := f.call.undoable.Load(); int32(registered) < most {
		return callEnd{mismatch: fmt.Sprintf("the run has called %d operations that can be undone, and the function knows how to undo only %d of them: deploy code that calls all by DoUndo or MapUndo", most, registered)}
	}
	f.sortUndoers()
	for _, u := range slices.Backward(f.undoers) {
		g := u.undo(f)
		if g.n == 0 {
			continue
		}
		if err := f.Perform(g); err != nil {
			return callEnd{undone: &undone{text: err.Error()}}
		}
		var redo []int
		text := ""
		for i := range g.Results {
			if res := &g.Results[i]; res.Reason != 0 {
				redo = append(redo, res.Number)
				text = fmt.Sprintf("the undo of %s failed: %s", machine.OpName(res.Name), res.Text)
			}
		}
		if text != "" {
			return callEnd{undone: &undone{text, machine.EncodeRedo(redo)}}
		}
	}
	return callEnd{undone: new(undone)}
}

// sortUndoers orders the undoers as the run has called their operations first, if the function has
// branches: in which order these call them is not the same when the function is called again.
func (f *Flow) sortUndoers() {
	if f.call.branches.Load() == nil {
		return
	}
	for i := range f.undoers {
		f.undoers[i].first = f.undoers[i].firstNumber(f)
	}
	slices.SortStableFunc(f.undoers, func(a, b undoer) int { return cmp.Compare(a.first, b.first) })
}

// undoable returns the names of the operations that the run has called and the function can undo.
func (f *Flow) undoable() string {
	var names []string
	for i := range f.undoers {
		if u := &f.undoers[i]; len(u.called(f)) > 0 {
			names = append(names, machine.OpName(u.group.Name))
		}
	}
	return strings.Join(names, ", ")
}

// firstNumber returns the smallest number of the operations of the group; 0 if the run has called none.
func (u *undoer) firstNumber(f *Flow) int {
	first := 0
	for i := range u.group.n {
		if res := f.ended.get(u.group.identity(i)); res != nil && (first == 0 || res.Number < first) {
			first = res.Number
		}
	}
	return first
}
