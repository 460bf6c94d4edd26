package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// branchesFlow has all kinds of operations in branches. The input says whether a branch fails.
func branchesFlow(d *deeds) (w, child *engine.Workflow) {
	const op = 200 * time.Millisecond
	many := engine.MaxLost(100)
	child = engine.MustFlow("child", func(f *engine.Flow, n int) (int, error) {
		if err := engine.Sleep(f, "while", time.Hour); err != nil {
			return 0, err
		}
		return 2 * n, do(f, "grow", many)
	}, engine.Function(many))
	w = engine.MustFlow("branches", func(f *engine.Flow, fail bool) (string, error) {
		var out [6]string
		undoable := func(f *engine.Flow, name string) (err error) {
			_, err = engine.DoUndo(f, name, d.takes(name, op), func(context.Context, *string) error { d.add("undo %s", name); return nil }, many)
			return err
		}
		err := engine.Branches(f,
			engine.Branch("bill", func(f *engine.Flow) error {
				if err := undoable(f, "charge"); err != nil {
					return err
				}
				a, err := engine.Ask(f, "manager", engine.Question{Text: "Pay?", Default: engine.Approve}, engine.Within(2*time.Hour))
				out[0] = a.Choice
				return err
			}, engine.After("pack")),
			engine.Branch("pack", func(f *engine.Flow) error {
				if err := undoable(f, "reserve"); err != nil {
					return err
				}
				boxes, err := engine.Map(f, "box", []string{"a", "b", "c"}, func(ctx context.Context, s string) (string, error) {
					return d.takes("box "+s, op)(ctx)
				}, engine.Parallel(2), many)
				if err != nil {
					return err
				}
				out[1] = strings.Join(boxes, " ")
				return engine.Branches(f,
					engine.Branch("label", func(f *engine.Flow) (err error) {
						out[2], err = engine.Do(f, "label", d.takes("label", op), many)
						return err
					}),
					engine.Branch("weigh", func(f *engine.Flow) error {
						begin, err := engine.Now(f, "begin")
						if err != nil {
							return err
						}
						if err := engine.Sleep(f, "short", 700*time.Millisecond); err != nil {
							return err
						}
						end, err := engine.Now(f, "end")
						if end.Sub(begin) < 700*time.Millisecond {
							err = fmt.Errorf("a sleep of %v", end.Sub(begin))
						}
						return err
					}),
				)
			}),
			engine.Branch("remind", func(f *engine.Flow) error {
				if err := engine.Sleep(f, "days", 3*time.Hour); err != nil {
					return err
				}
				if fail {
					return errors.New("the customer is gone")
				}
				return undoable(f, "remind")
			}),
			engine.Branch("signal", func(f *engine.Flow) error {
				v, err := engine.Await[int](f, "go", engine.Within(90*time.Minute))
				if errors.Is(err, engine.ErrNoEvent) {
					err = nil
				}
				out[3] = fmt.Sprint(v)
				return err
			}),
			engine.Branch("child", func(f *engine.Flow) error {
				v, err := engine.Child[int](f, "child", child, 21)
				out[4] = fmt.Sprint(v)
				return err
			}),
			engine.Branch("children", func(f *engine.Flow) error {
				v, err := engine.Children[int, int](f, "children", child, []int{1, 2, 3}, engine.Parallel(2))
				out[5] = fmt.Sprint(v)
				if err == nil {
					err = engine.Sleep(f, "more", 2*time.Hour)
				}
				if err == nil {
					err = undoable(f, "last")
				}
				return err
			}),
		)
		if err != nil {
			return "", err
		}
		shipped, err := engine.Do(f, "ship", d.takes("ship", op), many)
		return strings.Join(out[:], ",") + "," + shipped, err
	}, engine.Function(many))
	return w, child
}

const branchesOutput = "approve,box a box b box c,label,0,42,[2 4 6],ship"

// checkBranches checks the end of a run of branchesFlow.
func checkBranches(t *testing.T, run *engine.Info, fail bool) {
	t.Helper()
	if !fail {
		wantRun(t, run, engine.StateSucceeded, branchesOutput)
		run.Steps = slices.DeleteFunc(run.Steps, func(s engine.StepInfo) bool { return s.Kind == "await" || s.Kind == "ask" }) // they time out
		checkOnce(t, run)
		return
	}
	wantRun(t, run, engine.StateDead, "branch remind: the customer is gone")
	var done, undone []string
	for _, s := range run.Steps {
		switch {
		case s.Kind == "undo":
			undone = append(undone, s.Name)
		case s.Kind == "do" && s.Name != "label":
			done = append(done, s.Name)
		}
	}
	slices.Reverse(undone)
	if !slices.Equal(done, undone) || slices.Contains(done, "ship") {
		t.Errorf("the run has called %v, and undone, in reverse order, %v", done, undone)
	}
}

