package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// deeds has what the operations of a trip did, in order.
type deeds struct {
	mu   sync.Mutex
	list []string
	fail atomic.Int32 // number of failures of the undo of the hotel that are left
}

func (d *deeds) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, fmt.Sprintf(format, args...))
}

func (d *deeds) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.list, ", ")
}

// trip books a hotel, three flights side by side, and a car. Then it does what the input says.
func (d *deeds) trip(end func(*engine.Flow) error, parts ...engine.Part) *engine.Workflow {
	book := func(name string) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { d.add("%s", name); return name, nil }
	}
	undo := func(name string) func(context.Context, *string) error {
		return func(_ context.Context, booked *string) error {
			if name == "hotel" && d.fail.Add(-1) >= 0 {
				return errors.New("the hotel does not answer")
			}
			if booked == nil {
				d.add("undo %s?", name)
				return nil
			}
			d.add("undo %s", *booked)
			return nil
		}
	}
	return engine.MustFlow("trip", func(f *engine.Flow, _ int) (string, error) {
		if err := do(f, "look"); err != nil {
			return "", err
		}
		if _, err := engine.DoUndo(f, "hotel", book("hotel"), undo("hotel"), engine.UndoPolicy("fixed(1h) attempts=3")); err != nil {
			return "", err
		}
		if _, err := engine.MapUndo(f, "flights", []string{"a", "b", "c"}, func(_ context.Context, leg string) (string, error) {
			d.add("flight %s", leg)
			return leg, nil
		}, func(_ context.Context, leg string, _ *string) error {
			d.add("undo flight %s", leg)
			return nil
		}, engine.Parallel(1)); err != nil {
			return "", err
		}
		if _, err := engine.DoUndo(f, "car", book("car"), undo("car")); err != nil {
			return "", err
		}
		if err := end(f); err != nil {
			return "", err
		}
		return "booked", nil
	}, parts...)
}

const (
	booked = "hotel, flight a, flight b, flight c, car"
	undone = "undo car, undo flight a, undo flight b, undo flight c, undo hotel"
)

func (d *deeds) want(t *testing.T, want string) {
	t.Helper()
	if got := d.String(); got != want {
		t.Errorf("the operations did\n%s, want\n%s", got, want)
	}
}

func TestUndoAfterAnError(t *testing.T) {
	d := new(deeds)
	w := d.trip(func(f *engine.Flow) error { return errors.New("no seat is left") })
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1)
		wantRun(t, run, engine.StateDead, "no seat is left")
		d.want(t, booked+", "+undone)
		if n := len(operations(run, "undo", "hotel")); n != 1 || run.Reason != "permanent" {
			t.Errorf("%d undos of the hotel are listed; the reason is %s", n, run.Reason)
		}
		// A retry books again what was undone.
		if err := e.Retry(t.Context(), run.ID, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, run.ID), engine.StateDead, "no seat is left")
		d.want(t, booked+", "+undone+", "+booked+", "+undone)
	}, w)
}

func TestUndoNothingAfterSuccess(t *testing.T) {
	d := new(deeds)
	w := d.trip(func(f *engine.Flow) error { return nil })
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		wantRun(t, e.Run(w, 1), engine.StateSucceeded, "booked")
		d.want(t, booked)
	}, w)
}

