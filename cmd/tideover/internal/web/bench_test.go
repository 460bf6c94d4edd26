package web

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
)

// BenchmarkPages is the server's time for pages over many runs, of which one in a
// hundred waits for a retry and one in two hundred is dead. TIDEOVER_RUNS says how
// many there are.
func BenchmarkPages(b *testing.B) {
	total, err := strconv.Atoi(cmp.Or(os.Getenv("TIDEOVER_RUNS"), "20000"))
	if err != nil {
		b.Fatal(err)
	}
	h, last := full(b, total)
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
				h.samples.at = time.Time{} // or only the first would be measured
				h.samples.mu.Unlock()
			}
		})
	}
}

// full returns the page of an engine with many runs, and the id of one of them.
func full(b *testing.B, total int) (h *handler, last string) {
	b.Helper()
	flow := func(name, policy string) *engine.Workflow {
		w, err := engine.NewWorkflow(name, engine.Step("call", do, engine.Policy(policy)))
		if err != nil {
			b.Fatal(err)
		}
		return w
	}
	quick, slow := flow("quick", "fixed(1ms) attempts=2"), flow("slow", "exponential(1h..9h) jitter=full attempts=9")
	e, err := engine.Open(b.Context(), engine.Config{Dir: b.TempDir(), Durability: engine.OS, Workflows: []*engine.Workflow{quick, slow}, Concurrency: 256})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close(b.Context()) })
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
	h = newHandler(Options{Engine: e, Version: "test"})
	for {
		s, err := e.Stats(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		list, err := e.List(b.Context(), engine.Filter{Search: "name", Limit: 1})
		if err != nil {
			b.Fatal(err)
		}
		if s.Behind == 0 && s.Running == 0 && list.Behind == 0 { // lists and search have all
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return h, last
}
