package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/engine/move"
)

// mortal is a log whose process dies at a given change.
type mortal struct {
	journal.Log
	left  *atomic.Int64 // changes until then
	after bool          // the last change is made before the failure
}

var errDied = errors.New("the process died")

func (m *mortal) Shards() int {
	if c, ok := m.Log.(interface{ Shards() int }); ok {
		return c.Shards()
	}
	return 1
}

func (m *mortal) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	l, err := m.Log.Lease(ctx, shard)
	if err != nil {
		return nil, err
	}
	return &mortalLease{l, m}, nil
}

type mortalLease struct {
	journal.Lease
	log *mortal
}

func (l *mortalLease) change(do func() error) error {
	n := l.log.left.Add(-1)
	if n > 0 {
		return do()
	}
	if n == 0 && l.log.after {
		_ = do()
	}
	return errDied
}

func (l *mortalLease) Append(ctx context.Context, expected uint64, id journal.ID, data []byte) (seq uint64, err error) {
	err = l.change(func() error { seq, err = l.Lease.Append(ctx, expected, id, data); return err })
	return seq, err
}

func (l *mortalLease) Truncate(ctx context.Context, below uint64) error {
	return l.change(func() error { return l.Lease.Truncate(ctx, below) })
}

func (l *mortalLease) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	return l.change(func() error { return l.Lease.Put(ctx, name, write) })
}

func (l *mortalLease) Delete(ctx context.Context, name string) error {
	return l.change(func() error { return l.Lease.Delete(ctx, name) })
}

// copied returns a copy of all shards.
func copied(t testing.TB, log journal.Log) rooms {
	t.Helper()
	var to rooms
	leased(t, log, func(_ int, l journal.Lease) {
		room := newRooms(1)
		leased(t, room, func(_ int, c journal.Lease) { copyShard(t, l, c) })
		to = append(to, room[0])
	})
	return to
}

