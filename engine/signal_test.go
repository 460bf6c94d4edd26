package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// approval waits for the signals "go" and "size" within two days.
var approval = engine.MustFlow("approval", func(f *engine.Flow, _ int) (string, error) {
	if err := do(f, "prepare"); err != nil {
		return "", err
	}
	who, err := engine.Await[string](f, "go", engine.Within(2*day))
	if errors.Is(err, engine.ErrNoEvent) {
		return "nobody", nil
	}
	if err != nil {
		return "", err
	}
	size, err := engine.Await[int](f, "size")
	return fmt.Sprint(who, " ", size), err
})

func send(t *testing.T, e *enginetest.Engine, run, name string, payload any, opts ...engine.SignalOption) {
	t.Helper()
	if err := e.Signal(t.Context(), run, name, payload, opts...); err != nil {
		t.Fatal(err)
	}
}

func TestSignal(t *testing.T) {
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, approval, 1)
		time.Sleep(2 * time.Second) // the call of the function is suspended then
		run := flowRun(t, e, id)
		if run.State != engine.StateWaiting || run.Step != "go" || len(operations(run, "await", "go")) != 1 {
			t.Errorf("before the signal: %s in %q", run.State, run.Step)
		}
		time.Sleep(day)
		send(t, e, id, "go", "Ada", engine.SentBy("tester"))
		time.Sleep(2 * time.Second)
		if run := flowRun(t, e, id); run.State != engine.StateWaiting || run.Step != "size" || run.Next != nil {
			t.Errorf("before the second signal: %s in %q, next %v", run.State, run.Step, run.Next)
		}
		time.Sleep(30 * day)
		send(t, e, id, "size", 7)
		run = endOfFlow(t, e, id)
		wantRun(t, run, engine.StateSucceeded, `"Ada 7"`)
		if s := operations(run, "await", "go"); len(s) != 1 || string(s[0].Output) != `"Ada"` || s[0].Status != "succeeded" {
			t.Errorf("the operation: %+v", s)
		}
		if !strings.Contains(fmt.Sprint(run.Notes), "signal  go from tester") {
			t.Errorf("the notes do not have the signal: %v", run.Notes)
		}
	}, approval)
}

// TestSignalTimes sends signals before the wait, twice, and after its end.
func TestSignalTimes(t *testing.T) {
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		early := startFlow(t, e, approval, 1)
		send(t, e, early, "size", 1)
		send(t, e, early, "size", 2)
		send(t, e, early, "go", "first", engine.ID("a"))
		send(t, e, early, "go", "again", engine.ID("a"))
		wantRun(t, endOfFlow(t, e, early), engine.StateSucceeded, `"first 1"`)

		late := startFlow(t, e, approval, 1)
		run := endOfFlow(t, e, late)
		wantRun(t, run, engine.StateSucceeded, `"nobody"`)
		if s := operations(run, "await", "go"); s[0].Code != "no-event" || s[0].Status != "failed" {
			t.Errorf("the operation: %+v", s[0])
		}
		err := e.Signal(t.Context(), late, "go", "Ada")
		if !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "succeeded, and takes no signals") {
			t.Errorf("a signal to an ended run: %v", err)
		}
		// A sender that lost the answer sends again: the signal has arrived, so that is no error.
		send(t, e, early, "go", "again", engine.ID("a"))
	}, approval)
}

// TestSignalOnce sends signals that must not come twice: while the run waits, and after its end.
func TestSignalOnce(t *testing.T) {
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, approval, 1)
		send(t, e, id, "go", "first", engine.ID("a"), engine.Once())
		if err := e.Signal(t.Context(), id, "go", "second", engine.ID("a"), engine.Once()); !errors.Is(err, engine.ErrSignalUsed) {
			t.Errorf("the second signal: %v", err)
		}
		e.Crash()
		send(t, e, id, "size", 1, engine.ID("b"), engine.Once())
		wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, `"first 1"`)
		if err := e.Signal(t.Context(), id, "size", 2, engine.ID("b"), engine.Once()); !errors.Is(err, engine.ErrSignalUsed) {
			t.Errorf("after the end of the run: %v", err)
		}
		if err := e.Signal(t.Context(), id, "size", 3, engine.ID("c"), engine.Once()); !errors.Is(err, engine.ErrState) {
			t.Errorf("another id, after the end of the run: %v", err)
		}
	}, approval)
}

