package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
)

// Filter says which runs are listed.
type Filter struct {
	States      []string // any of them; none means all
	Workflow    string
	Exclude     []string // workflows that are left out: names, and beginnings and ends of such as in "a.*" and "*.b"
	Search      string   // words, or the beginning of one
	ErrorLike   string   // the pattern of a Group
	Since       time.Time
	Until       time.Time
	MinAttempts int
	Order       string // newest (the default), oldest, or next for the end of the wait
	After       string // Page.Next of the page before
	Limit       int    // 0 means 50, and 1000 is the most
	Fresh       bool   // the list waits, for a second at most, until it has what was acknowledged before
}

// Page is a part of a list.
type Page struct {
	Runs   []Info `json:"runs"` // without steps; input and output may be cut
	Next   string `json:"next,omitempty"`
	Behind int    `json:"behind,omitempty"` // runs that a search has yet to learn of
	Silent []int  `json:"silent,omitempty"` // shards that did not answer: their runs are missing
}

// passed is the cursor of a shard whose runs are not in a list.
const passed = "-"

// list returns runs, and the cursor of each: the place after it.
func (sh *shard) list(ctx context.Context, f Filter) (a answer, err error) {
	v := sh.view.Load()
	switch {
	case v == nil && sh.dir == "":
		a.Page, err = sh.listAll(ctx, &f)
		return a, err
	case v == nil:
		return a, fmt.Errorf("list: %w", sh.errNoView())
	}
	a.Page = new(Page)
	if f.After == passed {
		return a, nil
	}
	if f.Fresh {
		sh.refresh(ctx)
	}
	p, err := v.List(ctx, f.view())
	if err != nil {
		return answer{}, err
	}
	a.Page.Next, a.Page.Behind = p.Next, p.SearchBehind
	for i := range p.Runs {
		a.Page.Runs = append(a.Page.Runs, summary(&p.Runs[i]))
	}
	a.Cursors, a.Distance = p.Cursors, p.Distance
	return a, nil
}

// listAll is for engines without a view.
func (sh *shard) listAll(ctx context.Context, f *Filter) (*Page, error) {
	page, err := ask(ctx, sh, func(*turn) (*Page, error) {
		page := new(Page)
		for _, r := range sh.m.All() {
			row := row(r) // without a view there is no folder, and nothing is cold
			if f.matches(&row) {
				page.Runs = append(page.Runs, summary(&row))
			}
		}
		return page, nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(page.Runs, func(a, b Info) int { return cmp.Compare(b.ID, a.ID) })
	return page, nil
}

func (f *Filter) view() view.Filter {
	v := view.Filter{
		States: f.States, Workflow: f.Workflow, Exclude: f.Exclude, Search: f.Search, Error: f.ErrorLike, Since: f.Since, Until: f.Until,
		MinAttempts: f.MinAttempts, After: f.After, Limit: f.Limit,
		Order: view.Order(f.Order),
	}
	return v
}

// matches is for engines without a view.
func (f *Filter) matches(r *view.Run) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, r.State)) && (f.Workflow == "" || f.Workflow == r.Workflow) &&
		!view.Like(f.Exclude, r.Workflow) && r.Attempts >= f.MinAttempts && (f.Since.IsZero() || !r.Created.Before(f.Since)) && (f.Until.IsZero() || r.Created.Before(f.Until)) &&
		(f.Search == "" || strings.Contains(strings.Join([]string{r.ID, r.Key, r.Workflow, r.Error, string(r.Input)}, "\n"), f.Search))
}

// summary returns the short form of a run.
func summary(r *view.Run) Info {
	i := Info{
		ID: r.ID, Workflow: r.Workflow, Key: r.Key, State: r.State, Created: r.Created, Updated: r.Updated,
		Attempts: r.Attempts, Step: r.Step, Error: r.Error, Reason: r.Reason, ReplacedBy: r.ReplacedBy,
		InputPreview: string(r.Input), OutputPreview: string(r.Output),
	}
	if !r.Ended.IsZero() {
		i.Ended = &r.Ended
	}
	if !r.Next.IsZero() {
		i.Next = &r.Next
	}
	return i
}

// Group is dead runs that failed alike: with the same pattern of error, in the same
// step of the same workflow.
type Group struct {
	Error    string // of the newest run
	Pattern  string // for Filter.ErrorLike
	Workflow string
	Step     string
	Count    int
	First    time.Time // Created of the oldest run
	Last     time.Time // Created of the newest run
}

// Groups are the dead runs, grouped by how they failed.
type Groups struct {
	Groups []Group
	Silent []int // shards that did not answer: their runs are missing
}

