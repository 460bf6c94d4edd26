package pages

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

// KeptJobs is how many bulk actions the server remembers, so that their pages can be shown.
const KeptJobs = 100

// bulkJobs has the last bulk actions.
type bulkJobs struct {
	wait  time.Duration // how long the answer to a form waits for the end of a bulk action
	mu    sync.Mutex
	byID  map[string]*bulkJob
	order []string // ids, the oldest first
}

// bulkJob is a bulk action that has started.
type bulkJob struct {
	*control.BulkJob
	kind  *bulkAction
	total int    // runs that matched at the beginning; 0 if unknown
	back  string // URL of the list
}

func (b *bulkJobs) add(j *bulkJob) (id string) {
	id = strings.ToLower(rand.Text()[:16])
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID == nil {
		b.byID = map[string]*bulkJob{}
	}
	b.byID[id] = j
	if b.order = append(b.order, id); len(b.order) > KeptJobs {
		delete(b.byID, b.order[0])
		b.order = slices.Delete(b.order, 0, 1)
	}
	return id
}

func (b *bulkJobs) get(id string) *bulkJob {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byID[id]
}

// Progress returns the URL of the page that shows how far a change of many runs is. total is the number of runs, 0 if it
// is unknown, and back the URL of their list.
func (h *Site) Progress(job *control.BulkJob, action control.BulkAction, total int, back string) string {
	i := slices.IndexFunc(bulkKinds, func(a bulkAction) bool { return a.name == action })
	return "/progress/" + h.jobs.add(&bulkJob{BulkJob: job, kind: &bulkKinds[i], total: total, back: back})
}

// BulkWait sets how long the answer to a form waits for the end of a change of many runs, which is a second.
func (h *Site) BulkWait(d time.Duration) { h.jobs.wait = d }

// bulkTarget has the runs that a bulk action changes.
type bulkTarget struct {
	ids    []string       // nil means those that match the filter
	filter control.Filter // not used with ids
	total  int            // number of runs; 0 if unknown
	back   string         // URL of the list to return to
}

// change starts a bulk action. If it ends soon, the sentence did says how many runs were changed, and
// to is the URL back with the same numbers in its query. Otherwise to is the URL of its page.
func (h bulkActions) change(r *http.Request, a *bulkAction, t bulkTarget) (did, to string, err error) {
	// The action continues if the browser disconnects. It ends when the engine is closed.
	job := &bulkJob{
		BulkJob: h.control.Runs.StartBulk(context.WithoutCancel(r.Context()), a.name, t.ids, t.filter, ActorOf(r)),
		kind:    a, total: t.total, back: t.back,
	}
	wait := time.NewTimer(h.jobs.wait)
	defer wait.Stop()
	select {
	case <-job.Done():
	case <-wait.C:
		return "", "/progress/" + h.jobs.add(job), nil
	}
	n := job.Progress()
	if err := job.Err(); err != nil {
		return "", "", fmt.Errorf("%w; runs that were %s: %d", err, a.past, n.Done)
	}
	v := url.Values{"did": {string(a.name) + "-all"}, "n": {strconv.FormatInt(n.Done, 10)}, "left": {strconv.FormatInt(n.Refused, 10)}}
	sign := "?"
	if strings.Contains(t.back, sign) {
		sign = "&"
	}
	return done(v), t.back + sign + v.Encode(), nil
}

// progressPage shows how far a bulk action is.
type progressPage struct {
	*Data
	jobs *bulkJobs
}

// progressBody is the content of the page of a bulk action.
type progressBody struct {
	Title   string
	Text    string // how many of how many runs
	Over    bool
	Problem string // why it has not reached all runs
	Reached int64  // runs that were changed, refused or failed
	Total   int64  // 0 if unknown
	Back    string // URL of the list
}

