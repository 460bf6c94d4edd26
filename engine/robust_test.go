package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

// opened returns an engine on a log in memory that is closed with the test.
func opened(t *testing.T, cfg Config) *Engine {
	t.Helper()
	if cfg.Dir == "" && cfg.Log == nil {
		cfg.Log = new(memlog.Store).Open()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	e, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return e
}

// one returns a workflow of one step.
func one[In, Out any](t *testing.T, do func(context.Context, In) (Out, error), opts ...StepOption) *Workflow {
	t.Helper()
	w, err := NewWorkflow("one", Step("do", do, opts...))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func started(t *testing.T, e *Engine, w *Workflow, input any, opts ...StartOption) Started {
	t.Helper()
	s, err := e.Start(t.Context(), w, input, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func waited(t *testing.T, s Started) *Info {
	t.Helper()
	i, err := s.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// quiet is a logger that drops everything, for tests that cause errors.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestHandlersThatMisbehave(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		do     func(context.Context, int) (any, error)
		policy string
		reason string
		text   string
		tries  int
	}{
		{"one that panics is retried and says where", func(context.Context, int) (any, error) { panic("oh no") },
			"fixed(1s) attempts=2", "attempts", "panic: oh no\ngithub.com/tideover/tideover/engine.TestHandlersThatMisbehave", 2},
		{"one that returns 1 MiB fails", func(context.Context, int) (any, error) { return strings.Repeat("x", 1<<20), nil },
			"fixed(1s) attempts=2", "permanent", "1048578 bytes, at most 262144 can be stored", 1},
		{"one that returns what can't be encoded fails", func(context.Context, int) (any, error) { return make(chan int), nil },
			"fixed(1s) attempts=2", "permanent", "output of the step: json: unsupported type: chan int", 1},
		{"one that hangs is ended by its timeout", func(ctx context.Context, _ int) (any, error) { <-ctx.Done(); return nil, ctx.Err() },
			"fixed(1s) attempts=3 attempt-timeout=2s", "attempts", "attempt timed out after 2s: context deadline exceeded", 3},
		{"one that ignores its context is stuck", nil,
			"fixed(1s) attempts=3 attempt-timeout=2s", "stuck", "still running 10s after its context ended: attempt timed out after 2s", 1},
		{"one whose error is megabytes is cut", func(context.Context, int) (any, error) { return nil, errors.New(strings.Repeat("é", 1<<16)) },
			"fixed(1s) attempts=1", "attempts", "… (126976 bytes more)", 1},
		{"one that says never", func(context.Context, int) (any, error) { return nil, retry.Permanent(errors.New("never")) },
			"fixed(1s) attempts=5", "permanent", "never", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var stuck chan struct{}
				do := c.do
				if c.reason == "stuck" {
					stuck = make(chan struct{})
					do = func(context.Context, int) (any, error) { <-stuck; return nil, nil }
				}
				w := one(t, do, Policy(c.policy))
				e := opened(t, Config{})
				i := waited(t, started(t, e, w, 1))
				if i.State != "dead" || i.Reason != c.reason || !strings.Contains(i.Error, c.text) || len(i.Steps[0].Attempts) != c.tries {
					t.Errorf("%s, %s after %d attempts: %.300s", i.State, i.Reason, len(i.Steps[0].Attempts), i.Error)
				}
				if stuck == nil {
					return
				}
				if err := e.Retry(t.Context(), i.ID, "test"); !errors.Is(err, ErrState) {
					t.Errorf("a run whose attempt does not end was put back to work: %v", err)
				}
				close(stuck)
				synctest.Wait()
				if err := e.Retry(t.Context(), i.ID, "test"); err != nil {
					t.Errorf("after it has ended: %v", err)
				}
				if i := waited(t, Started{ID: i.ID, e: e}); i.State != "succeeded" {
					t.Errorf("then it is %s", i.State)
				}
			})
		})
	}
}

func TestTheRestKeepsRunningBesideOneThatIsStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		defer close(block)
		bad := must(NewWorkflow("bad", Step("do", func(context.Context, int) (int, error) { <-block; return 0, nil }, Policy("fixed(1s) attempts=2 attempt-timeout=1s"))))
		good := must(NewWorkflow("good", Step("do", func(_ context.Context, n int) (int, error) { return n + 1, nil })))
		e := opened(t, Config{Concurrency: 1})
		s := started(t, e, bad, 1)
		g := started(t, e, good, 1)
		if i := waited(t, g); i.State != "succeeded" {
			t.Errorf("%+v", i)
		}
		if i := waited(t, s); i.Reason != "stuck" {
			t.Errorf("%+v", i)
		}
	})
}

func TestCancellationReachesEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		w := must(NewWorkflow("w",
			Step("run", func(ctx context.Context, what string) (string, error) {
				if what == "run" {
					<-ctx.Done()
					ended.Store(true)
					return "", context.Cause(ctx)
				}
				return "", errors.New("again")
			}, Policy("fixed(1h) attempts=3"), Concurrency(2))))
		e := opened(t, Config{})
		running, waiting := started(t, e, w, "run"), started(t, e, w, "wait")
		blocker := started(t, e, w, "run")
		synctest.Wait()
		queued := started(t, e, w, "run")
		later := started(t, e, w, "run", In(time.Hour))
		synctest.Wait()
		cases := []struct {
			s    Started
			want string
		}{{running, "running"}, {waiting, "waiting"}, {queued, "queued"}, {later, "scheduled"}}
		for _, c := range cases {
			if i := must(e.Get(t.Context(), c.s.ID)); i.State != c.want {
				t.Errorf("it is %s, want %s", i.State, c.want)
			}
		}
		for _, c := range cases {
			if err := e.Cancel(t.Context(), c.s.ID, "me"); err != nil {
				t.Fatal(err)
			}
			i := waited(t, c.s)
			if i.State != "canceled" || i.Notes[len(i.Notes)-1].Text != "me" {
				t.Errorf("a run that was %s: %+v", c.want, i)
			}
			if err := e.Cancel(t.Context(), c.s.ID, "me"); !errors.Is(err, ErrState) {
				t.Errorf("canceled twice: %v", err)
			}
		}
		if !ended.Load() {
			t.Error("the handler was not told")
		}
		i := must(e.Get(t.Context(), running.ID))
		if a := i.Steps[0].Attempts[0]; a.Outcome != "late" || !strings.Contains(a.Error, "the run is over") {
			t.Errorf("its attempt: %+v", a)
		}
		if err := e.Cancel(t.Context(), blocker.ID, "me"); err != nil {
			t.Error(err)
		}
	})
}

func TestASnoozeSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		w := one(t, func(context.Context, int) (string, error) {
			if calls++; calls <= 4 {
				return "", Snooze(time.Hour, "not yet")
			}
			return "now", nil
		}, Policy("fixed(1s) attempts=1"))
		e := opened(t, Config{})
		began := time.Now()
		i := waited(t, started(t, e, w, 1))
		if i.State != "succeeded" || time.Since(began) != 4*time.Hour || i.Steps[0].Spent != 0 {
			t.Errorf("%s after %v, %d spent", i.State, time.Since(began), i.Steps[0].Spent)
		}
		if a := i.Steps[0].Attempts[1]; a.Outcome != "snoozed" || a.Wait.By != "handler" || a.Error != "not yet" {
			t.Errorf("%+v", a)
		}
	})
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := one(t, func(ctx context.Context, beats int) (string, error) {
			for n := range beats {
				time.Sleep(5 * time.Second)
				if err := Progress(ctx, map[string]int{"done": n}); err != nil {
					return "", err
				}
			}
			<-ctx.Done()
			return "", context.Cause(ctx)
		}, HeartbeatTimeout(10*time.Second), Policy("fixed(1s) attempts=1"))
		e := opened(t, Config{})
		s := started(t, e, w, 3)
		time.Sleep(16 * time.Second)
		if i := must(e.Get(t.Context(), s.ID)); string(i.Steps[0].Progress) != `{"done":2}` {
			t.Errorf("progress %s", i.Steps[0].Progress)
		}
		began := time.Now()
		if i := waited(t, s); i.Error != "no heartbeat for 10s" || time.Since(began) != 9*time.Second {
			t.Errorf("%q after %v", i.Error, time.Since(began))
		}
	})
}

