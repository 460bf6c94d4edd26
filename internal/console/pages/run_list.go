package pages

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

// Row is a run in a list.
type Row struct {
	engine.Info
	URL string
	By  string // the source that set the current wait; "" if there is none

	TagLinks []tagLink
}

// rows are the runs on a page of a list. A column that is empty for all of them is left out.
type rows []Row

// HasNext reports whether a run waits until a time.
func (l rows) HasNext() bool {
	return slices.ContainsFunc(l, func(r Row) bool { return r.Next != nil })
}

// HasEnded reports whether a run has ended.
func (l rows) HasEnded() bool {
	return slices.ContainsFunc(l, func(r Row) bool { return r.Ended != nil })
}

// HasError reports whether a run has had an error.
func (l rows) HasError() bool {
	return slices.ContainsFunc(l, func(r Row) bool { return r.Error != "" })
}

// tagLink is a tag of a run, with the URL of the list of all runs that have it.
type tagLink struct{ Text, URL string }

// tagLinks returns the tags of a run.
func tagLinks(i *engine.Info) (list []tagLink) {
	for _, tag := range control.TagList(i) {
		q := Query{Tags: []string{tag}, Order: Newest}
		list = append(list, tagLink{tag, q.URL("/runs")})
	}
	return list
}

// List returns the runs that match a filter as rows of a table.
func (h *Data) List(ctx context.Context, f control.Filter) ([]Row, engine.Page, error) {
	soon, cancel := h.Soon(ctx)
	defer cancel()
	list, err := h.control.Runs.List(soon, f)
	if err != nil {
		return nil, list, err
	}
	rows := make([]Row, len(list.Runs))
	for i := range list.Runs {
		info := h.Redact.run(&list.Runs[i])
		rows[i] = Row{Info: *info, URL: RunURL(info.ID), By: h.waitSource(ctx, info), TagLinks: tagLinks(info)}
	}
	return rows, list, nil
}

// waitSources caches the sources of the current waits of runs, which lists do not contain.
type waitSources struct {
	mu    sync.Mutex
	known map[string]waitSource
}

type waitSource struct {
	until time.Time
	by    string
}

// waitSource returns the source that set the current wait of a run; "" if unknown.
func (h *Data) waitSource(ctx context.Context, i *engine.Info) string {
	if i.Next == nil || i.State == "scheduled" {
		return ""
	}
	h.sources.mu.Lock()
	s, ok := h.sources.known[i.ID]
	h.sources.mu.Unlock()
	if ok && s.until.Equal(*i.Next) {
		return s.by
	}
	soon, cancel := h.Soon(ctx)
	defer cancel()
	full, err := h.control.Runs.Get(soon, i.ID)
	if err != nil {
		return ""
	}
	s = waitSource{*i.Next, setBy(full)}
	h.sources.mu.Lock()
	defer h.sources.mu.Unlock()
	if h.sources.known == nil || len(h.sources.known) > 4096 {
		h.sources.known = map[string]waitSource{}
	}
	h.sources.known[i.ID] = s
	return s.by
}

// setBy returns the source that set the current wait of the run. If several steps wait, it is the
// wait that ends first.
func setBy(i *engine.Info) (by string) {
	var first *time.Time
	for k := range i.Steps {
		s := &i.Steps[k]
		if n := len(s.Attempts); s.Next != nil && (first == nil || s.Next.Before(*first)) {
			first, by = s.Next, ""
			if n > 0 && s.Attempts[n-1].Wait != nil {
				by = s.Attempts[n-1].Wait.By
			}
		}
	}
	return by
}

// SilentText returns a sentence that names the shards of both lists, which did not answer.
func SilentText(first, second []int) string {
	all := slices.Concat(first, second)
	slices.Sort(all)
	return control.Silent(slices.Compact(all))
}
