package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/retry"
)

// hoard is a log that ignores truncation, so that a test can read all entries afterwards.
type hoard struct{ journal.Log }

func (h hoard) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	l, err := h.Log.Lease(ctx, shard)
	return hoardLease{l}, err
}

type hoardLease struct{ journal.Lease }

func (hoardLease) Truncate(context.Context, uint64) error { return nil }

// The starts of both follow-up runs must be in the same entry as the end of the run, however large
// they are: an entry is stored as a whole or not at all.
func TestTheEndAndWhatItStartsAreOneEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		large := func(name string) *Workflow {
			return must(NewWorkflow(name, Call("do", "take", strings.Repeat("x", 500<<10))))
		}
		onEnd, onGiveUp := large("on-end"), large("on-give-up")
		w := must(NewWorkflow("w", OnEnd(onEnd), OnGiveUp(onGiveUp),
			Step("first", func(_ context.Context, n int) (string, error) { return strings.Repeat("y", 80<<10), nil }),
			Step("second", func(_ context.Context, n int) (string, error) {
				if n%2 == 0 {
					return strings.Repeat("z", 500<<10), nil
				}
				return "", Keep(retry.Permanent(errors.New(strings.Repeat("\x00", 4000))), strings.Repeat("m", 4000))
			}, After("first"))))
		store := new(memlog.Store)
		take := func(context.Context, *Task) ([]byte, error) { return nil, nil }
		e := must(Open(t.Context(), Config{
			Log: hoard{store.Open()}, Workflows: []*Workflow{w}, Logger: quiet(), MaxPayload: 512 << 10, Handlers: map[string]Handler{"take": take},
		}))
		const n = 2
		for i := range n {
			started(t, e, w, i, Key(strings.Repeat("\x01", 500)+fmt.Sprint(i)))
		}
		time.Sleep(time.Hour)
		ended(t, e)
		dead, all := sameEntry(t, store, "w", true)
		if all != n || dead != n/2 {
			t.Errorf("%d runs have ended, %d of them dead; want %d and %d", all, dead, n, n/2)
		}
	})
}

// Many ends at once are stored in several entries. Each end must be in the same entry as the
// follow-up runs that it starts.
func TestManyEndsAtOnceAreKeptWhole(t *testing.T) {
	t.Parallel()
	alarm := must(NewWorkflow("alarm", Step("ring", func(context.Context, any) (any, error) { return nil, nil })))
	for name, parts := range map[string][]Part{"with an alarm": {OnGiveUp(alarm)}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, w := new(memlog.Store), moody(append(parts, OnEnd(newEnds().told))...)
				e := must(Open(t.Context(), Config{Log: hoard{store.Open()}, Workflows: []*Workflow{w}, Logger: quiet()}))
				const n = 300
				for i := range n { // of all sizes, so that entries are full at any place
					started(t, e, w, strings.Repeat("x", i*7%2000)+" sleeps", Key(strings.Repeat("\x01", 500)+fmt.Sprint(i)), RunTimeout(time.Minute))
				}
				time.Sleep(time.Hour)
				ended(t, e)
				if dead, _ := sameEntry(t, store, "moody", parts != nil); dead != n {
					t.Errorf("%d are dead", dead)
				}
			})
		})
	}
}

// sameEntry checks that each end of a run of the workflow has its starts in the same
// entry, that of an alarm among them or not, and counts the ends.
func sameEntry(t *testing.T, store *memlog.Store, workflow string, alarm bool) (dead, all int) {
	t.Helper()
	m := machine.New()
	leased(t, rooms{store}, func(_ int, l journal.Lease) {
		for entry, err := range l.Read(t.Context(), 1) {
			if err != nil {
				t.Fatal(err)
			}
			owed := map[string]bool{}
			_, err := machine.ReadEntry(entry.Data, func(_ machine.Header, rec *machine.Record) error {
				if run, ok := m.Run(rec.Run); ok && rec.Ends != machine.Undecided && run.Def.Name == workflow {
					all++
					owed["on-end of "+rec.Run.String()] = true
					if rec.Ends == machine.Dead {
						dead++
					}
					if alarm && rec.Ends == machine.Dead {
						owed["on-give-up of "+rec.Run.String()] = true
					}
				}
				if rec.Kind == machine.Started {
					source, _, _ := strings.Cut(rec.Text, "\x00")
					delete(owed, source)
				}
				return m.Apply(rec)
			})
			if err != nil || len(owed) > 0 {
				t.Errorf("entry %d lacks %v; %v", entry.Seq, owed, err)
			}
		}
	})
	return dead, all
}

// A process may die after any entry. The next process must report each end exactly once.
func TestEndsAreToldOfWhereverTheProcessDies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := new(memlog.Store)
		w := moody(OnEnd(newEnds().told))
		e := must(Open(t.Context(), Config{Log: hoard{store.Open()}, Workflows: []*Workflow{w}, Logger: quiet()}))
		for _, mood := range []string{"is fine", "dies", "waits", "recovers", "runs"} {
			s := started(t, e, w, mood, Key(mood))
			synctest.Wait()
			var err error
			switch mood {
			case "runs":
				err = e.Cancel(t.Context(), s.ID, "me")
			case "recovers":
				err = e.Retry(t.Context(), s.ID, "me")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Hour)
		ended(t, e)
		var entries []journal.Entry
		leased(t, rooms{store}, func(_ int, l journal.Lease) {
			for entry, err := range l.Read(t.Context(), 1) {
				entries = append(entries, must(entry, err))
			}
		})
		for cut := range entries {
			goesOn(t, entries[:cut+1])
		}
		t.Logf("%d entries", len(entries))
	})
}