func TestSignalRefused(t *testing.T) {
	steps, err := engine.NewWorkflow("steps", engine.Call("call", "h", nil))
	if err != nil {
		t.Fatal(err)
	}
	busy := engine.MustFlow("busy", func(f *engine.Flow, _ int) (int, error) {
		return 0, engine.Sleep(f, "long", 30*day)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, busy, 1)
		other := startFlow(t, e, steps, nil)
		synctest.Wait()
		for _, c := range []struct {
			run, name string
			payload   any
			opts      []engine.SignalOption
			is        error
			text      string
		}{
			{id, "a b", nil, nil, nil, "signal: name:"},
			{id, "go", func() {}, nil, nil, "signal go: payload: json"},
			{id, "go", json.RawMessage("{"), nil, nil, "signal go: payload: not JSON"},
			{id, "go", strings.Repeat("x", 300<<10), nil, engine.ErrTooLarge, "at most 262144"},
			{id, "go", nil, []engine.SignalOption{engine.ID("a\nb")}, nil, "signal go: id:"},
			{other, "go", nil, nil, engine.ErrState, "has no function"},
			{"nonsense", "go", nil, nil, engine.ErrNotFound, "no such run"},
			{"01997b7e-0000-7000-8000-000000000000", "go", nil, nil, engine.ErrNotFound, "no such run"},
		} {
			err := e.Signal(t.Context(), c.run, c.name, c.payload, c.opts...)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("signal %q: %v; want %v with %q", c.name, err, c.is, c.text)
			}
		}
		for i := range 1000 {
			send(t, e, id, "go", i)
		}
		err := e.Signal(t.Context(), id, "go", 1000)
		if !errors.Is(err, engine.ErrTooManySignals) || !strings.Contains(err.Error(), "has 1000 that it has not waited for") {
			t.Errorf("signal 1001: %v", err)
		}
		second := startFlow(t, e, busy, 1)
		send(t, e, second, "go", strings.Repeat("x", 200<<10))
		err = e.Signal(t.Context(), second, "go", strings.Repeat("x", 100<<10))
		if !errors.Is(err, engine.ErrTooManySignals) || !strings.Contains(err.Error(), "more than 256 KiB") {
			t.Errorf("too many bytes: %v", err)
		}
	}, busy, steps)
}

// TestSignalKey sends signals to the run with a key, also after engine.Again.
func TestSignalKey(t *testing.T) {
	rounds := engine.MustFlow("rounds", func(f *engine.Flow, round int) (string, error) {
		v, err := engine.Await[string](f, "next")
		if err != nil || v == "stop" {
			return fmt.Sprint(round, v), err
		}
		return "", engine.Again(f, round+1)
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		first := startFlow(t, e, rounds, 1, engine.Key("k"))
		for _, s := range []string{"a", "b", "c", "stop"} { // the first run gets some of them before it ends
			if err := e.SignalKey(t.Context(), engine.RunKey{Workflow: "rounds", Key: "k"}, "next", s, engine.ID(s)); err != nil {
				t.Fatal(err)
			}
		}
		run := endOfFlow(t, e, first)
		wantRun(t, run, engine.StateSucceeded, `"4stop"`)
		if err := e.SignalKey(t.Context(), engine.RunKey{Workflow: "rounds", Key: "other"}, "next", 1); !errors.Is(err, engine.ErrNotFound) || !strings.Contains(err.Error(), `no run of workflow "rounds" has the key "other"`) {
			t.Errorf("an unknown key: %v", err)
		}
		if err := e.SignalKey(t.Context(), engine.RunKey{Workflow: "approval", Key: "k"}, "next", 1); !errors.Is(err, engine.ErrNotFound) {
			t.Errorf("the key of another workflow: %v", err)
		}

		first = startFlow(t, e, rounds, 1, engine.Key("l"))
		send(t, e, first, "next", "a", engine.ID("1"))
		flowRun(t, e, first)
		send(t, e, first, "next", "a", engine.ID("1")) // again: to the run that has got it
		if err := e.SignalKey(t.Context(), engine.RunKey{Workflow: "rounds", Key: "l"}, "next", "a", engine.ID("1")); err != nil {
			t.Fatal(err) // to the run that continues it, which knows the id
		}
		send(t, e, first, "next", "stop") // to the run that continues it
		wantRun(t, endOfFlow(t, e, first), engine.StateSucceeded, `"2stop"`)
	}, rounds, approval)
}

