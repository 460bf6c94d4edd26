package engine

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/internal/testwait"
)

func TestArchivesOfASource(t *testing.T) {
	t.Parallel()
	h := furnish(t, 60)
	plain := copied(t, folder(t, h.dir))
	// One has ended since the last archive was written.
	e := must(Open(t.Context(), Config{Log: plain[0].Open(), Logger: quiet(), Workflows: []*Workflow{h.flows["quick"]}}))
	last := h.start(t, e, "quick", "").ID
	testwait.Until(t, "one has ended", func() bool { return must(e.Get(t.Context(), last)).State == StateSucceeded })
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := must(move.Move(t.Context(), copied(t, plain), newRooms(2), move.Options{DryRun: true}))
	change := func(f func(l journal.Lease, name string, data []byte)) rooms {
		c := copied(t, plain)
		leased(t, c, func(_ int, l journal.Lease) {
			for _, b := range must(l.Blobs(t.Context())) {
				if strings.HasPrefix(b.Name, "archive-") {
					f(l, b.Name, must(io.ReadAll(must(l.Get(t.Context(), b.Name)))))
					return
				}
			}
		})
		return c
	}
	put := func(l journal.Lease, name string, data []byte) {
		if err := l.Put(t.Context(), name, func(w io.Writer) error { _, err := w.Write(data); return err }); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("runs that are there twice are moved once", func(t *testing.T) {
		from := change(func(l journal.Lease, name string, data []byte) {
			var seq, newest uint64
			must(fmt.Sscanf(name, "archive-%d-%d", &seq, &newest))
			put(l, fmt.Sprintf("archive-%020d-%d", seq+1, newest), data)
		})
		to := newRooms(2)
		got := must(move.Move(t.Context(), from, to, move.Options{}))
		if _, archived := states(t, to, maphash.MakeSeed()); got.Archived != want.Archived || archived != want.Archived || !maps.Equal(got.Runs, want.Runs) {
			t.Errorf("move.Move() = %+v, %d in archives, want %+v", got, archived, want)
		}
	})
	t.Run("a run that is in memory too is moved once", func(t *testing.T) {
		from := change(func(l journal.Lease, name string, _ []byte) {
			f := must(store.Fold(t.Context(), l))
			var runs []byte
			for _, r := range f.Machine.All() {
				if r.Finished() {
					runs = machine.EncodeRun(r, runs)
				}
			}
			if runs == nil {
				t.Fatal("none is")
			}
			put(l, name+"0", store.NewEncoder(nil).EncodeAll(machine.AppendArchive(nil, runs), nil))
		})
		if got := must(move.Move(t.Context(), from, newRooms(2), move.Options{})); got.Archived != want.Archived || !maps.Equal(got.Runs, want.Runs) {
			t.Errorf("move.Move() = %+v, want %+v", got, want)
		}
	})
	t.Run("one that can't be read is an error", func(t *testing.T) {
		var broken string
		from := change(func(l journal.Lease, name string, data []byte) {
			broken = name
			put(l, name, data[:len(data)/2])
		})
		to := newRooms(2)
		if _, err := move.Move(t.Context(), from, to, move.Options{}); err == nil || !strings.Contains(err.Error(), "shard 0 of the source: archive "+broken) {
			t.Errorf("move.Move() = %v", err)
		}
		got := must(move.Move(t.Context(), from, to, move.Options{LeaveUnreadable: true}))
		if !slices.Equal(got.Unreadable, []string{broken}) || got.Archived >= want.Archived || got.Runs["waiting"] != want.Runs["waiting"] {
			t.Errorf("move.Move() = %+v, want %+v without %s", got, want, broken)
		}
	})
}

// careless is a log that stores changed blobs.
type careless struct {
	rooms
	spoil func(shard int, name string, data []byte) []byte
}

func (c *careless) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	l, err := c.rooms.Lease(ctx, shard)
	return &carelessLease{l, c, shard}, err
}

type carelessLease struct {
	journal.Lease
	log   *careless
	shard int
}

func (l *carelessLease) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	return l.Lease.Put(ctx, name, func(w io.Writer) error {
		_, err := w.Write(l.log.spoil(l.shard, name, b.Bytes()))
		return err
	})
}

func TestWhatIsNotReadBackIsNotMoved(t *testing.T) {
	t.Parallel()
	h := furnish(t, 40)
	source := copied(t, folder(t, h.dir))
	var first []byte
	other := newRooms(1)
	h.visit(t, other[0])
	later := newRooms(1)
	must(Open(t.Context(), Config{Log: later[0].Open(), Logger: quiet()})).Close(t.Context())
	must(move.Move(t.Context(), other, later, move.Options{}))
	for _, test := range []struct {
		name  string
		spoil func(shard int, name string, data []byte) []byte
		want  string
	}{
		{"a byte of a state has changed", func(_ int, name string, data []byte) []byte {
			if strings.HasPrefix(name, "snapshot-") {
				data[len(data)/2] ^= 1
			}
			return data
		}, "read back"},
		{"a state is in the wrong shard", func(shard int, name string, data []byte) []byte {
			if strings.HasPrefix(name, "snapshot-") && first == nil {
				first = data
			}
			if strings.HasPrefix(name, "snapshot-") {
				return first
			}
			return data
		}, "and belongs in"},
		{"an archive is empty", func(_ int, name string, data []byte) []byte {
			if strings.HasPrefix(name, "archive-") {
				return nil
			}
			return data
		}, "is not what was written"},
		{"a state is that of another entry", func(_ int, name string, data []byte) []byte {
			if !strings.HasPrefix(name, "snapshot-") {
				return data
			}
			leased(t, later, func(_ int, l journal.Lease) {
				for _, b := range must(l.Blobs(t.Context())) {
					data = must(io.ReadAll(must(l.Get(t.Context(), b.Name))))
				}
			})
			return data
		}, "it is the state of entry"},
	} {
		t.Run(test.name, func(t *testing.T) {
			to := &careless{newRooms(2), test.spoil}
			if _, err := move.Move(t.Context(), source, to, move.Options{}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("move.Move() = %v, want %q", err, test.want)
			}
			if errs := refusals(t, source); errs[0] != nil {
				t.Errorf("the source says %v", errs)
			}
			if errs := refusals(t, to); refusedWith[*move.MovingError](errs) != 2 {
				t.Errorf("the target says %v", errs)
			}
		})
	}
}