// Progress is kept once a second; what must survive is stored at once.
func TestSavedProgressIsStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		saved := make(chan error, 1)
		w := one(t, func(ctx context.Context, _ int) (string, error) {
			for n := range 3 {
				_ = Progress(ctx, n)
			}
			saved <- SaveProgress(ctx, "saved")
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		e := opened(t, Config{})
		s := started(t, e, w, 1)
		if err := <-saved; err != nil {
			t.Fatal(err)
		}
		if i := must(e.Get(t.Context(), s.ID)); string(i.Steps[0].Progress) != `"saved"` {
			t.Errorf("progress %s", i.Steps[0].Progress)
		}
		if err := SaveProgress(t.Context(), 1); err == nil {
			t.Error("progress of no step is saved")
		}
	})
}

func TestTheRunsTimeIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := must(NewWorkflow("w", Timeout(time.Minute),
			Step("do", func(ctx context.Context, _ int) (string, error) { <-ctx.Done(); return "", ctx.Err() }, Policy("fixed(1s) attempts=9"))))
		log := new(memlog.Store)
		e := must(Open(t.Context(), Config{Log: log.Open(), Workflows: []*Workflow{w}}))
		s := started(t, e, w, 1)
		other := started(t, e, w, 1, RunTimeout(10*time.Second))
		began := time.Now()
		if i := waited(t, other); i.Reason != "timeout" || time.Since(began) != 10*time.Second {
			t.Errorf("%+v after %v", i, time.Since(began))
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		e = opened(t, Config{Log: log.Open(), Workflows: []*Workflow{w}})
		i := waited(t, Started{ID: s.ID, e: e})
		if i.State != "dead" || i.Reason != "timeout" || time.Since(began) != time.Minute {
			t.Errorf("over a restart: %s, %s after %v", i.State, i.Reason, time.Since(began))
		}
		if err := e.Retry(t.Context(), i.ID, "me"); err != nil {
			t.Fatal(err)
		}
		if i := waited(t, Started{ID: s.ID, e: e}); i.Reason != "timeout" || time.Since(began) != 2*time.Minute {
			t.Errorf("a retry gets the time anew: %s after %v", i.Reason, time.Since(began))
		}
	})
}

func TestTheClockIsSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var times []time.Time
		w := one(t, func(context.Context, int) (int, error) {
			times = append(times, time.Now())
			return 0, errors.New("no")
		}, Policy("fixed(10s) attempts=4"))
		var offset atomic.Int64
		e := opened(t, Config{wall: func(now time.Time) int64 { return now.UnixNano() + offset.Load() }})
		s := started(t, e, w, 1)
		set := func(d time.Duration) {
			offset.Add(int64(d))
			_ = e.shard().Do(context.Background(), func(shard.Recorder) error { return nil }) // a look at the clock
		}
		time.Sleep(time.Second)
		set(24 * time.Hour)
		time.Sleep(10 * time.Second)
		set(-48 * time.Hour)
		i := waited(t, s)
		if i.State != "dead" || len(times) != 4 {
			t.Fatalf("%+v", i)
		}
		for n := range 3 {
			if d := times[n+1].Sub(times[n]); d != 10*time.Second {
				t.Errorf("wait %d took %v", n+1, d)
			}
		}
	})
}

func TestWorkflowsThatAreWrongAreRefusedWhole(t *testing.T) {
	t.Parallel()
	ok := func(context.Context, int) (int, error) { return 0, nil }
	_, err := NewWorkflow("bad name",
		Step("a", ok, After("a"), Policy("fixed(1s) attempts=0")),
		Step("b", ok, After("missing")),
		Step("b", func(context.Context, string) (chan int, error) { return nil, nil }),
		Step("h", ok, Policy("fixed(1s) hedge=1s")),
		Step("g", ok, Policy("default")),
		Step("n", ok, Concurrency(-1), HeartbeatTimeout(-1), MaxLost(-1)),
	)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`workflow "bad name"`, `may have letters`, `"a": policy`, `needs "missing", but there is no such step`, `there are two of that name`,
		`the input type is string, but that of other steps is int`, `chan int can't be stored`, `hedge`, `budget`, `concurrency: -1`, `heartbeat`, `max lost`, `needs itself`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing about %q in\n%v", want, err)
		}
	}
	if _, err := NewWorkflow("w", Step("a", ok, After("b")), Step("b", ok, After("a"))); err == nil || !strings.Contains(err.Error(), "through other steps") {
		t.Errorf("a circle: %v", err)
	}
}

