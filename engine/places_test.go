package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// limitedHandler is a handler that knows how many of its calls run at the same time, and
// whether more places were taken than there are.
type limitedHandler struct {
	m *member

	mu                  sync.Mutex
	wait                time.Duration
	running, most, done int
	ahead               bool
}

func (h *limitedHandler) handle(ctx context.Context, _ int) (int, error) {
	h.mu.Lock()
	h.running++
	h.most = max(h.most, h.running)
	h.ahead = h.ahead || h.m.process.Admission.Counts().Attempts < 0
	wait := h.wait
	h.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running--
	h.done++
	return 0, ctx.Err()
}

func (h *limitedHandler) set(wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wait = wait
}

// slowStore opens an engine with 4 places whose log takes 10 ms to store an entry.
func slowStore(t *testing.T, s *memlog.Store, h *limitedHandler) *Workflow {
	t.Helper()
	w := one(t, h.handle)
	h.m = joined(t, s, "a", Config{Workflows: []*Workflow{w}, Concurrency: 4})
	settled(t, h.m)
	h.m.log.Disturb(func(op memlog.Operation) (f memlog.Fault) {
		if op.Name == "append" {
			f.Delay = 10 * time.Millisecond
		}
		return f
	})
	return w
}

func startMany(t *testing.T, e *Engine, w *Workflow, n int) (runs []Started) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			r := started(t, e, w, i)
			mu.Lock()
			defer mu.Unlock()
			runs = append(runs, r)
		})
	}
	all.Wait()
	return runs
}

func TestQuickHandlersDoNotWaitForTheLog(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		h := &limitedHandler{wait: time.Millisecond}
		w := slowStore(t, s, h)
		begin := time.Now()
		for _, r := range startMany(t, h.m.Engine, w, 1000) {
			if i := waited(t, r); i.State != StateSucceeded {
				t.Fatalf("run %s is %s", i.ID, i.State)
			}
		}
		// 4 places that are kept while an attempt is stored need 10 ms for each 4 runs.
		if took := time.Since(begin); took > 1500*time.Millisecond {
			t.Errorf("1000 runs took %v, want less than 1.5s", took)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if h.most > 4 || h.done != 1000 {
			t.Errorf("%d handlers ran at once, %d in all; want at most 4, and 1000 in all", h.most, h.done)
		}
		if n := h.m.process.Admission.Counts(); n.Attempts != 4 || n.Handlers > 0 {
			t.Errorf("%d places are free, %d handlers run", n.Attempts, n.Handlers)
		}
	})
}

func TestAttemptsThatWaitForSlowHandlersGoBackToTheQueue(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		h := &limitedHandler{}
		w := slowStore(t, s, h)
		startMany(t, h.m.Engine, w, 1000)
		h.set(time.Minute) // while most runs are queued
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !h.ahead {
			t.Error("never more than 4 places were taken; want more while handlers are quick")
		}
		count := func() (running, queued int) {
			for _, w := range must(h.m.Stats(t.Context())).Workflows {
				running, queued = running+w.States[StateRunning], queued+w.States[StateQueued]
			}
			return running, queued
		}
		if running, queued := count(); running != 4 || queued == 0 || h.running != 4 || h.most > 4 {
			t.Errorf("%d runs are running and %d queued, %d handlers run, at most %d; want 4, many, 4, 4", running, queued, h.running, h.most)
		}
		h.set(0)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if running, queued := count(); running+queued > 0 || h.done != 1000 || h.most > 4 {
			t.Errorf("%d runs are running and %d queued, %d handlers were called, at most %d at once; want 0, 0, 1000, 4", running, queued, h.done, h.most)
		}
	})
}

func TestAnAttemptThatWaitsForAHandlerIsCanceled(t *testing.T) {
	together(t, func(t *testing.T, s *memlog.Store) {
		h := &limitedHandler{wait: time.Minute}
		w := slowStore(t, s, h)
		a := admission.New(h.m.process.Admission, nil, nil, nil)
		var tickets [4]admission.Ticket // of four handlers that run
		for i := range tickets {
			tickets[i], _ = a.Take(new(machine.Run), 0)
			if err := tickets[i].Enter(t.Context()); err != nil {
				t.Fatal(err)
			}
			tickets[i].Lend()
		}
		r := started(t, h.m.Engine, w, 1)
		time.Sleep(100 * time.Millisecond)
		if err := h.m.Cancel(t.Context(), r.ID, "test"); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if i := waited(t, r); i.State != StateCanceled || time.Since(begin) >= time.Second/2 || h.most > 0 {
			t.Errorf("the run is %s after %v, and %d handlers were called; want canceled, at once, none", i.State, time.Since(begin), h.most)
		}
		for i := range tickets {
			tickets[i].Leave()
		}
	})
}
