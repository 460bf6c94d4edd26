package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

// ends notes which runs have ended, by the input of the workflow that follows.
type ends struct {
	told *Workflow

	mu   sync.Mutex
	runs map[string]Ended           // by the follow-up run
	of   map[string]map[string]bool // those, by the run that ended
}

func newEnds(parts ...Part) *ends {
	n := &ends{runs: map[string]Ended{}, of: map[string]map[string]bool{}}
	n.told = must(NewWorkflow("told", append(parts, Step("tell", n.tell))...))
	return n
}

func (n *ends) tell(ctx context.Context, d Ended) (string, error) {
	task, _ := TaskOf(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.runs[task.Run] = d
	if n.of[d.Run] == nil {
		n.of[d.Run] = map[string]bool{}
	}
	n.of[d.Run][task.Run] = true
	return "", nil
}

// want checks that the end of each of the runs was reported once, and of no other.
func (n *ends) want(t *testing.T, states map[string]string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	got := map[string]string{}
	for _, d := range n.runs {
		got[d.Run] = d.State
	}
	if !maps.Equal(got, states) || len(n.runs) != len(states) {
		t.Errorf("told %d times of %v, want %v", len(n.runs), got, states)
	}
}

// moody returns a workflow whose runs succeed, fail or wait as their input says.
func moody(parts ...Part) *Workflow {
	return must(NewWorkflow("moody", append(parts, Step("do", func(ctx context.Context, mood string) (string, error) {
		task, _ := TaskOf(ctx)
		switch {
		case mood == "dies", task.Total == 1 && (mood == "recovers" || mood == "dies, then sleeps"):
			return "", retry.Permanent(errors.New("no"))
		case strings.HasSuffix(mood, "sleeps"):
			return "", Snooze(100*time.Hour, "tired")
		case mood == "waits":
			return "", errors.New("not yet")
		case mood == "runs":
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		return mood, nil
	}, Policy("fixed(1h) attempts=2"), MaxLost(0)))...))
}

// real clock: the rows run in a bubble
func TestWhenARunEndsAnotherIsStarted(t *testing.T) {
	t.Parallel()
	cancel := func(t *testing.T, e *Engine, id string) {
		t.Helper()
		if err := e.Cancel(t.Context(), id, "me"); err != nil {
			t.Error(err)
		}
	}
	tests := []struct {
		name, mood string
		opts       []StartOption
		was        string                                   // before it is made to end
		end        func(t *testing.T, e *Engine, id string) // nil if it does by itself
		want       string
	}{
		{"it succeeds", "is fine", nil, "succeeded", nil, "succeeded"},
		{"it dies", "dies", nil, "dead", nil, "dead"},
		{"its attempts are used up", "waits", nil, "waiting", func(*testing.T, *Engine, string) { time.Sleep(2 * time.Hour) }, "dead"},
		{"its time is over while it waits", "sleeps", []StartOption{RunTimeout(time.Minute)}, "waiting", func(*testing.T, *Engine, string) { time.Sleep(time.Hour) }, "dead"},
		{"its time is over while it runs", "runs", []StartOption{RunTimeout(time.Minute)}, "running", func(*testing.T, *Engine, string) { time.Sleep(time.Hour) }, "dead"},
		{"it is canceled before its start", "is fine", []StartOption{In(time.Hour)}, "scheduled", cancel, "canceled"},
		{"it is canceled while it waits", "waits", nil, "waiting", cancel, "canceled"},
		{"it is canceled while it runs", "runs", nil, "running", cancel, "canceled"},
		{"it is canceled while it is paused", "waits", nil, "waiting", func(t *testing.T, e *Engine, id string) {
			t.Helper()
			if err := e.Pause(t.Context(), id, "me"); err != nil {
				t.Error(err)
			}
			cancel(t, e, id)
		}, "canceled"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newEnds()
				w := moody(OnEnd(n.told))
				e := opened(t, Config{Workflows: []*Workflow{w}})
				s := started(t, e, w, test.mood, append(test.opts, Key("the key"))...)
				synctest.Wait()
				if i := must(e.Get(t.Context(), s.ID)); i.State != test.was {
					t.Fatalf("it is %s, want %s", i.State, test.was)
				}
				if test.end != nil {
					test.end(t, e, s.ID)
				}
				i := waited(t, s)
				time.Sleep(3 * time.Hour)
				n.want(t, map[string]string{s.ID: test.want})
				for id, d := range n.runs {
					if d.Workflow != "moody" || d.Key != "the key" || i.State != test.want || !d.At.Equal(*i.Ended) {
						t.Errorf("told %+v of a run that is %s at %v", d, i.State, i.Ended)
					}
					if r := must(e.Get(t.Context(), id)); r.Source != "on-end of "+s.ID || r.State != "succeeded" {
						t.Errorf("its follow-up run: %+v", r)
					}
				}
			})
		})
	}
}