func TestAChangedDefinition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := new(memlog.Store)
		var mu sync.Mutex
		var calls []string
		step := func(version, name string, opts ...StepOption) Part {
			return Step(name, func(ctx context.Context, _ int) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, version+"."+name)
				if name == "a" && version == "v1" {
					return "", errors.New("later")
				}
				return version, nil
			}, append(opts, Policy("fixed(1h) attempts=3"))...)
		}
		v1 := must(NewWorkflow("w", step("v1", "a"), step("v1", "gone", After("a")), step("v1", "c", After("gone"))))
		e := must(Open(t.Context(), Config{Log: log.Open(), Workflows: []*Workflow{v1}}))
		s := started(t, e, v1, 1)
		synctest.Wait()
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		calls = nil
		// A step removed, one added, the others in another order.
		v2 := must(NewWorkflow("w", step("v2", "new"), step("v2", "c", After("new")), step("v2", "a")))
		e = must(Open(t.Context(), Config{Log: log.Open(), Workflows: []*Workflow{v2}, Logger: quiet()}))
		time.Sleep(2 * time.Hour)
		i := must(e.Get(t.Context(), s.ID))
		if fmt.Sprint(calls) != "[v2.a]" || i.State != "needs-handler" || i.Step != "gone" {
			t.Errorf("%v, %s at %s", calls, i.State, i.Step)
		}
		if st := must(e.Stats(t.Context())); st.Missing["go:w/gone"] != 1 {
			t.Errorf("what is missing: %v", st.Missing)
		}
		if n := waited(t, started(t, e, v2, 1)); n.State != "succeeded" || len(n.Steps) != 3 {
			t.Errorf("a new run: %+v", n)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		calls = nil
		e = opened(t, Config{Log: log.Open(), Workflows: []*Workflow{v2, v1}})
		if i := waited(t, Started{ID: s.ID, e: e}); i.State != "succeeded" || fmt.Sprint(calls) != "[v1.gone v1.c]" {
			t.Errorf("with its handlers back: %s, %v", i.State, calls)
		}
	})
}