// TestUndoAfterCancel cancels runs that wait, sleep, are suspended, paused and crash meanwhile.
func TestUndoAfterCancel(t *testing.T) {
	for name, end := range map[string]func(*engine.Flow) error{
		"sleep": func(f *engine.Flow) error { return engine.Sleep(f, "week", 7*day) },
		"short": func(f *engine.Flow) error { return engine.Sleep(f, "short", 900*time.Millisecond) },
		"await": func(f *engine.Flow) error { _, err := engine.Await[int](f, "go"); return err },
		"ask": func(f *engine.Flow) error {
			_, err := engine.Ask(f, "go", engine.Question{Text: "Go?", Default: engine.Approve}, engine.Within(7*day))
			return err
		},
		"swallowed": func(f *engine.Flow) error {
			_ = engine.Sleep(f, "week", 7*day)
			return do(f, "another")
		},
	} {
		for _, crash := range []bool{false, true} {
			for _, pause := range []bool{false, true} {
				d := new(deeds)
				w := d.trip(end)
				enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
					id := startFlow(t, e, w, 1)
					time.Sleep(500 * time.Millisecond)
					if name != "short" {
						time.Sleep(time.Hour)
					}
					if pause {
						if err := e.Pause(t.Context(), id, "tester"); err != nil {
							t.Fatal(err)
						}
						synctest.Wait()
					}
					if err := e.Cancel(t.Context(), id, "tester"); err != nil {
						t.Fatal(err)
					}
					if crash {
						e.Crash()
						e.Restart()
					}
					i := endOfFlow(t, e, id)
					wantRun(t, i, engine.StateCanceled, "")
					for _, s := range i.Steps {
						if waited := s.Kind == "sleep" || s.Kind == "await" || s.Kind == "ask"; waited != (s.Status == "canceled") {
							t.Errorf("%s: %s %s is %s", name, s.Kind, s.Name, s.Status)
						}
					}
					if got := d.String(); !crash && got != booked+", "+undone {
						t.Errorf("%s, pause %v: the operations did\n%s", name, pause, got)
					} else if !strings.HasPrefix(got, booked) || !strings.HasSuffix(got, "undo hotel") {
						t.Errorf("%s, pause %v, crash: the operations did\n%s", name, pause, got)
					}
				}, w)
			}
		}
	}
}

// TestUndoOfARunningOperation cancels a run while an operation runs: its undo does not get a
// result, or gets it if the attempt succeeds nevertheless, and never begins before the attempt has
// ended.
func TestUndoOfARunningOperation(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		var running atomic.Bool
		var got atomic.Value
		w := engine.MustFlow("slow", func(f *engine.Flow, _ int) (string, error) {
			return engine.DoUndo(f, "slow", func(ctx context.Context) (string, error) {
				running.Store(true)
				defer running.Store(false)
				<-ctx.Done()
				// real clock: it runs in the bubble of enginetest
				time.Sleep(2 * time.Second)
				if stubborn {
					return "done", nil
				}
				return "", ctx.Err()
			}, func(_ context.Context, v *string) error {
				if running.Load() {
					got.Store("too early")
				} else if v == nil {
					got.Store("nil")
				} else {
					got.Store(*v)
				}
				return nil
			})
		})
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			id := startFlow(t, e, w, 1)
			synctest.Wait()
			if err := e.Cancel(t.Context(), id, "tester"); err != nil {
				t.Fatal(err)
			}
			if run := flowRun(t, e, id); run.State != engine.StateUndoing {
				t.Errorf("the run is %s", run.State)
			}
			wantRun(t, endOfFlow(t, e, id), engine.StateCanceled, "")
			if want := map[bool]string{false: "nil", true: "done"}[stubborn]; got.Load() != want {
				t.Errorf("the undo got %v, want %s", got.Load(), want)
			}
		}, w)
	}
}

// TestUndoFails has an undo that fails for good. A second cancel does not stop undoing, a retry
// continues with the undo that failed.
func TestUndoFails(t *testing.T) {
	d := new(deeds)
	d.fail.Store(4)
	w := d.trip(func(f *engine.Flow) error { return engine.Sleep(f, "week", 7*day) })
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		time.Sleep(time.Hour)
		if err := e.Cancel(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute) // the undo of the hotel waits for its second attempt
		if run := flowRun(t, e, id); run.State != engine.StateUndoing {
			t.Errorf("the run is %s", run.State)
		}
		if err := e.Cancel(t.Context(), id, "tester"); !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "undoes its operations; wait for its end, or abandon it") {
			t.Errorf("a second cancel: %v", err)
		}
		run := endOfFlow(t, e, id)
		wantRun(t, run, engine.StateDead, "the undo of hotel failed: the hotel does not answer")
		if run.Reason != "undo-failed" {
			t.Errorf("the reason is %s", run.Reason)
		}
		d.want(t, booked+", undo car, undo flight a, undo flight b, undo flight c")
		e.Crash()
		e.Restart()
		if err := e.Retry(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateCanceled, "")
		d.want(t, booked+", "+undone)
	}, w)
}