func TestTheEndOfARunThatNeverBegan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newEnds()
		w := moody(OnEnd(n.told), MaxRuns(2))
		foreign := must(NewWorkflow("foreign", OnEnd(n.told), Call("do", "unserved", nil)))
		e := opened(t, Config{Workflows: []*Workflow{w, foreign}})
		for range 2 {
			started(t, e, w, "runs")
		}
		synctest.Wait()
		queued, parked := started(t, e, w, "runs"), started(t, e, foreign, nil)
		time.Sleep(time.Minute)
		want := map[string]string{}
		for state, s := range map[string]Started{"queued": queued, "needs-handler": parked} {
			if i := must(e.Get(t.Context(), s.ID)); i.State != state {
				t.Errorf("it is %s, want %s", i.State, state)
			}
			if err := e.Cancel(t.Context(), s.ID, "me"); err != nil {
				t.Error(err)
			}
			want[s.ID] = "canceled"
		}
		time.Sleep(time.Minute)
		n.want(t, want)
	})
}

// Only the first end of a run starts a follow-up run, even if only a snapshot has that end.
func TestARunThatEndsAgainStartsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, store := newEnds(), new(memlog.Store)
		var died atomic.Int32
		alarm := must(NewWorkflow("alarm", Step("ring", func(context.Context, GaveUp) (string, error) { died.Add(1); return "", nil })))
		w := moody(OnEnd(n.told), OnGiveUp(alarm))
		e := must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet(), snapshotAfter: 1000}))
		want := map[string]string{}
		runs := map[string]Started{}
		for _, mood := range []string{"dies", "recovers", "is canceled", "waits"} {
			in := mood
			if mood == "is canceled" {
				in = "dies"
			}
			runs[mood] = started(t, e, w, in, RunTimeout(100*time.Hour))
			want[runs[mood].ID] = "dead"
		}
		time.Sleep(2 * time.Hour)
		n.want(t, want)
		again := func(do func(context.Context, string, string) error, moods ...string) {
			t.Helper()
			for _, mood := range moods {
				if err := do(t.Context(), runs[mood].ID, "me"); err != nil {
					t.Fatal(err)
				}
			}
		}
		again(e.Retry, "waits")
		time.Sleep(time.Minute)
		plain := moody()
		if err := e.Register(plain); err != nil {
			t.Fatal(err)
		}
		for range 5 { // the log that has the first end goes
			waited(t, started(t, e, plain, "is fine", At(time.Now().Add(time.Minute))))
		}
		_ = e.Close(t.Context())
		if first := firstEntry(t, store); first == 1 {
			t.Error("the log has everything: the test has not tested anything")
		}
		e = opened(t, Config{Log: store.Open(), Workflows: []*Workflow{w}, snapshotAfter: 1000})
		again(e.Retry, "dies", "recovers")
		again(e.Cancel, "is canceled")
		time.Sleep(3 * time.Hour)
		for mood, state := range map[string]string{"dies": "dead", "recovers": "succeeded", "is canceled": "canceled", "waits": "dead"} {
			if i := must(e.Get(t.Context(), runs[mood].ID)); i.State != state {
				t.Errorf("what %s is %s", mood, i.State)
			}
		}
		n.want(t, want)
		if n := died.Load(); n != 6 {
			t.Errorf("%d alarms, want one for each of 6 deaths", n)
		}
		again(func(ctx context.Context, id, by string) error {
			next, err := e.Replay(ctx, id, nil, by)
			want[next.ID] = "dead"
			return err
		}, "dies")
		time.Sleep(time.Minute)
		n.want(t, want)
	})
}

