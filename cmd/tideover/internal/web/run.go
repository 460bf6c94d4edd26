package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// shownAttempts is how many attempts of a step the page shows, unless it shows all.
const shownAttempts = 25

// runBody is the content of the page of a run.
type runBody struct {
	*engine.Info
	By       string // who set the current wait
	Why      string // why it is dead, in words
	Steps    []step
	Graph    *stepGraph // drawing of the steps; nil if there is none
	Flow     *flow      // operations, if the workflow is code; nil if it has steps
	TagLinks []tagLink
	Chart    chart
	Offers   []offer
	Asks     []openQuestion
	AllURL   string // URL of the page with all attempts
	ReplayOf link   // the run that this one repeats
	First    link   // the first run of the chain of replays, if it is not ReplayOf
	Replaced link   // the run that replaced this one

	Continued link   // the run that continues this one
	Parent    link   // the run that has started this one as its child
	Waits     string // what the run waits for
	History   []historyEntry
	Earlier   int    // entries of the history that are not shown
	Workflows string // URL of the page of its workflow; "" if the workflow is no longer defined
}

type link struct{ ID, URL string }

// step is a step with its attempts.
type step struct {
	engine.StepInfo
	Number   int
	Brief    bool   // it has not begun, or succeeded at its first attempt: one line, whose details open on a click
	Made     int    // attempts that count for the policy, including one that runs or has succeeded
	Limit    string // largest number of attempts, by the policy
	Attempts []attempt
	Hidden   int // attempts that are not shown
}

// attempt is an attempt, and the wait after it.
type attempt struct {
	engine.AttemptInfo
	ID      string // of the HTML element
	Took    time.Duration
	Waiting bool           // the wait after it is the current one
	Why     string         // why no attempt follows, in words
	Output  *attemptOutput // nil if none is stored
}

// runPage shows one run.
type runPage struct{ *streams }

func (h runPage) serve(w http.ResponseWriter, r *http.Request) {
	p, err := h.load(r.Context(), r.PathValue("id"), r.URL.Query().Has("all"), time.Now())
	if errors.Is(err, engine.ErrNotFound) {
		if id, e := h.control.Runs.Find(r.Context(), r.PathValue("id")); e == nil && id != r.PathValue("id") {
			http.Redirect(w, r, runURL(id), http.StatusSeeOther)
			return
		}
	}
	if err != nil {
		h.fail(w, r, err)
		return
	}
	p.data.Flash = done(r.URL.Query())
	h.show(w, r, http.StatusOK, "run", p.data)
}

func (h runPage) live(w http.ResponseWriter, r *http.Request) {
	id, all := r.PathValue("id"), r.URL.Query().Has("all")
	h.stream(w, r, id, func(ctx context.Context, now time.Time) (part, error) { return h.load(ctx, id, all, now) })
}

func (h runPage) load(ctx context.Context, id string, all bool, now time.Time) (part, error) {
	i, err := h.get(ctx, id)
	if err != nil {
		return part{}, err
	}
	t, err := h.totals(ctx, false)
	if err != nil {
		return part{}, err
	}
	p := newRunPart(i, t.States["dead"], all, now)
	b, _ := p.data.Body.(runBody)
	viewer := httpserver.CallerOf(ctx)
	if b.Asks = openQuestions(i, viewer); viewer.ReadOnly {
		b.Offers = nil
	}
	if _, ok := h.control.Workflows.Get(i.Workflow); ok {
		b.Workflows = workflowURL(i.Workflow)
	}
	h.addOutputs(i, &b)
	p.data.Body = b
	return p, nil
}

// newRunPart returns the page of a run. dead is the number of dead letters, for the navigation. If
// all is true, the page shows all attempts.
func newRunPart(i *engine.Info, dead int, all bool, now time.Time) part {
	b := runBody{
		Info: i, By: waitSetter(setBy(i)), Why: inWords(i.Reason), Offers: offers(i), AllURL: runURL(i.ID) + "?all",
		ReplayOf: link{i.ReplayOf, runURL(i.ReplayOf)}, Replaced: link{i.ReplacedBy, runURL(i.ReplacedBy)},
		Continued: link{i.ContinuedBy, runURL(i.ContinuedBy)}, Parent: link{i.Parent, runURL(i.Parent)}, Waits: "Next attempt", TagLinks: tagLinks(i),
	}
	if i.Origin != i.ReplayOf {
		b.First = link{i.Origin, runURL(i.Origin)}
	}
	if function, ops, steps := control.Operations(i); function != nil {
		b.Chart = newChart(i, chartSteps(ops), now)
		b.Flow = newFlow(i, function, ops, steps, all)
		b.Waits, _ = control.NextWait(i)
		b.Graph = graphOfFile(steps, b.Flow)
		b.History = newHistory(i, function, ops)
	} else {
		b.Chart, b.Graph, b.History = newChart(i, i.Steps, now), graphOfRun(i), newHistory(i, nil, nil)
		for k := range i.Steps {
			b.Steps = append(b.Steps, newStep(&i.Steps[k], k, all))
		}
	}
	if n := len(b.History) - shownEntries; n > 0 && !all {
		b.Earlier, b.History = n, b.History[n:]
	}
	live := "/live/runs/" + url.PathEscape(i.ID)
	if all {
		live += "?all"
	}
	return part{
		template: "run", moving: !i.Finished(),
		data: page{Title: "Run " + head(i.ID), Place: "run", Live: live, Now: now, Dead: dead, Body: b},
	}
}

func newStep(s *engine.StepInfo, number int, all bool) step {
	v := step{StepInfo: *s, Number: number, Made: s.Spent}
	if s.Status == "running" || s.Status == "succeeded" {
		v.Made++ // Spent counts only failed attempts
	}
	v.Status = control.StateOf(s)
	v.Brief = v.Status == control.StepNotBegun || succeededAtOnce(s)
	if p, err := retry.Parse(s.Policy); err == nil {
		v.Limit = strconv.Itoa(p.Attempts)
		if p.Attempts == retry.Unlimited {
			v.Limit = "∞"
		}
	}
	list := s.Attempts
	if n := len(list) - shownAttempts; n > 1 && !all {
		v.Hidden, list = n, list[n:]
	}
	for n := range list {
		a := attempt{AttemptInfo: list[n], ID: "s" + strconv.Itoa(number) + "-a" + strconv.Itoa(list[n].Number), Why: inWords(list[n].Reason)}
		if a.Ended != nil {
			a.Took = a.Ended.Sub(a.Started)
		}
		a.Waiting = n == len(list)-1 && a.Wait != nil && s.Next != nil
		v.Attempts = append(v.Attempts, a)
	}
	return v
}

// succeededAtOnce reports whether a step or an operation has succeeded, and had no attempt before.
func succeededAtOnce(s *engine.StepInfo) bool {
	return s.Status == "succeeded" && len(s.Attempts) < 2 && s.Omitted == 0
}
