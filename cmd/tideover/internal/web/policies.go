package web

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/plan"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/retry"
)

// shownRetries is how many retries of a policy its plot shows.
const shownRetries = 20

// policiesBody is the content of the page with the policies that are in use or have a name.
type policiesBody struct {
	Rows   []*policyRow
	Looked time.Time // when the waits were collected
}

// policyRow is a policy with the steps and providers that use it, and the waits that it led to.
type policyRow struct {
	Names []string // in the configuration, or of a preset; may be empty
	Text  string   // the policy in its text form
	Use   string   // the purpose of the preset; "" for other policies
	Plan  plan.Plan
	Uses  []named // steps and providers with the policy
	Plot  *plot   // nil if the policy never waits
	ID    string  // of the HTML element
}

// Title returns the names of the policy.
func (r *policyRow) Title() string { return strings.Join(r.Names, ", ") }

// policiesPage shows the policies, with the waits that they led to.
type policiesPage struct {
	server
	samples *waitSamples
}

func (h policiesPage) serve(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	used, at, err := h.samples.get(r.Context(), h.collect, now)
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	b := policiesBody{Rows: h.rows(), Looked: at}
	for _, row := range b.Rows {
		row.Plot = newPlot(&row.Plan, used[row.Text])
	}
	h.Show(w, r, http.StatusOK, "policies", pages.Page{Title: "Policies", Place: "policies", Now: now, Dead: h.DeadCount(r.Context()), Body: b})
}

// rows returns the policies of the configuration, of all steps and of all providers. Those with a
// name come first.
func (h policiesPage) rows() []*policyRow {
	all := map[string]*policyRow{}
	for name, p := range h.control.System.Settings().Policies {
		row := rowOf(all, p)
		row.Names = append(row.Names, name)
	}
	for _, flow := range h.control.Workflows.All() {
		for _, s := range flow.Steps() {
			if s.Policy != "" { // a sleep or another operation of a flow that is not retried
				addUse(all, s.Policy, useOf(flow.Name(), s.Name))
			}
		}
	}
	for _, st := range h.control.Providers.List() {
		addUse(all, st.Policy, named{"provider " + st.Name, providerPage(st.Name)})
	}
	presets(all)
	rows := make([]*policyRow, 0, len(all))
	for _, row := range all {
		slices.Sort(row.Names)
		slices.SortFunc(row.Uses, func(a, b named) int { return cmp.Compare(a.Name, b.Name) })
		row.ID = "p-" + pages.Hash(row.Text, 4)
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b *policyRow) int {
		return cmp.Or(cmp.Compare(min(len(b.Names), 1), min(len(a.Names), 1)), cmp.Compare(a.Title(), b.Title()), cmp.Compare(a.Text, b.Text))
	})
	return rows
}

// rowOf returns the row of a policy. It adds the row to all if it is missing.
func rowOf(all map[string]*policyRow, p retry.Policy) *policyRow {
	text := p.String()
	if row := all[text]; row != nil {
		return row
	}
	row := &policyRow{Text: text, Plan: plan.New(text, p, plan.Options{List: shownRetries})}
	all[text] = row
	return row
}

// addUse adds a step or a provider to the row of its policy. It ignores a policy that this version
// can't parse.
func addUse(all map[string]*policyRow, text string, by named) {
	p, err := retry.Parse(text)
	if err != nil {
		return
	}
	row := rowOf(all, p)
	row.Uses = append(row.Uses, by)
}

// useOf returns a link to the runs of a workflow, with the name of the step.
func useOf(workflow, step string) named {
	q := pages.Query{Workflow: workflow, Order: pages.Newest}
	name := workflow + " · " + step
	if control.Internal(workflow) {
		name = workflow
	}
	return named{name, q.URL("/runs")}
}

