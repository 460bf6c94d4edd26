package web

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testwait"
)

// BenchmarkPages measures how long the server takes to render pages with many runs. One in a hundred
// runs waits for a retry, and one in two hundred is dead. TIDEOVER_RUNS is the number of runs.
func BenchmarkPages(b *testing.B) {
	total, err := strconv.Atoi(cmp.Or(os.Getenv("TIDEOVER_RUNS"), "20000"))
	if err != nil {
		b.Fatal(err)
	}
	e, last := full(b, total)
	h := newSiteOf(setup{Config: admin.Config{Engine: e, Version: "test"}})
	for _, path := range []string{
		"/overview", "/runs", "/runs?state=waiting&order=next", "/runs?state=dead", "/runs?workflow=quick&order=oldest", "/runs?workflow=quick&state=running&state=waiting",
		"/runs?q=name-" + strconv.Itoa(total/2), "/runs?attempts=2", "/runs?attempts=50", "/runs?until=2h", "/dead", "/policies", "/notifications", "/health",
		"/bulk/cancel?workflow=slow", "/runs/" + last,
	} {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodGet, path, nil))
				if w.Code == http.StatusSeeOther {
					path = w.Header().Get("Location")
				} else if w.Code != http.StatusOK {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
				h.samples.mu.Lock()
				h.samples.at = time.Time{} // clears the cache: each iteration must collect the waits
				h.samples.mu.Unlock()
			}
		})
	}
}

// full returns an engine with total runs, and the id of one of them. The engine also has the workflows
// in more.
func full(b testing.TB, total int, more ...*engine.Workflow) (e *engine.Engine, last string) {
	b.Helper()
	quick, slow := flowOf(b, "quick", "fixed(1ms) attempts=2"), flowOf(b, "slow", "exponential(1h..9h) jitter=full attempts=9")
	e, err := engine.Open(b.Context(), engine.Config{
		Dir: b.TempDir(), Durability: engine.OS, Workflows: append(more, quick, slow), Concurrency: 256, Handlers: map[string]engine.Handler{session.Handler: limitedAgain},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close(context.Background()) })
	var workers sync.WaitGroup
	for n := range 128 {
		workers.Go(func() {
			for i := n; i < total; i += 128 {
				j, w := job{Name: "name-" + strconv.Itoa(i)}, quick
				switch {
				case i%100 == 0:
					j.Fail, w = 1, slow
				case i%200 == 1:
					j.Fail, j.Error = 9, "dial 10.0.0.1:443: refused after "+strconv.Itoa(i)+"ms"
				}
				s, err := e.Start(b.Context(), w, j)
				if err != nil {
					b.Error(err)
					return
				}
				if i == total-1 {
					last = s.ID
				}
			}
		})
	}
	workers.Wait()
	waitUntilIdle(b, e)
	return e, last
}

// flowOf returns a workflow with one step.
func flowOf(b testing.TB, name, policy string) *engine.Workflow {
	b.Helper()
	w, err := engine.NewWorkflow(name, engine.Step("call", do, engine.Policy(policy)))
	if err != nil {
		b.Fatal(err)
	}
	return w
}

// waitUntilIdle waits until no run is running, and lists and search contain all runs.
func waitUntilIdle(b testing.TB, e *engine.Engine) {
	b.Helper()
	testwait.Until(b, "nothing runs, and lists and search have all runs", func() bool {
		s, err := e.Stats(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		list, err := e.List(b.Context(), engine.Filter{Search: "name", Limit: 1})
		if err != nil {
			b.Fatal(err)
		}
		return s.Behind == 0 && s.Running == 0 && list.Behind == 0
	})
}