func TestUndoIsAbandoned(t *testing.T) {
	d := new(deeds)
	d.fail.Store(100)
	w := d.trip(func(f *engine.Flow) error { return engine.Sleep(f, "week", 7*day) })
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		time.Sleep(time.Hour)
		if err := e.Cancel(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		if err := e.Abandon(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateCanceled, "")
		d.want(t, booked+", undo car, undo flight a, undo flight b, undo flight c")

		second := startFlow(t, e, w, 1) // abandoned instead of canceled
		time.Sleep(time.Hour)
		if err := e.Abandon(t.Context(), second, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, second), engine.StateCanceled, "")
	}, w)
}

// TestUndoAfterAPanic undoes the operations of a run whose function has a bug, by hand.
func TestUndoAfterAPanic(t *testing.T) {
	d := new(deeds)
	w := d.trip(func(f *engine.Flow) error { panic("a bug") })
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		run := e.Run(w, 1)
		wantRun(t, run, engine.StateDead, "a bug")
		d.want(t, booked)
		if err := e.Undo(t.Context(), run.ID, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, run.ID), engine.StateDead, "undone by tester")
		d.want(t, booked+", "+undone)
		if err := e.Undo(t.Context(), run.ID, "tester"); !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "are undone already") {
			t.Errorf("a second undo: %v", err)
		}
	}, w)
}

// TestUndoAfterATimeout checks that the outcome, and the run of OnEnd, come after the undos.
func TestUndoAfterATimeout(t *testing.T) {
	d := new(deeds)
	after := engine.MustFlow("after", func(f *engine.Flow, in engine.Ended) (string, error) {
		_, err := engine.Do(f, "note", func(context.Context) (int, error) { d.add("after %s", in.State); return 0, nil })
		return "", err
	})
	w := d.trip(func(f *engine.Flow) error { return engine.Sleep(f, "week", 7*day) }, engine.OnEnd(after))
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1, engine.RunTimeout(day))
		run := endOfFlow(t, e, id)
		wantRun(t, run, engine.StateDead, "timed out after 24h0m0s")
		if run.Reason != "timeout" {
			t.Errorf("the reason is %s", run.Reason)
		}
		// real clock: it runs in the bubble of enginetest
		time.Sleep(time.Minute)
		d.want(t, booked+", "+undone+", after dead")
	}, w, after)
}

// TestUndoAndChildren cancels a run that waits for a child: the child undoes its operations first.
func TestUndoAndChildren(t *testing.T) {
	d := new(deeds)
	w := d.trip(func(f *engine.Flow) error { return engine.Sleep(f, "week", 7*day) })
	parent := engine.MustFlow("parent", func(f *engine.Flow, _ int) (string, error) {
		if _, err := engine.DoUndo(f, "insurance", func(context.Context) (int, error) { d.add("insurance"); return 1, nil },
			func(context.Context, *int) error { d.add("undo insurance"); return nil }); err != nil {
			return "", err
		}
		return engine.Child[string](f, "trip", w, 1)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, parent, 1)
		time.Sleep(time.Hour)
		if err := e.Cancel(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateCanceled, "")
		d.want(t, "insurance, "+booked+", "+undone+", undo insurance")
	}, w, parent)
}