func copyShard(t testing.TB, from, to journal.Lease) {
	t.Helper()
	ctx := context.Background()
	first, _, err := from.Bounds(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for seq := range first - 1 {
		must(to.Append(ctx, seq, journal.ID{1}, nil))
	}
	for e, err := range from.Read(ctx, first) {
		if err != nil {
			t.Fatal(err)
		}
		must(to.Append(ctx, e.Seq-1, e.ID, e.Data))
	}
	if err := to.Truncate(ctx, first); err != nil {
		t.Fatal(err)
	}
	for _, b := range must(from.Blobs(ctx)) {
		in := must(from.Get(ctx, b.Name))
		err := to.Put(ctx, b.Name, func(w io.Writer) error { _, err := io.Copy(w, in); return err })
		if err != nil || in.Close() != nil {
			t.Fatal(err)
		}
	}
}

// consistent checks what must be true whenever a process dies in a move: no data is lost, and engines
// can't open both logs.
func consistent(t *testing.T, what string, from, to journal.Log, seed maphash.Seed, want machine.Tally) {
	t.Helper()
	if got, _ := states(t, from, seed); got != want {
		t.Fatalf("%s: the source has %+v, had %+v", what, got, want)
	}
	source, target := refusals(t, from), refusals(t, to)
	if refusedWith[*move.MovedError](source) != refusedWith[error](source) {
		t.Fatalf("%s: the source says %v", what, source)
	}
	if refusedWith[*move.MovingError](target) != refusedWith[error](target) {
		t.Fatalf("%s: the target says %v", what, target)
	}
	if refusedWith[*move.MovedError](source) == len(source) {
		return
	}
	leased(t, to, func(shard int, l journal.Lease) {
		if target[shard] != nil {
			return
		}
		if got := must(must(store.Fold(context.Background(), l)).Machine.Tally(seed)); !got.Empty() {
			t.Fatalf("%s: shard %d of the target can be opened and has %+v, and the source says %v", what, shard, got, source)
		}
	})
}

// complete checks that a move is complete.
func complete(t *testing.T, what string, from, to journal.Log, seed maphash.Seed, want machine.Tally, archived int) {
	t.Helper()
	source, target := refusals(t, from), refusals(t, to)
	if refusedWith[*move.MovedError](source) != len(source) || refusedWith[error](target) != 0 {
		t.Fatalf("%s: the source says %v, the target %v", what, source, target)
	}
	if got, n := states(t, to, seed); got != want || n != archived {
		t.Fatalf("%s: the target has %+v and %d archived, want %+v and %d", what, got, n, want, archived)
	}
}

// TestAMoveThatIsInterrupted lets the process die before every change that a move makes,
// and after the last one.
func TestAMoveThatIsInterrupted(t *testing.T) {
	noLeaks(t)
	h, seed := furnish(t, 20), maphash.MakeSeed()
	two := newRooms(2)
	must(move.Move(t.Context(), copied(t, folder(t, h.dir)), two, move.Options{}))
	for _, test := range []struct {
		name string
		from journal.Log
		to   int
	}{{"from a folder to three shards", folder(t, h.dir), 3}, {"from two shards to one", two, 1}} {
		t.Run(test.name, func(t *testing.T) {
			want, archived := states(t, test.from, seed)
			// interrupt lets the process die at a change, and repeats the move.
			interrupt := func(n int, made bool) (over bool) {
				what := fmt.Sprintf("dies at change %d, which is made %v", n, made)
				from, to, left := copied(t, test.from), newRooms(test.to), new(atomic.Int64)
				left.Store(int64(n))
				_, err := move.Move(t.Context(), &mortal{from, left, made}, &mortal{to, left, made}, move.Options{})
				if over = err == nil; !over && !errors.Is(err, errDied) {
					t.Fatalf("%s: move.Move() = %v", what, err)
				}
				consistent(t, what, from, to, seed, want)
				if !over {
					_, err = move.Move(t.Context(), from, to, move.Options{})
				}
				if _, gone := errors.AsType[*move.MovedError](err); err != nil && !gone { // gone if the last change was made
					t.Fatalf("%s: again: %v", what, err)
				}
				complete(t, what, from, to, seed, want, archived)
				return over
			}
			steps := 0
			for !interrupt(steps+1, false) {
				steps++
			}
			interrupt(steps, true) // after an earlier change is before the next one
			if steps < 12 {
				t.Errorf("a move makes %d changes", steps)
			}
		})
	}
}

// TestAMoveThatIsInterruptedAgainAndAgain also lets the source go on between the
// attempts, where it can.
func TestAMoveThatIsInterruptedAgainAndAgain(t *testing.T) {
	t.Parallel()
	h, seed := furnish(t, 20), maphash.MakeSeed()
	two := newRooms(2)
	must(move.Move(t.Context(), folder(t, h.dir), two, move.Options{}))
	for n := range uint64(2 * *chaosSeeds) {
		rng := rand.New(rand.NewPCG(n, 1))
		from, to, left := copied(t, two), newRooms(3), new(atomic.Int64)
		for tries := 0; ; tries++ {
			what := fmt.Sprintf("seed %d, attempt %d", n, tries)
			want, archived := states(t, from, seed)
			left.Store(1 + rng.Int64N(40))
			after := rng.IntN(2) == 0
			_, err := move.Move(t.Context(), &mortal{from, left, after}, &mortal{to, left, after}, move.Options{})
			consistent(t, what, from, to, seed, want)
			if _, gone := errors.AsType[*move.MovedError](err); err == nil || gone {
				complete(t, what, from, to, seed, want, archived)
				break
			}
			if !errors.Is(err, errDied) {
				t.Fatalf("%s: move.Move() = %v", what, err)
			}
			for i, err := range refusals(t, from) {
				if err == nil && rng.IntN(2) == 0 {
					h.visit(t, from[i])
				}
			}
		}
	}
}

// visit opens an engine on a log and closes it again.
func (h *household) visit(t *testing.T, store *memlog.Store) {
	t.Helper()
	e := must(Open(t.Context(), Config{Log: store.Open(), Logger: quiet()}))
	h.start(t, e, "foreign", "", In(time.Hour))
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// foreign is a log in which another process records something when a test wants it.
type foreign struct {
	rooms
	intrude atomic.Bool
	say     *machine.Record // nil for nothing
}

func (f *foreign) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	l, err := f.rooms.Lease(ctx, shard)
	return &foreignLease{l, f}, err
}

type foreignLease struct {
	journal.Lease
	log *foreign
}

func (l *foreignLease) Append(ctx context.Context, expected uint64, id journal.ID, data []byte) (uint64, error) {
	if l.log.intrude.CompareAndSwap(true, false) {
		var e machine.Entry
		e.Reset(1, 0)
		if l.log.say != nil {
			e.Add(l.log.say)
		}
		if _, err := l.Lease.Append(ctx, expected, journal.ID{7}, e.Bytes()); err != nil {
			return 0, err
		}
	}
	return l.Lease.Append(ctx, expected, id, data)
}

// A process that was suspended for too long does not know that other processes own its shards. The
// move must fail.
func TestAnotherOwnerInTheMiddleOfAMove(t *testing.T) {
	h, seed := furnish(t, 20), maphash.MakeSeed()
	for _, test := range []struct {
		name, stage string
		source      bool
	}{
		{"of the source, in the end", "verify", true},
		{"of the target, in the beginning", "read", false},
		{"of the target, in the end", "verify", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			from, to := &foreign{rooms: copied(t, folder(t, h.dir))}, &foreign{rooms: newRooms(2)}
			from.say = new(machine.SetSchedule(machine.Schedule{Name: "of another process", Due: 2, Data: []byte("{}")}, 1))
			_, err := move.Move(t.Context(), from, to, move.Options{Progress: func(p move.Progress) {
				if p.Stage == test.stage && p.Done == p.Total {
					from.intrude.Store(test.source)
					to.intrude.Store(!test.source)
				}
			}})
			if !errors.Is(err, journal.ErrStale) {
				t.Errorf("move.Move() = %v", err)
			}
			want, archived := states(t, from, seed)
			if got := want.Schedules - 1; got != 0 != test.source {
				t.Errorf("%d schedules were added", got)
			}
			consistent(t, "after it", from, to, seed, want)
			must(move.Move(t.Context(), from, to, move.Options{}))
			complete(t, "again", from, to, seed, want, archived)
		})
	}
}
