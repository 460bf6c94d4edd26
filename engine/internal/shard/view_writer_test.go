package shard

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/info"
)

// The last entry may change only runs that wait to be written to the view. When they are written,
// the view has all changes up to that entry.
func TestTheViewHasTheLastEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sh, start := openShard(t)
		id := start(time.Hour)
		inOwner := func(do func()) {
			t.Helper()
			if err := sh.Do(t.Context(), func(Recorder) error { do(); return nil }); err != nil {
				t.Fatal(err)
			}
		}
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