// groups returns the dead runs of the shard grouped by how they failed.
func (sh *shard) groups(ctx context.Context, limit int, exclude []string) ([]Group, error) {
	v := sh.view.Load()
	if v == nil {
		return nil, fmt.Errorf("groups: %w", sh.errNoView())
	}
	found, err := v.Groups(ctx, view.Filter{States: []string{"dead"}, Exclude: exclude}, limit)
	groups := make([]Group, len(found))
	for i, g := range found {
		groups[i] = Group(g)
	}
	return groups, err
}

// find returns the ids of the runs that begin with the text, or have it as key.
func (sh *shard) find(ctx context.Context, text string, limit int) ([]string, error) {
	ids, err := ask(ctx, sh, func(*turn) (ids []string, err error) {
		if id, ok := sh.m.ByKey(text); ok {
			ids = append(ids, id.String())
		}
		return ids, nil
	})
	if err != nil || len(ids) > 0 || sh.dir == "" {
		return ids, err
	}
	v := sh.view.Load()
	if v == nil {
		return nil, fmt.Errorf("find: %w", sh.errNoView())
	}
	return v.Find(ctx, text, limit)
}

// Stats is where everything is.
type Stats struct {
	Workflows []WorkflowStats `json:"workflows"`
	Waiting   int             `json:"timers"`           // waits and deadlines
	Running   int             `json:"running"`          // attempts
	Queued    int             `json:"queued"`           // steps that are due and wait for a free place, at most
	Oldest    *time.Time      `json:"oldest,omitempty"` // since when the first of them has been due
	Stuck     int64           `json:"stuck"`            // handlers that were given up and have not returned
	Missing   map[string]int  `json:"needs_handler"`    // steps that wait for a handler, by handler
	Behind    int             `json:"view_behind"`      // runs the view has yet to see
	Next      *time.Time      `json:"next,omitempty"`
	Troubles  []Trouble       `json:"troubles,omitempty"`
	Warnings  []Trouble       `json:"warnings,omitempty"` // see [Engine.Warnings]
	Silent    []int           `json:"silent,omitempty"`   // shards that did not answer: they are not counted
}

// Totals counts what happened since the log began.
type Totals struct {
	Started, Succeeded, Dead, Canceled uint64 // runs
	Attempts, Failures, Lost           uint64 // attempts
}

// WorkflowStats is where the runs of a workflow are.
type WorkflowStats struct {
	Name   string         `json:"name"`
	States map[string]int `json:"states"` // runs that are not finished, and dead ones
	Totals Totals         `json:"totals"` // since the log began
}

// finished are the states of runs that leave the memory.
var finished = map[machine.State]bool{machine.StateSucceeded: true, machine.StateCanceled: true, machine.StateReplaced: true}

// stats returns where everything of the shard is.
func (sh *shard) stats(ctx context.Context) (*Stats, error) {
	s, err := ask(ctx, sh, func(*turn) (s *Stats, err error) {
		s = new(Stats)
		names := slices.Sorted(maps.Keys(sh.m.Workflows()))
		for _, name := range names {
			w := sh.m.Workflows()[name]
			ws := WorkflowStats{Name: name, States: map[string]int{}, Totals: Totals(w.Totals)}
			for state, n := range w.Counts {
				if n > 0 && !finished[machine.State(state)] {
					ws.States[machine.State(state).String()] = n
				}
			}
			s.Workflows = append(s.Workflows, ws)
		}
		s.Waiting, s.Running, s.Missing = sh.m.Waiting(), len(sh.running), sh.m.ParkedHandlers()
		s.Behind = sh.viewer.behind(sh.m)
		for _, q := range sh.m.Busy() {
			s.Queued += q.Len()
			if at, ok := q.Oldest(); ok {
				s.Oldest = earlier(s.Oldest, pointer(at))
			}
		}
		for run, step := range sh.m.Suspects() {
			s.Queued++
			s.Oldest = earlier(s.Oldest, pointer(run.Steps[step].At))
		}
		if next := sh.m.Next(); next != 1<<63-1 {
			s.Next = pointer(next)
		}
		return s, nil
	})
	if err == nil {
		s.Stuck, s.Troubles, s.Warnings = sh.stuck.Load(), sh.troubles(), sh.warnings()
	}
	return s, err
}

// DiskUsage returns the bytes that the engine's folder takes, by file.
func (e *Engine) DiskUsage() (map[string]int64, error) {
	sizes := map[string]int64{}
	err := filepath.WalkDir(e.cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			name, _ := filepath.Rel(e.cfg.Dir, path)
			sizes[name] = info.Size()
		}
		return err
	})
	return sizes, err
}
