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
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
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
	want := must(Move(t.Context(), copied(t, plain), newRooms(2), MoveOptions{DryRun: true}))
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
		got := must(Move(t.Context(), from, to, MoveOptions{}))
		if _, archived := states(t, to, maphash.MakeSeed()); got.Archived != want.Archived || archived != want.Archived || !maps.Equal(got.Runs, want.Runs) {
			t.Errorf("Move() = %+v, %d in archives, want %+v", got, archived, want)
		}
	})
	t.Run("a run that is in memory too is moved once", func(t *testing.T) {
		from := change(func(l journal.Lease, name string, _ []byte) {
			f := must(fold(t.Context(), l))
			var runs []byte
			for _, r := range f.m.All() {
				if r.Finished() {
					runs = r.Encode(runs)
				}
			}
			if runs == nil {
				t.Fatal("none is")
			}
			put(l, name+"0", newEncoder(nil).EncodeAll(machine.AppendArchive(nil, runs), nil))
		})
		if got := must(Move(t.Context(), from, newRooms(2), MoveOptions{})); got.Archived != want.Archived || !maps.Equal(got.Runs, want.Runs) {
			t.Errorf("Move() = %+v, want %+v", got, want)
		}
	})
	t.Run("one that can't be read is an error", func(t *testing.T) {
		var broken string
		from := change(func(l journal.Lease, name string, data []byte) {
			broken = name
			put(l, name, data[:len(data)/2])
		})
		to := newRooms(2)
		if _, err := Move(t.Context(), from, to, MoveOptions{}); err == nil || !strings.Contains(err.Error(), "shard 0 of the source: archive "+broken) {
			t.Errorf("Move() = %v", err)
		}
		got := must(Move(t.Context(), from, to, MoveOptions{LeaveUnreadable: true}))
		if !slices.Equal(got.Unreadable, []string{broken}) || got.Archived >= want.Archived || got.Runs["waiting"] != want.Runs["waiting"] {
			t.Errorf("Move() = %+v, want %+v without %s", got, want, broken)
		}
	})
}

// Runs that ended within a day of each other are together, and no archive replaces
// another.
func TestPacker(t *testing.T) {
	t.Parallel()
	var r *machine.Run
	leased(t, folder(t, furnish(t, 20).dir), func(_ int, l journal.Lease) {
		f := must(fold(t.Context(), l))
		i := slices.IndexFunc(f.m.All(), func(r *machine.Run) bool { return !r.IsCold() })
		r = must(f.m.Copy(f.m.All()[i]))
		f.cold.close()
	})
	names := func(room int, ended ...time.Duration) (list []string) {
		leased(t, newRooms(1), func(_ int, l journal.Lease) {
			p := &packer{lease: l, seq: 2, zip: newEncoder(nil), room: room, seed: maphash.MakeSeed()}
			for _, at := range ended {
				r.Ended = int64(at)
				if err := p.add(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.flush(t.Context()); err != nil || p.count != len(ended) {
				t.Fatalf("flush() = %v after %d runs", err, p.count)
			}
			var size int64
			for _, b := range must(l.Blobs(t.Context())) {
				list = append(list, strings.TrimPrefix(b.Name, "archive-00000000000000000002-"))
				size += b.Size
			}
			if size != p.stored {
				t.Errorf("%d bytes are stored, counted %d", size, p.stored)
			}
		})
		return list
	}
	const h = time.Hour
	many := slices.Repeat([]time.Duration{7 * time.Second}, 40)
	input := r.Input
	r.Input = bytes.Repeat([]byte{'1'}, archiveFrame/10)
	got := names(1, many...)
	r.Input = input
	if len(got) < 3 || got[0] != "10" && got[0] != "7" {
		t.Errorf("archives that are full have the names %v", got)
	}
	for _, test := range []struct {
		name  string
		ended []time.Duration
		want  string
	}{
		{"none", nil, ""},
		{"a day", []time.Duration{h, 25 * h, 2 * h}, "90000"},
		{"two days", []time.Duration{h, 2 * h, 26 * h, 27 * h}, "7200 97200"},
		{"not in order", []time.Duration{48 * h, h, 49 * h}, "172800 172801 176400"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := strings.Join(names(1<<20, test.ended...), " "); got != test.want {
				t.Errorf("archives have the names %s, want %s", got, test.want)
			}
		})
	}
}

// careless is a log that does something else than it was told with a blob.
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
	must(Move(t.Context(), other, later, MoveOptions{}))
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
			if _, err := Move(t.Context(), source, to, MoveOptions{}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Move() = %v, want %q", err, test.want)
			}
			if errs := refusals(t, source); errs[0] != nil {
				t.Errorf("the source says %v", errs)
			}
			if errs := refusals(t, to); refusedWith[*MovingError](errs) != 2 {
				t.Errorf("the target says %v", errs)
			}
		})
	}
}
