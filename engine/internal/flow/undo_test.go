package flow

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tideover/tideover/engine/internal/machine"
)

// Undos of branches are ordered by the numbers of their operations. The number of each is looked up
// once, and not in each comparison.
func TestSortUndoers(t *testing.T) {
	const groups, items = 256, 4
	c := new(call)
	c.branches.Store(new(scheduler))
	f := &Flow{call: c, state: new(state)}
	for i := range groups {
		g := &Group{Name: fmt.Sprintf("map:m%d", i), kind: machine.OpKindOf(machine.ItemKind), n: items, isMap: true}
		for k := range items {
			number := (i*37%groups)*items + k + 1 // not in the order of the undoers
			f.ended.set(g.identity(k), &machine.OpResult{Number: number})
		}
		f.undoers = append(f.undoers, undoer{group: g})
	}
	given := slices.Clone(f.undoers)
	allocs := testing.AllocsPerRun(1, func() {
		copy(f.undoers, given)
		f.sortUndoers()
	})
	for i := range f.undoers {
		if got, want := f.undoers[i].firstNumber(f), i*items+1; got != want {
			t.Fatalf("undoer %d has the first number %d, want %d", i, got, want)
		}
	}
	if most := float64(4 * groups * items); allocs > most {
		t.Errorf("%v allocations, want at most %v", allocs, most)
	}
}
