package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

const (
	sampledEnded  = 100 // ended runs from which the figures of a workflow are computed
	shownLastRuns = 10  // runs on the page of a workflow
)

// workflowsPage shows the workflows.
type workflowsPage struct {
	*Data
	trends FindTrends // may be nil
	ended  *endedCache
}

// workflowsBody is the content of the page with the list of workflows.
type workflowsBody struct {
	Rows    []workflowRow
	Missing string // why schedules or pauses are missing
	Silent  string // which shards did not answer
}

// workflowRow is a workflow in the list.
type workflowRow struct {
	Name   string
	URL    string
	Start  string // URL of the form that starts a run; "" if the user can't start one
	Steps  int    // 0 if the workflow is code
	Active int    // runs that have not ended
	Dead   int    // runs
	Last   *Row   // the newest run; nil if there is none
	Next   *time.Time
	Ended  endedRuns

	Paused         *engine.PausedWorkflow // nil if the workflow is not paused
	SchedulePaused bool                   // a schedule of the workflow is paused
	Offers         []Offer
}

// workflowTexts has the sentence that is shown after each action on a workflow.
var workflowTexts = map[string]string{
	"pause": "Paused. No attempt of its runs begins until it is resumed.", "resume": "Resumed.",
}

// WorkflowURL returns the URL of the page of a workflow.
func WorkflowURL(name string) string { return "/workflows/" + url.PathEscape(name) }

// startURL returns the URL of the form that starts a run; "" if the user can't start one.
func startURL(ctx context.Context, workflow string) string {
	if CallerOf(ctx).ReadOnly || control.Startable(workflow) != nil {
		return ""
	}
	return ActionURL(WorkflowURL(workflow), "start")
}

// endedRuns has figures of the last runs of a workflow that have succeeded or died.
type endedRuns struct {
	Runs      int // number of them; all figures are 0 if it is 0
	Succeeded int
	Took      percentiles // from creation to end
}

// Rate returns the share of runs that have succeeded, such as "97.5 %".
func (e endedRuns) Rate() string {
	if e.Runs == 0 {
		return "–"
	}
	return strings.Replace(fmt.Sprintf("%.1f %%", 100*float64(e.Succeeded)/float64(e.Runs)), ".0 ", " ", 1)
}

// percentiles of a list of durations.
type percentiles struct {
	N        int // number of durations
	P50, P95 time.Duration
}

// newPercentiles returns the percentiles of the list, by the nearest rank.
func newPercentiles(list []time.Duration) percentiles {
	if len(list) == 0 {
		return percentiles{}
	}
	slices.Sort(list)
	at := func(percent int) time.Duration { return list[max((len(list)*percent+99)/100, 1)-1] }
	return percentiles{N: len(list), P50: at(50), P95: at(95)}
}

// endedCache has the figures of workflows, which change only when a run ends.
type endedCache struct {
	mu    sync.Mutex
	known map[string]cachedEnded
}

type cachedEnded struct {
	totals engine.Totals // of the workflow when the figures were computed
	ended  endedRuns
}

// endedRuns returns the figures of a workflow. It reads the runs again only if the totals have changed.
func (h workflowsPage) endedRuns(ctx context.Context, workflow string, totals engine.Totals) (endedRuns, error) {
	h.ended.mu.Lock()
	c, ok := h.ended.known[workflow]
	h.ended.mu.Unlock()
	if ok && c.totals == totals {
		return c.ended, nil
	}
	list, err := h.endedList(ctx, workflow)
	if err != nil {
		return endedRuns{}, err
	}
	ended, complete := newEndedRuns(list.Runs), list.Behind == 0 && len(list.Silent) == 0
	h.ended.mu.Lock()
	defer h.ended.mu.Unlock()
	if complete {
		if h.ended.known == nil || len(h.ended.known) > 1000 {
			h.ended.known = map[string]cachedEnded{}
		}
		h.ended.known[workflow] = cachedEnded{totals, ended}
	}
	return ended, nil
}

// endedList returns the last runs of a workflow that have succeeded or died.
func (h workflowsPage) endedList(ctx context.Context, workflow string) (engine.Page, error) {
	ctx, cancel := h.Soon(ctx)
	defer cancel()
	return h.control.Runs.List(ctx, control.Filter{Workflow: workflow, States: []string{"succeeded", "dead", "replaced"}, Limit: sampledEnded})
}

