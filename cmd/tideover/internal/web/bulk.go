package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine"
)

// bulkWorkers is how many runs are retried at once: the engine stores what comes
// together in one write.
const bulkWorkers = 16

// askAll asks whether all of a group shall be retried.
func (h *handler) askAll(w http.ResponseWriter, r *http.Request) {
	g, err := h.groupOf(r, r.URL.Query().Get("group"))
	if err != nil {
		h.fail(w, r, groupStatus(err), err)
		return
	}
	noun := "dead letters"
	if g.Count == 1 {
		noun = "dead letter"
	}
	h.pose(w, r, http.StatusOK, &question{
		Title: fmt.Sprintf("Retry %d %s?", g.Count, noun), Button: fmt.Sprintf("Retry %d", g.Count),
		Text:   fmt.Sprintf("All of workflow %s that failed like this: %s", g.Workflow, h.Redact(short(g.Pattern, 200))),
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
	n, left, err := h.retryGroup(r.Context(), g, h.Actor(r))
	if err != nil {
		err = fmt.Errorf("%d were put back to work, then: %w", n, err)
		h.fail(w, r, statusOf(err), err)
		return
	}
	did := url.Values{"did": {"retry-all"}, "n": {strconv.Itoa(n)}, "left": {strconv.Itoa(left)}}
	if fromHTMX(r) {
		h.flash(w, r, done(did))
		return
	}
	forward(w, r, "/dead?"+did.Encode())
}

// retryGroup returns how many were retried, and how many could not be. The list
// is by age and is gone through once, so that a run that dies again at once is
// not met again.
func (h *handler) retryGroup(ctx context.Context, g *group, by string) (n, left int, err error) {
	f := engine.Filter{
		States: []string{"dead"}, Workflow: g.Workflow, ErrorLike: g.Pattern, Until: time.Now(), Limit: 1000,
	}
	var retried, refused atomic.Int64
	for {
		list, err := h.Engine.List(ctx, f)
		if err != nil {
			return int(retried.Load()), int(refused.Load()), err
		}
		if err := h.retryRuns(ctx, list.Runs, by, &retried, &refused); err != nil || list.Next == "" {
			return int(retried.Load()), int(refused.Load()), err
		}
		f.After = list.Next
	}
}

func (h *handler) retryRuns(ctx context.Context, runs []engine.Info, by string, retried, refused *atomic.Int64) error {
	work := make(chan string)
	errs := make(chan error, bulkWorkers)
	var workers sync.WaitGroup
	for range bulkWorkers {
		workers.Go(func() {
			for id := range work {
				switch err := h.Engine.Retry(ctx, id, by); {
				case err == nil:
					retried.Add(1)
				case errors.Is(err, engine.ErrClosed):
					errs <- err
					return
				default:
					refused.Add(1) // the list was behind, or an attempt does not end
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
