package machine

import (
	"math/rand/v2"
	"testing"
)

// TestIDTable compares the index of runs with a map, while runs are added and removed.
func TestIDTable(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for name, newID := range map[string]func() ID{
		"random ids": func() ID { return NewID(rng.Int64N(1e15), rng.Uint64(), rng.Uint64()) },
		"ids in one slot, of one moment": func() ID {
			return NewID(1e18, 0, rng.Uint64()).In(7)
		},
		"few different ids": func() ID { return ID{0: byte(rng.Uint32()), 15: byte(rng.Uint32())} },
	} {
		var x runIndex
		want := map[ID]*Run{}
		var ids []ID
		for range 100_000 {
			if len(ids) == 0 || rng.IntN(5) < 3 {
				id := newID()
				if want[id] == nil && !id.IsZero() {
					r := &Run{ID: id}
					want[id], ids = r, append(ids, id)
					x.insert(r)
				}
				continue
			}
			i := rng.IntN(len(ids))
			id := ids[i]
			ids[i] = ids[len(ids)-1]
			ids = ids[:len(ids)-1]
			x.drop(want[id])
			delete(want, id)
			if r, ok := x.Run(id); ok {
				t.Fatalf("%s: Run(%v) = %v after it was removed", name, id, r.ID)
			}
		}
		if x.Len() != len(want) {
			t.Errorf("%s: Len() = %d; want %d", name, x.Len(), len(want))
		}
		used := 0
		for i := range x.table.parts {
			used += x.table.parts[i].used
		}
		if used != len(want) {
			t.Errorf("%s: the table has %d entries; want %d", name, used, len(want))
		}
		for id, r := range want {
			if got, ok := x.Run(id); !ok || got != r {
				t.Fatalf("%s: Run(%v) = %v, %v; want the run", name, id, got, ok)
			}
		}
		if _, ok := x.Run(newID().In(9999)); ok {
			t.Errorf("%s: Run finds a run that was never added", name)
		}
	}
}