// goesOn starts a process with the given entries as its log. It checks that each run in it ends, and
// that the end is reported once.
func goesOn(t *testing.T, entries []journal.Entry) {
	t.Helper()
	store := new(memlog.Store)
	leased(t, rooms{store}, func(_ int, l journal.Lease) {
		for _, e := range entries {
			must(l.Append(t.Context(), e.Seq-1, e.ID, slices.Clone(e.Data)))
		}
	})
	e := must(Open(t.Context(), Config{Log: hoard{store.Open()}, Workflows: []*Workflow{moody(OnEnd(newEnds().told))}, Logger: quiet()}))
	time.Sleep(3 * time.Hour)
	ended(t, e)
	ends, told := map[string]int{}, map[string]int{}
	tally(t, store, ends, told)
	runs := 0
	for id, n := range told {
		if runs += n; n != 1 || ends[id] == 0 {
			t.Errorf("cut off after %d entries: run %s has ended %d times, and its end was reported %d times", len(entries), id, ends[id], n)
		}
	}
	if len(ends) != 2*runs { // the runs, and their follow-up runs
		t.Errorf("cut off after %d entries: %d runs have ended, and %d were told of", len(entries), len(ends), runs)
	}
}

// tally counts how often each run has ended, and how often its end was reported.
func tally(t *testing.T, store *memlog.Store, ends, told map[string]int) {
	t.Helper()
	leased(t, rooms{store}, func(_ int, l journal.Lease) {
		for entry, err := range l.Read(t.Context(), 1) {
			if err != nil {
				t.Fatal(err)
			}
			must(machine.ReadEntry(entry.Data, func(_ machine.Header, rec *machine.Record) error {
				count(rec, ends, told)
				return nil
			}))
		}
	})
}

func count(rec *machine.Record, ends, told map[string]int) {
	if rec.Ends != machine.Undecided {
		ends[rec.Run.String()]++
	}
	source, _, _ := strings.Cut(rec.Text, "\x00")
	if id, ok := strings.CutPrefix(source, "on-end of "); ok && rec.Kind == machine.Started {
		told[id]++
	}
}

// resting starts two runs that do not end by themselves. The first one has ended before, and that was
// reported; the second has not.
func resting(t *testing.T, e *Engine, w *Workflow) (ids []string) {
	t.Helper()
	died := started(t, e, w, "dies, then sleeps")
	waited(t, died)
	if err := e.Retry(t.Context(), died.ID, "me"); err != nil {
		t.Fatal(err)
	}
	return []string{died.ID, started(t, e, w, "is fine", In(100*time.Hour)).ID}
}

// endAll cancels the runs, and checks that only the end of the second is reported.
func endAll(t *testing.T, e *Engine, ids []string) {
	t.Helper()
	if n := tellers(t, e); n != 1 {
		t.Errorf("told %d times, want once", n)
	}
	for _, id := range ids {
		if err := e.Cancel(t.Context(), id, "me"); err != nil {
			t.Fatal(err)
		}
	}
	if n := tellers(t, e); n != 2 {
		t.Errorf("told %d times, want twice", n)
	}
}

// tellers returns the number of follow-up runs.
func tellers(t *testing.T, e *Engine) (n int) {
	t.Helper()
	for _, w := range must(e.Stats(t.Context())).Workflows {
		if w.Name == "told" {
			n = int(w.Totals.Started)
		}
	}
	return n
}

// A backup of a folder, and a log that it was moved to, know which runs have ended before.
func TestEndsAfterABackupAndAMove(t *testing.T) {
	t.Parallel()
	w := moody(OnEnd(newEnds().told))
	config := func(dir string) Config { return Config{Dir: dir, Workflows: []*Workflow{w}, Logger: quiet()} }
	first, backup, moved := t.TempDir(), filepath.Join(t.TempDir(), "copy"), t.TempDir()
	e := must(Open(t.Context(), config(first)))
	ids := resting(t, e, w)
	if err := e.Backup(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	ended(t, e)
	from, to := folder(t, first), folder(t, moved)
	must(move.Move(t.Context(), from, to, move.Options{Limited: limitedOf(w)}))
	if err := errors.Join(from.Close(), to.Close()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{backup, moved} {
		endAll(t, opened(t, config(dir)), ids)
	}
}

func TestClusterEndsAfterAMove(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := moody(OnEnd(newEnds().told))
		home := new(memlog.Store)
		e := must(Open(t.Context(), Config{Log: home.Open(), Workflows: []*Workflow{w}, Logger: quiet()}))
		ids := resting(t, e, w)
		time.Sleep(time.Minute)
		ended(t, e)
		mover := s.Join("mover")
		must(move.Move(t.Context(), home.Open(), mover, move.Options{Limited: limitedOf(w)}))
		mover.Close()
		a, b := joined(t, s, "a", Config{Workflows: []*Workflow{w}}), joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		endAll(t, b.Engine, ids)
	})
}

// A follow-up run is in the shard of the run that has ended.
func TestClusterEndsAreToldOfByTheOwner(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		n := newEnds()
		w := moody(OnEnd(n.told))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		want, shards := map[string]string{}, map[int]bool{}
		for i := range 40 {
			s := started(t, a.Engine, w, "sleeps", Key(fmt.Sprint(i)))
			if err := b.Cancel(t.Context(), s.ID, "me"); err != nil {
				t.Fatal(err)
			}
			want[s.ID] = "canceled"
		}
		time.Sleep(time.Minute)
		n.want(t, want)
		for teller, d := range n.runs {
			at := must(machine.ParseID(teller)).Slot() % 8
			if shards[at] = true; at != must(machine.ParseID(d.Run)).Slot()%8 {
				t.Errorf("the end of %s is reported elsewhere, by %s", d.Run, teller)
			}
		}
		if len(shards) < 3 {
			t.Errorf("all in %d shards", len(shards))
		}
	})
}