// TestSignalInOrder has a loop that gets many signals, while it runs and while it is suspended.
func TestSignalInOrder(t *testing.T) {
	const n = 100
	loop := engine.MustFlow("loop", func(f *engine.Flow, _ int) (string, error) {
		var got []string
		for i := range n {
			v, err := engine.Await[int](f, "item", engine.ForKey(fmt.Sprint(i)))
			if err != nil {
				return "", err
			}
			got = append(got, fmt.Sprint(v))
			if i%10 == 0 {
				if err := engine.Sleep(f, "rest", time.Hour, engine.ForKey(fmt.Sprint(i))); err != nil {
					return "", err
				}
			}
		}
		return strings.Join(got, " "), nil
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, loop, 1)
		var want []string
		for i := range n {
			send(t, e, id, "item", i, engine.ID(fmt.Sprint(i)))
			want = append(want, fmt.Sprint(i))
			switch {
			case i%7 == 0:
				time.Sleep(25 * time.Minute)
			case i%31 == 0:
				e.Crash()
				e.Restart()
			}
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, strings.Join(want, " "))
	}, loop)
}

func TestSignalAndCommands(t *testing.T) {
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, approval, 1)
		time.Sleep(2 * time.Second)
		flowRun(t, e, id)
		if err := e.Wake(t.Context(), id, "tester"); !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "it waits for the signal go") {
			t.Errorf("wake: %v", err)
		}
		if err := e.Postpone(t.Context(), id, time.Now().Add(9*day), "tester"); !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "it waits for the signal go") {
			t.Errorf("postpone: %v", err)
		}
		if err := e.Pause(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		send(t, e, id, "go", "Ada")
		send(t, e, id, "size", 1)
		if run := flowRun(t, e, id); run.State != engine.StatePaused {
			t.Errorf("a paused run is %s after a signal", run.State)
		}
		if err := e.Resume(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, `"Ada 1"`)

		canceled := startFlow(t, e, approval, 1)
		send(t, e, canceled, "go", "Ada")
		flowRun(t, e, canceled)
		if err := e.Cancel(t.Context(), canceled, "tester"); err != nil {
			t.Fatal(err)
		}
		run := endOfFlow(t, e, canceled)
		wantRun(t, run, engine.StateCanceled, "")
		if s := operations(run, "await", "size"); s[0].Status != "canceled" {
			t.Errorf("the wait of a canceled run is %s", s[0].Status)
		}
		if err := e.Signal(t.Context(), canceled, "size", 1); !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "is canceled, and takes no signals") {
			t.Errorf("signal after cancel: %v", err)
		}
	}, approval)
}

// TestSignalSoon checks that a function which gets its signals soon is not called again for each,
// and that a function which has waited for a second is suspended.
func TestSignalSoon(t *testing.T) {
	var calls atomic.Int32
	w := engine.MustFlow("soon", func(f *engine.Flow, n int) (int, error) {
		calls.Add(1)
		for i := range n {
			if _, err := engine.Await[int](f, "item", engine.ForKey(fmt.Sprint(i))); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
	for _, c := range []struct {
		wait  time.Duration
		calls int32
	}{{900 * time.Millisecond, 1}, {1100 * time.Millisecond, 11}} {
		calls.Store(0)
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			id := startFlow(t, e, w, 10)
			for i := range 10 {
				synctest.Wait()
				time.Sleep(c.wait)
				send(t, e, id, "item", i)
			}
			wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, "10")
		}, w)
		if calls.Load() != c.calls {
			t.Errorf("signals every %v: %d calls of the function, want %d", c.wait, calls.Load(), c.calls)
		}
	}
}

// TestSignalToDeadRun retries a run whose wait was in vain.
func TestSignalToDeadRun(t *testing.T) {
	w := engine.MustFlow("strict", func(f *engine.Flow, _ int) (string, error) {
		return engine.Await[string](f, "go", engine.Within(time.Hour))
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		wantRun(t, endOfFlow(t, e, id), engine.StateDead, "operation go: no signal go came in time")
		if err := e.Signal(t.Context(), id, "go", "Ada"); !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "is dead, and takes no signals") {
			t.Errorf("signal: %v", err)
		}
		if err := e.Retry(t.Context(), id, "tester"); err != nil {
			t.Fatal(err)
		}
		send(t, e, id, "go", "Ada")
		wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, `"Ada"`)
	}, w)
}
