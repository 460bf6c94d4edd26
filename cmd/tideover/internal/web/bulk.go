package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
)

const (
	// bulkWorkers is how many runs are dealt with at once: the engine stores what
	// comes together in one write.
	bulkWorkers = 16

	// bulkTime is how long one request goes on. Whoever wants more asks again.
	bulkTime = 15 * time.Second
)

// askAll asks whether all of a group shall be retried.
func (h *handler) askAll(w http.ResponseWriter, r *http.Request) {
	g, err := h.groupOf(r, r.URL.Query().Get("group"))
	if err != nil {
		h.fail(w, r, groupStatus(err), err)
		return
	}
	h.pose(w, r, http.StatusOK, &question{
		Title: fmt.Sprintf("Retry %s?", textfmt.Plural(g.Count, "dead letter")), Button: fmt.Sprintf("Retry %d", g.Count),
		Text:   fmt.Sprintf("All of workflow %s that failed like this: %s", g.Workflow, h.Redact(firstLine(g.Pattern, 200))),
		Action: "/dead/retry", Back: g.URL, Key: g.Key,
	})
}

func groupStatus(err error) int {
	if errors.Is(err, errNoGroup) {
		return http.StatusNotFound
	}
	return statusOf(err)
}

// retryAll retries all of a group that died before it was asked for.
func (h *handler) retryAll(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		h.fail(w, r, formStatus(err), err)
		return
	}
	g, err := h.groupOf(r, r.PostForm.Get("group"))
	if err != nil {
		h.fail(w, r, groupStatus(err), err)
		return
	}
	f := engine.Filter{States: []string{"dead"}, Workflow: g.Workflow, ErrorLike: g.Pattern, Until: time.Now()}
	h.doAll(w, r, &errands[0], f, "/dead")
}

// doAll does something with all runs of a filter, and says how many they were.
func (h *handler) doAll(w http.ResponseWriter, r *http.Request, e *errand, f engine.Filter, back string) {
	by := h.Actor(r)
	t, err := through(r.Context(), h.Engine, f, func(ctx context.Context, id string) error { return e.do(h.Engine, ctx, id, by) })
	if err != nil {
		err = fmt.Errorf("%d were %s, then: %w", t.done.Load(), e.past, err)
		h.fail(w, r, statusOf(err), err)
		return
	}
	did := url.Values{"did": {e.name + "-all"}, "n": {strconv.FormatInt(t.done.Load(), 10)}, "left": {strconv.FormatInt(t.refused.Load(), 10)}}
	if t.more {
		did.Set("more", "1")
	}
	if fromHTMX(r) {
		h.flash(w, r, done(did))
		return
	}
	sign := "?"
	if strings.Contains(back, sign) {
		sign = "&"
	}
	forward(w, r, back+sign+did.Encode())
}

// tally is what became of many runs.
type tally struct {
	done, refused atomic.Int64
	more          bool // the time was up before all were dealt with
}

// through does something with all runs of a filter. The list is by age and is gone
// through once, so that a run that is in it again at once, because it has died
// again, is not met again.
func through(ctx context.Context, e *engine.Engine, f engine.Filter, do func(context.Context, string) error) (*tally, error) {
	t := new(tally)
	f.Order, f.Limit = "oldest", 1000
	for end := time.Now().Add(bulkTime); ; {
		list, err := e.List(ctx, f)
		if err != nil {
			return t, err
		}
		if err := t.each(ctx, list.Runs, do); err != nil || list.Next == "" {
			return t, err
		}
		if f.After = list.Next; time.Now().After(end) {
			t.more = true
			return t, nil
		}
	}
}

func (t *tally) each(ctx context.Context, runs []engine.Info, do func(context.Context, string) error) error {
	work := make(chan string)
	errs := make(chan error, bulkWorkers)
	var workers sync.WaitGroup
	for range bulkWorkers {
		workers.Go(func() {
			for id := range work {
				switch err := do(ctx, id); {
				case err == nil:
					t.done.Add(1)
				case errors.Is(err, engine.ErrClosed):
					errs <- err
					return
				default:
					t.refused.Add(1) // the list was behind, or an attempt does not end
				}
			}
		})
	}
	err := hand(ctx, work, runs, errs)
	close(work)
	workers.Wait()
	if err != nil || len(errs) == 0 {
		return err
	}
	return <-errs
}

// hand gives out the runs.
func hand(ctx context.Context, work chan<- string, runs []engine.Info, errs <-chan error) error {
	for i := range runs {
		select {
		case work <- runs[i].ID:
		case err := <-errs:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