// crashEvery is the distance of the points at which a process is killed.
var crashEvery = flag.Duration("crash.every", 400*time.Millisecond, "distance of the kills in TestBranchesCrashAtEachPoint and TestFlowCrashAtEachPoint")

// The process is killed once, at each point of the run.
func TestBranchesCrashAtEachPoint(t *testing.T) {
	var points []time.Duration
	for _, from := range []time.Duration{0, time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour} {
		for at := from; at < from+2*time.Second; at += *crashEvery {
			points = append(points, at, at+time.Nanosecond)
		}
	}
	for _, fail := range []bool{false, true} {
		for _, at := range points {
			d := new(deeds)
			w, child := branchesFlow(d)
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				id := startFlow(t, e, w, fail)
				time.Sleep(at)
				e.Crash()
				if checkBranches(t, endOfFlow(t, e, id), fail); t.Failed() {
					t.Fatalf("with a crash after %v, a failure: %v", at, fail)
				}
			}, w, child)
		}
	}
}

// The process is killed again and again.
func TestBranchesCrashOften(t *testing.T) {
	for _, every := range []time.Duration{130 * time.Millisecond, 310 * time.Millisecond, 1250 * time.Millisecond, 17 * time.Minute} {
		for _, fail := range []bool{false, true} {
			d := new(deeds)
			w, child := branchesFlow(d)
			enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
				id := startFlow(t, e, w, fail)
				for range 30 {
					time.Sleep(every)
					e.Crash()
				}
				checkBranches(t, endOfFlow(t, e, id), fail)
			}, w, child)
		}
	}
}

// The log ends after each of its entries: as if the process had died before it stored the next one.
func TestBranchesFromEachEntry(t *testing.T) {
	for _, fail := range []bool{false, true} {
		d := new(deeds)
		w, child := branchesFlow(d)
		open := func(t *testing.T, log journal.Log) *engine.Engine {
			e, err := engine.Open(context.Background(), engine.Config{Log: log, Workflows: []*engine.Workflow{w, child}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		synctest.Test(t, func(t *testing.T) {
			whole := &entryRecorder{Log: new(memlog.Store).Open()}
			e := open(t, whole)
			s, err := e.Start(t.Context(), w, fail)
			if err != nil {
				t.Fatal(err)
			}
			// finish waits for the end of the run, and closes the engine.
			finish := func(e *engine.Engine) {
				run, err := e.Wait(t.Context(), s.ID)
				if err != nil {
					t.Fatal(err)
				}
				checkBranches(t, run, fail)
				if err := e.Close(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			finish(e)
			entries := whole.entries
			for n := 1; n < len(entries); n++ {
				var store memlog.Store
				l, err := store.Open().Lease(t.Context(), 0)
				if err != nil {
					t.Fatal(err)
				}
				for i, entry := range entries[:n] {
					if _, err := l.Append(t.Context(), uint64(i), entry.ID, entry.Data); err != nil {
						t.Fatal(err)
					}
				}
				if err := l.Release(); err != nil {
					t.Fatal(err)
				}
				e := open(t, store.Open())
				if _, err := e.Get(t.Context(), s.ID); errors.Is(err, engine.ErrNotFound) {
					_ = e.Close(context.Background())
					continue
				}
				if finish(e); t.Failed() {
					t.Fatalf("from the first %d of %d entries, a failure: %v", n, len(entries), fail)
				}
			}
		})
	}
}

// entryRecorder is a log that keeps all entries which are appended.
type entryRecorder struct {
	journal.Log
	entries []journal.Entry
}

func (r *entryRecorder) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	l, err := r.Log.Lease(ctx, shard)
	return &recordedLease{l, r}, err
}

type recordedLease struct {
	journal.Lease
	r *entryRecorder
}

func (l *recordedLease) Append(ctx context.Context, expected uint64, id journal.ID, data []byte) (uint64, error) {
	l.r.entries = append(l.r.entries, journal.Entry{ID: id, Data: slices.Clone(data)})
	return l.Lease.Append(ctx, expected, id, data)
}