func newEndedRuns(runs []engine.Info) (e endedRuns) {
	var took []time.Duration
	for i := range runs {
		e.Runs++
		if runs[i].State == "succeeded" {
			e.Succeeded++
		}
		if end := runs[i].Ended; end != nil {
			took = append(took, end.Sub(runs[i].Created))
		}
	}
	e.Took = newPercentiles(took)
	return e
}

func (h workflowsPage) loadList(ctx context.Context, now time.Time) (Part, error) {
	t, err := h.Totals(ctx, false)
	if err != nil {
		return Part{}, err
	}
	b := workflowsBody{Silent: SilentText(t.Stats.Silent, nil)}
	schedules, missing := h.schedules(ctx)
	b.Missing = missing
	list := h.control.Workflows.Describe(false, schedules, t.pauses())
	for i := range list {
		w := &list[i]
		r := workflowRow{Name: w.Name, URL: WorkflowURL(w.Name), Start: startURL(ctx, w.Name), Next: w.Next, Steps: len(w.Steps)}
		if h.isCode(w.Name) {
			r.Steps = 0
		}
		h.addPause(ctx, &r, w)
		r.SchedulePaused = slices.ContainsFunc(schedules, func(s engine.Schedule) bool { return s.Workflow == w.Name && s.Paused != nil })
		if err := h.addRuns(ctx, &r, &t); err != nil {
			return Part{}, err
		}
		b.Rows = append(b.Rows, r)
	}
	return Part{
		Template: "workflows", Behind: t.Stats.Behind > 0,
		Data: Page{Title: "Workflows", Place: "workflows", Live: "/live/workflows", Now: now, Dead: t.States["dead"], Body: b},
	}, nil
}

// schedules returns all schedules. missing says why they are unknown.
func (h workflowsPage) schedules(ctx context.Context) (list []engine.Schedule, missing string) {
	ctx, cancel := h.Soon(ctx)
	defer cancel()
	list, err := h.control.Schedules.List(ctx)
	if err != nil {
		return nil, h.Redact(err.Error())
	}
	return list, ""
}

// addPause adds the pause of a workflow, and the button that ends it or begins one.
func (h workflowsPage) addPause(ctx context.Context, r *workflowRow, w *control.Workflow) {
	r.Paused = ChangedCopy(w.Paused, func(p *engine.PausedWorkflow) { p.By = h.Redact(p.By) })
	if CallerOf(ctx).ReadOnly || control.Pausable(w.Name) != nil {
		return
	}
	if w.Paused == nil || w.Paused.Partly {
		r.Offers = append(r.Offers, Offer{Name: "pause", Label: "Pause", URL: ActionURL(r.URL, "pause")})
	}
	if w.Paused != nil {
		r.Offers = append(r.Offers, Offer{Name: "resume", Label: "Resume", URL: ActionURL(r.URL, "resume")})
	}
}

// question returns the confirmation question for an action on a workflow.
func (h workflowsPage) question(r *http.Request) (*Question, error) {
	action, name := r.PathValue("action"), r.PathValue("workflow")
	if _, known := h.control.Workflows.Get(name); !known {
		return nil, unknownWorkflow(name)
	}
	q := &Question{Action: ActionURL(WorkflowURL(name), action), Back: WorkflowURL(name)}
	switch action {
	case "pause":
		q.Title, q.Button = "Pause workflow "+name+"?", "Pause"
		q.Text = "No attempt of its runs begins until it is resumed, also after a restart. Attempts that are running end as usual, and new runs are queued."
	case "resume":
		q.Title, q.Button = "Resume workflow "+name+"?", "Resume"
		q.Text = "Attempts that have become due begin in the order of their times, as many at once as the limits allow."
	default:
		return nil, UnknownAction(action)
	}
	return q, nil
}

// act applies an action to a workflow.
func (h workflowsPage) act(r *http.Request) (did, to string, err error) {
	ctx, name, by, action := r.Context(), r.PathValue("workflow"), ActorOf(r), r.PathValue("action")
	switch action {
	case "pause":
		_, err = h.control.Workflows.Pause(ctx, name, by)
	case "resume":
		_, err = h.control.Workflows.Resume(ctx, name, by)
	default:
		err = UnknownAction(action)
	}
	h.feed.touchAll()
	return workflowTexts[action], WorkflowURL(name) + "?did=" + url.QueryEscape(action), err
}

func unknownWorkflow(name string) error {
	return control.NewError(control.CodeNotFound, fmt.Sprintf("unknown workflow %q", control.Excerpt(name)), "")
}