func (h progressPage) load(ctx context.Context, id string, now time.Time) (Part, error) {
	job := h.jobs.get(id)
	if job == nil {
		return Part{}, control.NewError(control.CodeNotFound, "this action is not known any more: the server was restarted, or many actions followed", "")
	}
	over := false
	select {
	case <-job.Done():
		over = true
	default:
	}
	b := newProgressBody(job, over)
	if over && job.Err() != nil {
		b.Problem = h.Redact(job.Err().Error())
	}
	p := Part{
		Template: "progress", Polled: !over,
		Data: Page{Title: b.Title, Live: "/live/progress/" + id, Now: now, Dead: h.DeadCount(ctx), Body: b},
	}
	if !over {
		p.Data.Refresh = 2
	}
	return p, nil
}

func newProgressBody(job *bulkJob, over bool) progressBody {
	n := job.Progress()
	b := progressBody{
		Title: job.kind.verb + " runs" + job.kind.how, Over: over, Reached: n.Done + n.Refused + n.Failed, Total: int64(job.total), Back: job.back,
	}
	// Runs that have changed since they were counted may match, too.
	if b.Total > 0 {
		b.Total = max(b.Total, b.Reached)
	}
	switch {
	case over:
		b.Text = fmt.Sprintf("%d %s.", n.Done, job.kind.past)
	case b.Total > 0:
		b.Text = fmt.Sprintf("%d of %s.", b.Reached, textfmt.Plural(int(b.Total), "run"))
	default:
		b.Text = fmt.Sprintf("%s so far.", textfmt.Plural(int(b.Reached), "run"))
	}
	if n.Refused > 0 {
		b.Text += fmt.Sprintf(" %d skipped: their state did not allow it.", n.Refused)
	}
	return b
}

// chosenQuestion returns the confirmation question for an action on the runs that the user has chosen
// in a list.
func (h bulkActions) chosenQuestion(r *http.Request) (*Question, error) {
	v := r.URL.Query()
	ids, back := v["id"], chosenBack(v)
	if len(ids) == 0 {
		return &Question{Title: "No run was chosen", Text: "Tick the boxes of some runs first.", Back: back}, nil
	}
	e, err := chosenAction(v)
	if err != nil {
		return nil, err
	}
	var states []string
	if back == "/dead" {
		states = []string{"dead"}
	}
	verb, what := e.words(states)
	fields := []Fact{{"action", string(e.name)}, {"from", v.Get("from")}}
	for _, id := range ids {
		fields = append(fields, Fact{"id", id})
	}
	var only *engine.Info
	text := "The runs that you have chosen. " + what
	if len(ids) == 1 {
		text = what
		if only, err = h.Get(r.Context(), ids[0]); err != nil {
			return nil, err
		}
	}
	return &Question{
		Run:   only,
		Title: fmt.Sprintf("%s %s%s?", verb, textfmt.Plural(len(ids), "run"), e.how), Button: fmt.Sprintf("%s %d", verb, len(ids)), Danger: e.danger,
		Text: text, Action: "/bulk/chosen", Back: back, Fields: fields,
	}, nil
}

// actOnChosen applies an action to the runs that the user has chosen.
func (h bulkActions) actOnChosen(r *http.Request) (did, to string, err error) {
	e, err := chosenAction(r.PostForm)
	if err != nil {
		return "", "", err
	}
	ids := r.PostForm["id"]
	return h.change(r, e, bulkTarget{ids: ids, total: len(ids), back: chosenBack(r.PostForm)})
}

// chosenAction returns the action that the form names. It returns an error if no run is chosen.
func chosenAction(v url.Values) (*bulkAction, error) {
	i := slices.IndexFunc(bulkKinds, func(a bulkAction) bool { return string(a.name) == v.Get("action") })
	switch ids := v["id"]; {
	case i < 0:
		return nil, UnknownAction(v.Get("action"))
	case len(ids) == 0:
		return nil, control.NewError(control.CodeBadRequest, "no run is chosen: tick the boxes of some runs first", "")
	case len(ids) > control.MaxBulk || slices.Contains(ids, ""):
		return nil, control.NewError(control.CodeBadRequest, fmt.Sprintf("want 1 to %d runs", control.MaxBulk), "")
	}
	return &bulkKinds[i], nil
}

// chosenBack returns the URL of the list in which the runs were chosen.
func chosenBack(v url.Values) string {
	if v.Get("from") == "dead" {
		return "/dead"
	}
	return "/runs"
}