// TestUndoAndCrashes crashes at many moments of a run that fails: every undo is recorded once, and
// executed at most once more for each crash.
func TestUndoAndCrashes(t *testing.T) {
	for after := time.Duration(0); after < 2*time.Second; after += 70 * time.Millisecond {
		d := new(deeds)
		slow := func(what string) error {
			// real clock: it runs in the bubble of enginetest
			time.Sleep(200 * time.Millisecond)
			d.add("%s", what)
			return nil
		}
		w := engine.MustFlow("slow", func(f *engine.Flow, _ int) (string, error) {
			for _, name := range []string{"a", "b", "c"} {
				if _, err := engine.DoUndo(f, name, func(context.Context) (string, error) { return name, slow(name) },
					func(_ context.Context, v *string) error { return slow("undo " + name) }, engine.MaxLost(10)); err != nil {
					return "", err
				}
			}
			return "", errors.New("fails")
		}, engine.Function(engine.MaxLost(10)))
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			id := startFlow(t, e, w, 1)
			time.Sleep(after)
			e.Crash()
			e.Restart()
			run := endOfFlow(t, e, id)
			wantRun(t, run, engine.StateDead, "fails")
			for _, name := range []string{"a", "b", "c"} {
				if s := operations(run, "undo", name); len(s) != 1 || s[0].Status != "succeeded" {
					t.Errorf("crash after %v: the undo of %s: %+v", after, name, s)
				}
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			if n := len(d.list); n < 6 || n > 7 || !slices.IsSortedFunc(slices.Compact(d.list), func(x, y string) int {
				return slices.Index(order6, x) - slices.Index(order6, y)
			}) {
				t.Errorf("crash after %v: %v", after, d.list)
			}
		}, w)
	}
}

var order6 = []string{"a", "b", "c", "undo c", "undo b", "undo a"}

// TestUndoWithOtherCode deploys code that does not know an undo any more.
func TestUndoWithOtherCode(t *testing.T) {
	d := new(deeds)
	w := d.trip(func(f *engine.Flow) error { return engine.Sleep(f, "week", 7*day) })
	other := engine.MustFlow("trip", func(f *engine.Flow, _ int) (string, error) {
		if err := do(f, "look"); err != nil {
			return "", err
		}
		if err := do(f, "hotel"); err != nil {
			return "", err
		}
		engine.Removed(f, "flights", "car")
		return "", engine.Sleep(f, "week", 7*day)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		time.Sleep(time.Hour)
		if err := e.Register(other); err != nil {
			t.Fatal(err)
		}
		if err := e.Cancel(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		run := flowRun(t, e, id)
		wantRun(t, run, engine.StateNeedsHandler, "the function knows how to undo only 0 of them")
		if err := e.Register(w); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateCanceled, "")
		d.want(t, booked+", "+undone)
	}, w)
}

// A run with operations that can be undone is not continued by another one without a word: the next
// run could not undo them.
func TestAgainWithOpenUndos(t *testing.T) {
	var undone atomic.Int32
	loop := func(opts ...engine.AgainOption) *engine.Workflow {
		return engine.MustFlow("loop", func(f *engine.Flow, n int) (string, error) {
			if n == 2 {
				return "", errors.New("the second run fails")
			}
			for _, name := range []string{"reserve", "charge"} {
				_, err := engine.DoUndo(f, name, value(name), func(context.Context, *string) error { undone.Add(1); return nil })
				if err != nil {
					return "", err
				}
			}
			return "", engine.Again(f, n+1, opts...)
		})
	}
	drops, keeps := loop(), loop(engine.KeepDone())
	returns := engine.MustFlow("loop", func(f *engine.Flow, _ int) (string, error) {
		engine.Removed(f, "reserve", "charge")
		return "", engine.Again(f, 2)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, drops, 1)
		wantRun(t, flowRun(t, e, id), engine.StateNeedsHandler, "again: the run has called operations that can be undone (reserve, charge), and ")
		mustDo(t, e.Register(returns)) // it does not know how to undo them, but they are done
		wantRun(t, flowRun(t, e, id), engine.StateNeedsHandler, "again: the run has called operations that can be undone (2), and ")
		mustDo(t, e.Register(keeps))
		run := endOfFlow(t, e, id)
		wantRun(t, run, "dead", "the second run fails")
		if undone.Load() != 0 || run.ID == id {
			t.Errorf("%d operations were undone, and run %s ended", undone.Load(), run.ID)
		}
	}, drops)
}