func TestDamage(t *testing.T) {
	t.Parallel()
	w := one(t, func(_ context.Context, n int) (int, error) {
		if n%2 == 1 {
			return 0, retry.Permanent(errors.New("odd"))
		}
		return n, nil
	})
	filled, runs := t.TempDir(), 0
	e := must(Open(t.Context(), Config{Dir: filled, Workflows: []*Workflow{w}, Durability: OS, snapshotAfter: 2000}))
	for runs < 50 || must(first(e)) == 1 { // until the log is cut off, because there are two snapshots
		waited(t, started(t, e, w, runs, Key(fmt.Sprint("k", runs))))
		runs++
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	fill := func(t *testing.T) string {
		t.Helper()
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filled)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	check := func(t *testing.T, dir string) {
		t.Helper()
		e := opened(t, Config{Dir: dir, Workflows: []*Workflow{w}, Durability: OS})
		for n := range runs {
			s := started(t, e, w, n, Key(fmt.Sprint("k", n)))
			i := waited(t, s)
			want := []string{"succeeded", "dead"}[n%2]
			if !s.Existing || i.State != want || string(i.Input) != fmt.Sprint(n) {
				t.Errorf("k%d: existing %v, %s, input %s", n, s.Existing, i.State, i.Input)
			}
		}
		if page := must(e.List(t.Context(), Filter{Limit: 10 * runs, Fresh: true})); len(page.Runs) != runs {
			t.Errorf("%d runs are listed, want %d", len(page.Runs), runs)
		}
	}
	blobs := func(t *testing.T, dir, prefix string) []string {
		t.Helper()
		list, _ := filepath.Glob(filepath.Join(dir, "blobs", prefix+"*"))
		if len(list) == 0 {
			t.Fatalf("no %s in %s", prefix, dir)
		}
		return list
	}
	spoil := func(t *testing.T, path string) {
		t.Helper()
		data := must(os.ReadFile(path))
		copy(data[len(data)/2:], bytes.Repeat([]byte{0x55}, min(40, len(data)/2)))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("nothing is", func(t *testing.T) { t.Parallel(); check(t, fill(t)) })
	t.Run("a view that is gone is made anew", func(t *testing.T) {
		t.Parallel()
		dir := fill(t)
		for _, f := range must(filepath.Glob(filepath.Join(dir, "view.db*"))) {
			_ = os.Remove(f)
		}
		check(t, dir)
	})
	t.Run("a view that is damaged is made anew", func(t *testing.T) {
		t.Parallel()
		dir := fill(t)
		if err := os.WriteFile(filepath.Join(dir, "view.db"), bytes.Repeat([]byte("rubbish "), 5000), 0o600); err != nil {
			t.Fatal(err)
		}
		check(t, dir)
	})
	t.Run("for a snapshot that is damaged the one before stands in", func(t *testing.T) {
		t.Parallel()
		dir := fill(t)
		list := blobs(t, dir, "snapshot-")
		spoil(t, list[len(list)-1])
		check(t, dir)
	})
	t.Run("without any snapshot it says so", func(t *testing.T) {
		t.Parallel()
		dir := fill(t)
		for _, f := range blobs(t, dir, "snapshot-") {
			spoil(t, f)
		}
		_, err := Open(t.Context(), Config{Dir: dir, Workflows: []*Workflow{w}, Logger: quiet()})
		if !errors.Is(err, journal.ErrDamaged) || !strings.Contains(err.Error(), "restore a backup") {
			t.Errorf("Open() = %v", err)
		}
	})
	t.Run("a log that is damaged is not opened", func(t *testing.T) {
		t.Parallel()
		dir := fill(t)
		path := filepath.Join(dir, "log.db")
		data := must(os.ReadFile(path))
		for i := 4096; i+4096 <= len(data); i += 4096 {
			copy(data[i+100:], bytes.Repeat([]byte{0xaa}, 3900))
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(t.Context(), Config{Dir: dir, Workflows: []*Workflow{w}, Logger: quiet()})
		if !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("Open() = %v", err)
		}
	})
}

func TestWhenARunGivesUpAnotherIsStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		alarms := map[string]GaveUp{}
		alarm := must(NewWorkflow("alarm", Step("tell", func(_ context.Context, g GaveUp) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			alarms[g.Run+g.Error] = g
			return "", nil
		})))
		w := must(NewWorkflow("w", OnGiveUp(alarm),
			Step("ok", func(context.Context, string) (int, error) { return 7, nil }),
			Step("bad", func(_ context.Context, in string) (int, error) { return 0, retry.Permanent(errors.New("no " + in)) }, After("ok"))))
		e := opened(t, Config{Workflows: []*Workflow{w}})
		const n = 1000 // more events than a reader is shown
		var last Started
		for i := range n {
			last = started(t, e, w, fmt.Sprint(i))
		}
		waited(t, last)
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(alarms) != n {
			t.Errorf("%d alarms, want %d", len(alarms), n)
		}
		g := alarms[last.ID+"no "+fmt.Sprint(n-1)]
		if g.Step != "bad" || g.StepAttempts != 1 || g.Attempts != 2 || g.Reason != "permanent" || string(g.Input) != fmt.Sprintf("%q", fmt.Sprint(n-1)) || string(g.Outputs["ok"]) != "7" {
			t.Errorf("%+v", g)
		}
	})
}

func TestAFolderThatLostItsLogIsRefused(t *testing.T) {
	t.Parallel()
	w := one(t, func(_ context.Context, n int) (int, error) { return n, nil })
	filled := t.TempDir()
	e := must(Open(t.Context(), Config{Dir: filled, Workflows: []*Workflow{w}, Durability: OS}))
	waited(t, started(t, e, w, 1, Key("k")))
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name  string
		files []string // that are removed
		empty bool     // log.db is, and stays
		word  string
	}{
		{"missing", []string{"log.db"}, false, "log.created"},
		{"empty", nil, true, "log.created"},
		{"missing, of an earlier version", []string{"log.db", "log.created"}, false, "view.db"},
		{"empty, of an earlier version", []string{"log.created"}, true, "view.db"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filled)); err != nil {
				t.Fatal(err)
			}
			for _, name := range test.files {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			if test.empty {
				if err := os.Truncate(filepath.Join(dir, "log.db"), 0); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				_, err := Open(t.Context(), Config{Dir: dir, Workflows: []*Workflow{w}, Logger: quiet()})
				if !errors.Is(err, journal.ErrDamaged) || !strings.Contains(err.Error(), test.word) || !strings.Contains(err.Error(), "restore a backup") {
					t.Errorf("open = %v; want that the log is damaged, what shows it (%s), and what to do", err, test.word)
				}
			}
		})
	}
}
