package shard

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/store"
)

// inOwnerOf returns a function that calls another in the goroutine of the owner.
func inOwnerOf(t *testing.T, sh *Shard) func(do func()) {
	return func(do func()) {
		t.Helper()
		if err := sh.Do(t.Context(), func(Recorder) error { do(); return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

// The last entry may change only runs that wait to be written to the view. When they are written,
// the view has all changes up to that entry.
func TestTheViewHasTheLastEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sh, start := openShard(t)
		id := start(time.Hour)
		inOwner := inOwnerOf(t, sh)
		// The run changes after it was taken from the changed runs, before it is written.
		inOwner(func() { sh.views.todo, sh.views.todoSeq = sh.owner.m.TakeChanged(), sh.owner.seq })
		if _, err := sh.Perform(t.Context(), &Call{Op: OpPause, ID: id, By: "test"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		inOwner(func() {
			if sh.views.cursor != sh.owner.seq {
				t.Errorf("the view has all changes up to entry %d; want %d", sh.views.cursor, sh.owner.seq)
			}
		})
	})
}

// A view that is lost while the shard runs is filled again.
func TestALostViewIsFilledAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sh, start := openShard(t)
		for range 30 {
			start(0)
		}
		start(time.Hour)
		count := func() int {
			time.Sleep(time.Second)
			return len(must(sh.Perform(t.Context(), &Call{Op: OpList, Filter: &info.Filter{Limit: 1000}})).Page.Runs)
		}
		if n := count(); n != 31 {
			t.Fatalf("%d runs, want 31", n)
		}
		if err := sh.Do(t.Context(), func(Recorder) error { return sh.views.rebuild(errors.New("test")) }); err != nil {
			t.Fatal(err)
		}
		if n := count(); n != 31 {
			t.Errorf("%d runs after the view was lost, want 31", n)
		}
	})
}

// A snapshot is complete only after the view has come to its entry. But it does not wait for ever.
func TestASnapshotIsNotAheadOfTheView(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		held  time.Duration // how long the view can't be written
		waits bool          // after half of that time, the snapshot waits
	}{
		{"a slow view", time.Second, true},
		{"a view that can't be written", time.Hour, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sh, start := openShard(t)
				slots := sh.process.viewWriters
				for range cap(slots) {
					slots <- struct{}{}
				}
				time.AfterFunc(tt.held, func() {
					for range cap(slots) {
						<-slots
					}
				})
				inOwner := inOwnerOf(t, sh)
				inOwner(func() { sh.process.Settings.SnapshotAfter = 1 })
				start(time.Hour)
				snapshots := func() int {
					_, list, _, err := store.List(t.Context(), sh.Lease)
					if err != nil {
						t.Fatal(err)
					}
					return len(list)
				}
				time.Sleep(tt.held / 2)
				if waits := snapshots() == 0; waits != tt.waits {
					t.Errorf("the snapshot waits: %v, want %v", waits, tt.waits)
				}
				time.Sleep(tt.held)
				if snapshots() == 0 {
					t.Error("there is no snapshot")
				}
			})
		})
	}
}

// After a failed write, the next batches say that the view has what the writes before have written.
func TestABatchThatIsLostIsNotInTheView(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sh, start := openShard(t)
		start(time.Hour)
		time.Sleep(time.Minute)
		start(time.Hour)
		inOwnerOf(t, sh)(func() {
			v, before := &sh.views, sh.views.cursor
			v.feed()
			v.todo, v.todoSeq = v.state.m.TakeChanged(), v.state.seq
			if v.nextBatch(); v.cursor == before {
				t.Fatal("the batch changes nothing")
			}
			if v.confirm(errors.New("test")); v.cursor != before {
				t.Errorf("the view has all changes up to entry %d; want %d", v.cursor, before)
			}
		})
		time.Sleep(time.Minute)
		page := must(sh.Perform(t.Context(), &Call{Op: OpList, Filter: &info.Filter{Limit: 10}})).Page
		if len(page.Runs) != 2 {
			t.Errorf("%d runs, want 2", len(page.Runs))
		}
	})
}