func firstEntry(t *testing.T, store *memlog.Store) (first uint64) {
	t.Helper()
	leased(t, rooms{store}, func(_ int, l journal.Lease) {
		var err error
		if first, _, err = l.Bounds(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	return first
}

func TestWhatFollowsFromAnEndHasItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		log := map[string][]string{}
		note := func(name string) Part {
			return Step("do", func(ctx context.Context, in map[string]any) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				log[name] = append(log[name], fmt.Sprint(in["workflow"], " ", in["state"]))
				if name == "teller" {
					return "", retry.Permanent(errors.New("no receiver"))
				}
				return "", nil
			})
		}
		last := must(NewWorkflow("last", note("last")))
		alarm := must(NewWorkflow("alarm", OnEnd(last), note("alarm")))
		teller := must(NewWorkflow("teller", OnGiveUp(alarm), OnEnd(last), note("teller")))
		w := moody(OnEnd(teller), OnGiveUp(alarm))
		e := opened(t, Config{})
		if err := e.Replace([]*Workflow{w}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"moody", "teller", "alarm", "last"} {
			if _, ok := e.Workflow(name); !ok {
				t.Errorf("%s is not known", name)
			}
		}
		if all := e.Workflows(); len(all) != 4 {
			t.Errorf("%d workflows", len(all))
		}
		started(t, e, w, "dies")
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		for _, list := range log {
			slices.Sort(list)
		}
		want := map[string][]string{
			"teller": {"moody dead"},
			"alarm":  {"moody <nil>", "teller <nil>"},
			"last":   {"alarm succeeded", "alarm succeeded", "teller dead"},
		}
		if !maps.EqualFunc(log, want, slices.Equal) {
			t.Errorf("%v, want %v", log, want)
		}
	})
}

func TestARunOfAReplacedWorkflowEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newEnds()
		w := moody(OnEnd(n.told))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		s := started(t, e, w, "waits")
		if err := e.Replace(nil); err != nil {
			t.Fatal(err)
		}
		waited(t, s)
		time.Sleep(time.Minute)
		n.want(t, map[string]string{s.ID: "dead"})
	})
}

// TestTheEndOfARunThatNobodyKnowsAnyMore ends a run in a process that has registered neither the
// workflow nor that of the follow-up run, but only the handlers of their steps.
func TestTheEndOfARunThatNobodyKnowsAnyMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := make(chan string, 1)
		gate := make(chan struct{})
		handlers := map[string]Handler{
			"work": func(ctx context.Context, _ *Task) ([]byte, error) {
				select {
				case <-gate:
					return []byte("1"), nil
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			},
			"tell": func(_ context.Context, task *Task) ([]byte, error) { told <- string(task.Input); return nil, nil },
		}
		after := must(NewWorkflow("after", Call("tell", "tell", nil)))
		work := must(NewWorkflow("work", Call("do", "work", nil), OnEnd(after)))
		var store memlog.Store
		e := must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{work}, Handlers: handlers}))
		run := must(e.Start(t.Context(), work, nil))
		synctest.Wait()
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e = must(Open(t.Context(), Config{Log: store.Open(), Handlers: handlers}))
		defer e.Close(context.Background())
		close(gate)
		if got := <-told; !strings.Contains(got, run.ID) || !strings.Contains(got, "succeeded") {
			t.Errorf("told %s, want of %s", got, run.ID)
		}
	})
}

func TestFollowersThatAreWrongAreRefused(t *testing.T) {
	t.Parallel()
	step := Step("do", func(context.Context, any) (any, error) { return nil, nil })
	name := func(name string, parts ...Part) *Workflow { return must(NewWorkflow(name, append(parts, step)...)) }
	tests := []struct {
		name  string
		parts []Part
		want  string // "" for nothing
	}{
		{"no workflow", []Part{OnEnd(nil)}, "on end: the workflow is nil"},
		{"two of them", []Part{OnEnd(name("a")), OnEnd(name("b"))}, `got "a" and "b"`},
		{"one of the same name", []Part{OnEnd(name("w"))}, `"w" is the name of two`},
		{"one of the same name, later", []Part{OnEnd(name("a", OnGiveUp(name("w"))))}, `"w" is the name of two`},
		{"two of one name", []Part{OnEnd(name("a")), OnGiveUp(name("a"))}, `"a" is the name of two`},
	}
	same := name("a")
	tests = append(tests, struct {
		name  string
		parts []Part
		want  string
	}{"the same for both", []Part{OnEnd(same), OnGiveUp(same)}, ""})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := NewWorkflow("w", append(test.parts, step)...)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("NewWorkflow() = %v, want %q", err, test.want)
			}
		})
	}
}
