package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
)

// open are the states of runs that are not over.
var open = []string{"scheduled", "queued", "running", "waiting", "needs-handler", "paused"}

func (s *server) retryMany(w http.ResponseWriter, r *http.Request, _ string) error {
	return s.many(w, r, &bulkVerb{states: []string{"dead"}, possible: []string{"dead"}, do: s.engine.Retry, latest: s.replaceByLatest})
}

func (s *server) cancelMany(w http.ResponseWriter, r *http.Request, _ string) error {
	return s.many(w, r, &bulkVerb{states: open, possible: append([]string{"dead"}, open...), do: s.engine.Cancel})
}

// bulkVerb is something that is done with many runs.
type bulkVerb struct {
	states   []string // that are meant unless the filter says others
	possible []string // that the filter may say
	do       func(ctx context.Context, id, by string) error
	latest   func(ctx context.Context, id, by string) error // with the current definition; nil if that is not possible
}

// replaceByLatest continues a run with the current definition.
func (s *server) replaceByLatest(ctx context.Context, id, by string) error {
	info, err := s.engine.Get(ctx, id)
	if err != nil {
		return err
	}
	if err := repeatable(info); err != nil {
		return err
	}
	_, err = s.engine.RetryLatest(ctx, id, engine.Latest{}, by)
	return latestProblem(err)
}

// many does something with many runs, in steps: a request does at most maxLimit
// of them, and says where the next goes on.
func (s *server) many(w http.ResponseWriter, r *http.Request, verb *bulkVerb) error {
	who, err := by(r)
	if err != nil {
		return err
	}
	o, err := body(r)
	if err != nil {
		return err
	}
	var b Bulk
	if err := b.read(o, verb); err != nil {
		return err
	}
	do := verb.do
	if b.Latest {
		do = verb.latest
	}
	ctx, cancel := patient(w, r, 10*time.Minute)
	defer cancel()
	done, ids := Done{Failed: []Failed{}}, b.IDs
	if b.Filter != nil {
		page, err := s.page(ctx, *b.Filter)
		if err != nil {
			return err
		}
		for _, run := range page.Runs {
			ids = append(ids, run.ID)
		}
		done.Next, done.Silent = page.Next, page.Silent
	}
	for _, text := range ids {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		done.Matched++
		id, err := s.find(ctx, text)
		if err == nil {
			if err = do(ctx, id, who); err != nil {
				err = s.refusal(ctx, id, err)
			}
		}
		if err != nil {
			done.Failed = append(done.Failed, Failed{text, problem(err).Error()})
			continue
		}
		done.Done++
	}
	return answer(w, http.StatusOK, done)
}

// read reads which runs are meant. To mean all there are by leaving everything
// out is too easy a mistake.
func (b *Bulk) read(o object, verb *bulkVerb) error {
	var filter object
	limit := maxLimit
	fields := []any{"ids", &b.IDs, "filter", &filter, "limit", &limit, "after", &b.After}
	if verb.latest != nil {
		fields = append(fields, "latest", &b.Latest)
	}
	if err := o.fields(fields...); err != nil {
		return err
	}
	if limit < 1 || limit > maxLimit {
		return bad("limit", "%d is not a number from 1 to %d", limit, maxLimit)
	}
	switch {
	case (filter == nil) == (len(b.IDs) == 0):
		return bad("filter", "either it or ids must say which runs are meant")
	case len(b.IDs) > limit:
		return bad("ids", "%d are more than %d", len(b.IDs), limit)
	case slices.Contains(b.IDs, ""):
		return bad("ids", "one of them is empty, which would be the beginning of every id")
	case filter == nil && b.After != "":
		return bad("after", "is for a filter")
	case filter == nil:
		return nil
	case len(filter) == 0, len(filter) == 1 && filter["internal"] != nil:
		return bad("filter", "is empty, which would mean all runs")
	}
	given := maps.Clone(filter)
	f := &Filter{Order: "oldest", Limit: limit, After: b.After}
	var since, until string
	err := filter.fields("state", &f.States, "workflow", &f.Workflow, "search", &f.Search, "error", &f.Error,
		"since", &since, "until", &until, "min_attempts", &f.MinAttempts, "internal", &f.Internal)
	if err != nil {
		return err
	}
	if err := given.meaning(f, since, until); err != nil {
		return err
	}
	q := query{"since": since, "until": until}
	if f.Since, err = q.moment("since"); err != nil {
		return err
	}
	if f.Until, err = q.moment("until"); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if len(f.States) == 0 {
		f.States = verb.states
	}
	for _, state := range f.States {
		if !slices.Contains(verb.possible, state) {
			return bad("state", "this is not possible with runs that are %s", state)
		}
	}
	b.Filter = f
	return nil
}

// meaning refuses what is given in a filter and restricts nothing: a variable
// that was empty where the request was made would mean all runs.
func (o object) meaning(f *Filter, since, until string) error {
	blank := func(text string) bool { return strings.TrimSpace(text) == "" }
	for _, c := range []struct {
		name  string
		empty bool
	}{
		{"state", len(f.States) == 0}, {"workflow", blank(f.Workflow)}, {"search", blank(f.Search)}, {"error", blank(f.Error)},
		{"since", blank(since)}, {"until", blank(until)}, {"min_attempts", f.MinAttempts == 0},
	} {
		if _, given := o[c.name]; given && c.empty {
			return bad(c.name, "says nothing, which would mean all runs; leave it out, or say more")
		}
	}
	return nil
}