// presets adds the name and the purpose of a preset to each policy that is equal to a preset.
func presets(all map[string]*policyRow) {
	for name, use := range retry.Presets {
		p, _ := retry.Preset(name)
		if row := all[p.String()]; row != nil {
			row.Use = use
			if !slices.Contains(row.Names, name) {
				row.Names = append(row.Names, name)
			}
		}
	}
}

// used is a wait of a run, which its policy or another source has set.
type used struct {
	Retry int // number of the retry after the wait, from 1
	Delay time.Duration
	By    string // the source that has set the wait
	Title string
}

// waitsOf returns the waits of a step. The numbers of retries start again after the failure with which
// the step gave up: further attempts belong to a retry of the run.
func waitsOf(workflow string, s *engine.StepInfo) (list []used) {
	n := 0
	for i := range s.Attempts {
		a := &s.Attempts[i]
		if a.Outcome == "failed" {
			n++
		}
		if w := a.Wait; w != nil && a.Outcome != "lost" { // the policy does not set the wait after a lost attempt
			u := used{Retry: max(n, 1), Delay: w.Delay, By: w.By}
			u.Title = workflow + " · " + s.Name + ", wait of " + pages.Exact(w.Delay) + " set by " + pages.WaitSetter(w.By)
			list = append(list, u)
		}
		if a.Reason != "" {
			n = 0
		}
	}
	return list
}

// collect reads runs that were retried, and returns their waits by the text of the policy.
func (h policiesPage) collect(ctx context.Context) (map[string][]used, error) {
	out := map[string][]used{}
	flows := h.control.Workflows.All()
	for _, flow := range flows[:min(len(flows), sampledFlows)] {
		ids, err := h.retried(ctx, flow.Name())
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			i, err := h.control.Runs.Get(ctx, id)
			if err != nil {
				continue // probably deleted since it was listed
			}
			for k := range i.Steps {
				s := &i.Steps[k]
				if p, err := retry.Parse(s.Policy); err == nil {
					text := p.String()
					out[text] = append(out[text], waitsOf(i.Workflow, s)...)
				}
			}
		}
	}
	return out, nil
}

// retried returns the ids of some runs of a workflow that were retried or wait. It looks at a limited
// number of runs: some that wait or are dead, and the newest that run or have succeeded.
func (h policiesPage) retried(ctx context.Context, workflow string) (ids []string, err error) {
	steps := 1 // number of attempts of a run without failures
	if flow, ok := h.control.Workflows.Get(workflow); ok {
		steps = len(flow.Steps())
	}
	for _, f := range []control.Filter{
		{Workflow: workflow, States: []string{"waiting", "dead"}, Limit: sampledRuns / 2},
		{Workflow: workflow, States: []string{"succeeded", "running"}, Limit: sampledNewest},
	} {
		soon, cancel := h.Soon(ctx)
		list, err := h.control.Runs.List(soon, f)
		cancel()
		if err != nil {
			return nil, err
		}
		for i := range list.Runs {
			if len(ids) < sampledRuns && list.Runs[i].Attempts > steps || list.Runs[i].State == "waiting" {
				ids = append(ids, list.Runs[i].ID)
			}
		}
	}
	return ids, nil
}

// Limits for collecting the waits that policies led to.
const (
	sampledFlows  = 40              // workflows
	sampledRuns   = 12              // runs of a workflow that are read in full
	sampledNewest = 100             // runs of a workflow that are listed
	sampleTime    = 5 * time.Second // how long the waits are cached
)

// waitSamples caches the waits that policies led to.
type waitSamples struct {
	mu    sync.Mutex
	at    time.Time
	waits map[string][]used // by the text of the policy
}

// get returns waits by policy, and when they were collected.
func (s *waitSamples) get(ctx context.Context, collect func(context.Context) (map[string][]used, error), now time.Time) (map[string][]used, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.at) < sampleTime {
		return s.waits, s.at, nil
	}
	waits, err := collect(ctx)
	if err != nil {
		return nil, now, err
	}
	s.waits, s.at = waits, now
	return waits, now, nil
}
