package engine

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/engine/sqlitelog"
	"github.com/tideover/tideover/internal/testwait"
)

// rooms is a log with several shards in memory.
type rooms []*memlog.Store

func newRooms(n int) rooms {
	r := make(rooms, n)
	for i := range r {
		r[i] = new(memlog.Store)
	}
	return r
}

func (r rooms) Shards() int  { return len(r) }
func (r rooms) Close() error { return nil }
func (r rooms) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	return r[shard].Open().Lease(ctx, 0)
}

func folder(t testing.TB, dir string) journal.Log {
	t.Helper()
	log, err := sqlitelog.Open(t.Context(), sqlitelog.Config{Dir: dir, Durability: sqlitelog.OS})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	return log
}

// leased calls f with the lease of every shard.
func leased(t testing.TB, log journal.Log, f func(shard int, l journal.Lease)) {
	t.Helper()
	shards := 1
	if c, ok := log.(interface{ Shards() int }); ok {
		shards = c.Shards()
	}
	for n := range shards {
		l, err := log.Lease(context.Background(), n)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := l.Release(); err != nil {
				t.Fatal(err)
			}
		}()
		f(n, l)
	}
}

// limitedOf returns the names of the workflows that have a limit.
func limitedOf(workflows ...*Workflow) (names []string) {
	for _, w := range workflows {
		if w.Limited() {
			names = append(names, w.Name())
		}
	}
	return names
}