// isCode reports whether the workflow is code.
func (h workflowsPage) isCode(workflow string) bool {
	w, ok := h.control.Workflows.Get(workflow)
	return ok && w.IsFlow()
}

// addRuns adds the numbers of runs, the newest run and the figures of the ended runs.
func (h workflowsPage) addRuns(ctx context.Context, r *workflowRow, t *Totals) (err error) {
	i := slices.IndexFunc(t.Stats.Workflows, func(w engine.WorkflowStats) bool { return w.Name == r.Name })
	if i < 0 {
		return nil // it has had no run
	}
	w := t.Stats.Workflows[i]
	for state, n := range w.States {
		if state == "dead" {
			r.Dead += n
		} else {
			r.Active += n
		}
	}
	rows, _, err := h.List(ctx, control.Filter{Workflow: r.Name, Limit: 1})
	if err != nil {
		return err
	}
	if len(rows) > 0 {
		r.Last = &rows[0]
	}
	r.Ended, err = h.endedRuns(ctx, r.Name, w.Totals)
	return err
}

// workflowBody is the content of the page of a workflow.
type workflowBody struct {
	workflowRow
	Timeout   time.Duration
	Code      bool
	Graph     *stepGraph // nil if there is none
	Defs      []stepDef
	Schedules []scheduleRow
	Trends    any // for the template "trends"; nil if there are no charts
	Runs      rows
	RunsURL   string
	Missing   string // why schedules or pauses are missing
	Silent    string // which shards did not answer
}

// stepDef is the definition of a step.
type stepDef struct {
	control.Step
	ID string // of the HTML element
}

// load returns the loader of the page of the workflow that a request names.
func (h workflowsPage) load(r *http.Request) Loader {
	return func(ctx context.Context, now time.Time) (Part, error) {
		p, err := h.loadOne(ctx, r.PathValue("workflow"), now)
		if err != nil || h.trends == nil {
			return p, err
		}
		b, _ := p.Data.Body.(workflowBody)
		var query string
		b.Trends, query, err = h.trends(r, b.Name)
		p.Data.Body, p.Data.Live = b, p.Data.Live+query
		return p, err
	}
}

func (h workflowsPage) loadOne(ctx context.Context, name string, now time.Time) (Part, error) {
	t, err := h.Totals(ctx, control.Internal(name))
	if err != nil {
		return Part{}, err
	}
	schedules, missing := h.schedules(ctx)
	list := h.control.Workflows.Describe(true, schedules, t.pauses())
	i := slices.IndexFunc(list, func(w control.Workflow) bool { return w.Name == name })
	if i < 0 {
		return Part{}, unknownWorkflow(name)
	}
	w := &list[i]
	q := Query{Workflow: name, Order: Newest}
	b := workflowBody{
		workflowRow: workflowRow{Name: name, URL: WorkflowURL(name), Start: startURL(ctx, name), Next: w.Next, Steps: len(w.Steps)},
		Timeout:     w.Timeout, Code: h.isCode(name), RunsURL: q.URL("/runs"), Missing: missing, Silent: SilentText(t.Stats.Silent, nil),
	}
	h.addPause(ctx, &b.workflowRow, w)
	if err := h.addRuns(ctx, &b.workflowRow, &t); err != nil {
		return Part{}, err
	}
	if !b.Code {
		b.Graph = graphOfDefinition(w.Steps)
		for n, s := range w.Steps {
			b.Defs = append(b.Defs, stepDef{s, fmt.Sprintf("def-%d", n)})
		}
	}
	f := q.Filter()
	f.Limit = shownLastRuns
	if b.Runs, _, err = h.List(ctx, f); err != nil {
		return Part{}, err
	}
	schedules = slices.DeleteFunc(schedules, func(s engine.Schedule) bool { return s.Workflow != name })
	if b.Schedules, err = (schedulesPage{h.Data}).rows(ctx, schedules); err != nil {
		return Part{}, err
	}
	return Part{
		Template: "workflow", Behind: t.Stats.Behind > 0, Moving: true,
		Data: Page{Title: "Workflow " + name, Place: "workflows", Live: "/live" + WorkflowURL(name), Now: now, Dead: t.States["dead"], Body: b},
	}, nil
}

// byNext compares two schedules by their next start. Schedules that are paused are last.
func byNext(a, b scheduleRow) int {
	if (a.Paused == nil) != (b.Paused == nil) {
		if a.Paused == nil {
			return -1
		}
		return 1
	}
	return cmp.Or(a.Next.Compare(b.Next), cmp.Compare(a.Name, b.Name))
}