// states returns what the shards of a log have together, and how many finished
// runs are in archives and nowhere else.
func states(t testing.TB, log journal.Log, seed maphash.Seed) (sum machine.Tally, archived int) {
	t.Helper()
	leased(t, log, func(shard int, l journal.Lease) {
		f := must(store.Fold(context.Background(), l))
		defer f.Close()
		sum.Add(must(f.Machine.Tally(seed)))
		for _, name := range f.Archives {
			err := store.ReadArchive(context.Background(), l, name, f.Machine, func(r *machine.Run) error {
				if _, there := f.Machine.Run(r.ID); !there {
					archived++
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	return sum, archived
}

// refusals returns why the shards of a log can't be opened, nil for those that can.
func refusals(t testing.TB, log journal.Log) (errs []error) {
	t.Helper()
	leased(t, log, func(_ int, l journal.Lease) { errs = append(errs, move.Check(context.Background(), l)) })
	return errs
}

func refusedWith[E error](errs []error) (n int) {
	for _, err := range errs {
		if _, ok := errors.AsType[E](err); ok {
			n++
		}
	}
	return n
}

func noLeaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		testwait.Until(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	})
}

func TestMoveToAnotherFolder(t *testing.T) {
	noLeaks(t)
	h := furnish(t, 200)
	from, dir := folder(t, h.dir), t.TempDir()
	to := folder(t, dir)
	var stages []string
	opts := move.Options{From: h.dir, To: dir, Progress: func(p move.Progress) {
		if !slices.Contains(stages, p.Stage) {
			stages = append(stages, p.Stage)
		}
		if p.Done < 1 || p.Done > p.Total {
			t.Errorf("progress %+v", p)
		}
	}}
	moved := must(move.Move(t.Context(), from, to, opts))
	h.counted(t, moved)
	if moved.Bytes < 1000 || moved.FromShards != 1 || moved.ToShards != 1 {
		t.Errorf("move.Move() = %+v", moved)
	}
	if got := strings.Join(stages, " "); got != "read archives write verify" {
		t.Errorf("stages: %s", got)
	}
	var gone *move.MovedError
	if errs := refusals(t, from); !errors.As(errs[0], &gone) || gone.To != dir || !strings.Contains(gone.Error(), dir) || gone.At.IsZero() {
		t.Errorf("the source says %v", errs)
	}
	if errs := refusals(t, to); errs[0] != nil {
		t.Errorf("the target says %v", errs)
	}
	if _, err := move.Move(t.Context(), from, folder(t, t.TempDir()), move.Options{}); !errors.As(err, &gone) {
		t.Errorf("a second move = %v", err)
	}
	to.Close()
	h.unpacked(t, dir)
}

func TestMoveToSeveralShardsAndBack(t *testing.T) {
	noLeaks(t)
	for _, n := range []int{1, 8} {
		t.Run(fmt.Sprint(n, " shards"), func(t *testing.T) {
			h := furnish(t, 60)
			seed := maphash.MakeSeed()
			want, _ := states(t, folder(t, h.dir), seed)
			there, other, dir := newRooms(n), newRooms(5), t.TempDir()
			first := must(move.Move(t.Context(), folder(t, h.dir), there, move.Options{}))
			h.counted(t, first)
			if got, archived := states(t, there, seed); got != want || archived != first.Archived {
				t.Errorf("the shards have %+v and %d archived, want %+v and %d", got, archived, want, first.Archived)
			}
			h.counted(t, must(move.Move(t.Context(), there, other, move.Options{}))) // another number of shards
			back := folder(t, dir)
			moved := must(move.Move(t.Context(), other, back, move.Options{}))
			h.counted(t, moved)
			if moved.FromShards != 5 || moved.ToShards != 1 {
				t.Errorf("move.Move() = %+v", moved)
			}
			back.Close()
			h.unpacked(t, dir)
		})
	}
}

// Runs that were moved to a cluster continue as if they had been started there.
func TestMoveToAClusterAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, began := newDeliveries(), time.Now()
		home, cluster, back := new(memlog.Store), &memlog.Store{Shards: 8}, new(memlog.Store)
		e := r.open(t, home.Open())
		ids := r.begin(t, e)
		nameless := started(t, e, r.narrow, 1, In(90*time.Minute)).ID
		time.Sleep(45 * time.Minute) // the schedule was due once
		ended(t, e)
		mover := cluster.Join("mover")
		moved := must(move.Move(t.Context(), home.Open(), mover, move.Options{Limited: limitedOf(r.wait, r.narrow)}))
		if moved.ToShards != 8 || moved.Keys != 51 || moved.Schedules != 1 || moved.Runs["waiting"] != 40 || moved.Runs["scheduled"] != 11 {
			t.Errorf("move.Move() = %+v", moved)
		}
		mover.Close()

		a, b := r.open(t, cluster.Join("a")), r.open(t, cluster.Join("b"))
		time.Sleep(time.Minute)
		r.known(t, ids, a)
		r.known(t, ids, b)
		if i := must(b.Get(t.Context(), nameless)); i.State != "scheduled" {
			t.Errorf("a run that is elsewhere than its id says is %s", i.State)
		}
		time.Sleep(2 * time.Hour)
		for i := range 40 {
			if got, want := r.went(i), began.Add(time.Hour); !got.Equal(want) {
				t.Errorf("run %d goes on at %v, want %v", i, got, want)
			}
		}
		if most, reports := r.counts(); most != 2 || reports != 3 {
			t.Errorf("%d runs of at most 2 at once; the schedule was due %d times, want 3", most, reports)
		}
		inUse := regexp.MustCompile("the source is in use by [ab]: stop all servers") // by the owner of the first shard that is tried
		mover = cluster.Join("mover")
		_, err := move.Move(t.Context(), mover, back.Open(), move.Options{})
		if !errors.Is(err, journal.ErrLocked) || !inUse.MatchString(err.Error()) {
			t.Errorf("move.Move() of what is in use = %v", err)
		}
		mover.Close()
		time.Sleep(time.Minute)
		ended(t, a, b)

		mover = cluster.Join("mover")
		moved = must(move.Move(t.Context(), mover, back.Open(), move.Options{}))
		if moved.FromShards != 8 || moved.Runs["succeeded"] != 54 {
			t.Errorf("move.Move() = %+v", moved)
		}
		mover.Close()
		e = r.open(t, back.Open())
		r.known(t, ids, e)
		time.Sleep(time.Hour)
		if _, reports := r.counts(); reports != 4 {
			t.Errorf("the schedule was due %d times, want 4", reports)
		}
		ended(t, e)
	})
}

func TestADryRunWritesNothing(t *testing.T) {
	h := furnish(t, 20)
	from, to := folder(t, h.dir), newRooms(3)
	look := func(log journal.Log) (all string) {
		leased(t, log, func(_ int, l journal.Lease) {
			first, last, err := l.Bounds(t.Context())
			all += fmt.Sprintln(first, last, err, must(l.Blobs(t.Context())))
		})
		return all
	}
	source, target := look(from), look(to)
	moved := must(move.Move(t.Context(), from, to, move.Options{DryRun: true}))
	h.counted(t, moved)
	if moved.Bytes != 0 || look(from) != source || look(to) != target {
		t.Errorf("move.Move() = %+v, and the source is %s, the target %s", moved, look(from), look(to))
	}
	again := must(move.Move(t.Context(), from, to, move.Options{}))
	if again.Stood, again.Bytes, moved.Stood = 0, 0, 0; fmt.Sprint(again) != fmt.Sprint(moved) {
		t.Errorf("move.Move() = %+v, and a dry run %+v", again, moved)
	}
}

func TestLogsThatAreRefused(t *testing.T) {
	h := furnish(t, 20)
	full := copied(t, folder(t, h.dir))
	used := newRooms(2)
	h.visit(t, used[1])
	paused := newRooms(2)
	keeper := must(Open(t.Context(), Config{Log: paused[1].Open(), Workflows: []*Workflow{must(NewWorkflow("order", nothing()))}, Logger: quiet()}))
	check(t, keeper.PauseWorkflow(t.Context(), "order", "ann"))
	check(t, keeper.Close(t.Context()))
	half := func() rooms {
		to, left := newRooms(2), new(atomic.Int64)
		left.Store(10)
		_, err := move.Move(t.Context(), copied(t, full), &mortal{to, left, false}, move.Options{From: "the old one"})
		if !errors.Is(err, errDied) || !strings.Contains(err.Error(), "until the move is repeated") {
			t.Fatal(err)
		}
		return to
	}
	gone := copied(t, full)
	must(move.Move(t.Context(), gone, newRooms(1), move.Options{To: "the new one"}))
	undecided, tried := copied(t, full), newRooms(2)
	left := new(atomic.Int64)
	left.Store(10)
	_, _ = move.Move(t.Context(), undecided, &mortal{tried, left, false}, move.Options{To: "the first one"})
	must(move.Move(t.Context(), undecided, newRooms(1), move.Options{To: "the second one"}))
	busy := newRooms(3)
	must(busy.Lease(t.Context(), 2))
	shared := &memlog.Store{Shards: 3}
	must(shared.Join("another").Lease(t.Context(), 1))
	damaged := copied(t, full)
	leased(t, damaged, func(_ int, l journal.Lease) {
		for _, b := range must(l.Blobs(t.Context())) {
			if strings.HasPrefix(b.Name, "snapshot-") {
				l.Put(t.Context(), b.Name, func(io.Writer) error { return nil })
			}
		}
		_, last, _ := l.Bounds(t.Context())
		l.Truncate(t.Context(), last) // it may not have been cut off yet
	})
	unread := newRooms(1)
	leased(t, unread, func(_ int, l journal.Lease) {
		l.Put(t.Context(), "moved", func(w io.Writer) error { _, err := io.WriteString(w, "?"); return err })
	})
	for _, test := range []struct {
		name     string
		from, to journal.Log
		want     string
	}{
		{"a target with runs", copied(t, full), used, "the target is not empty: use a new folder or cluster, in which no server has started: shard 1 of the target: it has 1 scheduled run"},
		{"a target with a paused workflow", copied(t, full), paused, "shard 1 of the target: it has 1 paused workflow"},
		{"a target like the source", copied(t, full), copied(t, full), "of finished runs"},
		{"a target of another source", copied(t, full), half(), "shard 0 of the target: a move from the old one to here began on "},
		{"a source that is a half-filled target", half(), newRooms(1), "shard 0 of the source: a move from the old one to here"},
		{"a source that was moved", gone, newRooms(1), "shard 0 of the source: everything here was moved to the new one on "},
		{"a source that was moved elsewhere in the end", undecided, tried, "shard 0 of the source: everything here was moved to the second one on "},
		{"a target that was moved away", copied(t, full), gone, "shard 0 of the target: everything here was moved to the new one on "},
		{"a source that is in use", busy, newRooms(1), "the source is in use: stop all servers that use it, then repeat the move: shard 2 of the source: memlog: the log is in use by another process"},
		{"a target that is in use", copied(t, full), busy, "the target is in use: stop all servers that use it, then repeat the move: shard 2 of the target: memlog: the log is in use by another process"},
		{"a target that a known process uses", copied(t, full), shared.Join("me"), "the target is in use by another: stop all servers that use it, then repeat the move: shard 1 of the target: memlog: the log is in use by another process"},
		{"a source that is damaged", damaged, newRooms(1), "and no snapshot leads up to it"},
		{"a target that is damaged", copied(t, full), damaged, "and no snapshot leads up to it"},
		{"a source without shards", newRooms(0), newRooms(1), "the source has 0 shards"},
		{"a mark that can't be read", unread, newRooms(1), `the log is damaged: blob "moved"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := move.Move(t.Context(), test.from, test.to, move.Options{}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("move.Move() = %v, want %q", err, test.want)
			}
		})
	}
	if errs := refusals(t, half()); refusedWith[*move.MovingError](errs) != 2 {
		t.Errorf("a half-filled target says %v", errs)
	}
	if errs := refusals(t, unread); errs[0] == nil {
		t.Error("a log whose mark can't be read can be opened")
	}
}

// An engine that was opened and closed on a log leaves entries there, and nothing else.
func TestATargetThatNothingHappenedIn(t *testing.T) {
	h, seed := furnish(t, 20), maphash.MakeSeed()
	from, to := copied(t, folder(t, h.dir)), newRooms(2)
	for _, s := range to {
		for range 3 {
			if err := must(Open(t.Context(), Config{Log: s.Open(), Logger: quiet()})).Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, archived := states(t, from, seed)
	must(move.Move(t.Context(), from, to, move.Options{}))
	complete(t, "then", from, to, seed, want, archived)
}

// A log whose snapshot can't be read must count as damaged, not as empty.
func TestAMovedStateThatIsDamaged(t *testing.T) {
	h := furnish(t, 20)
	dir := t.TempDir()
	to := folder(t, dir)
	must(move.Move(t.Context(), folder(t, h.dir), to, move.Options{}))
	leased(t, to, func(_ int, l journal.Lease) {
		for _, b := range must(l.Blobs(t.Context())) {
			if strings.HasPrefix(b.Name, "snapshot-") {
				l.Put(t.Context(), b.Name, func(w io.Writer) error { _, err := io.WriteString(w, "?"); return err })
			}
		}
	})
	to.Close()
	if e, err := Open(t.Context(), Config{Dir: dir, Logger: quiet()}); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("Open() = %v", err)
		if err == nil {
			e.Close(t.Context())
		}
	}
}
