package pages

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/retry"
)

// shownAttempts is how many attempts of a step the page shows, unless it shows all.
const shownAttempts = 25

// runBody is the content of the page of a run.
type runBody struct {
	*engine.Info
	By       string // who set the current wait
	Why      string // why it is dead, in words
	Steps    []Step
	Graph    *stepGraph // drawing of the steps; nil if there is none
	Flow     *flow      // operations, if the workflow is code; nil if it has steps
	TagLinks []tagLink
	Chart    *Chart
	Offers   []Offer
	Asks     []openQuestion
	AllURL   string // URL of the page with all attempts
	ReplayOf Link   // the run that this one repeats
	First    Link   // the first run of the chain of replays, if it is not ReplayOf
	Replaced Link   // the run that replaced this one

	Continued Link   // the run that continues this one
	Parent    Link   // the run that has started this one as its child
	Waits     string // what the run waits for
	History   []historyEntry
	Earlier   int    // entries of the history that are not shown
	Workflows string // URL of the page of its workflow; "" if the workflow is no longer defined
}

// Link is a link to a run.
type Link struct{ ID, URL string }

// Step is a step with its attempts.
type Step struct {
	engine.StepInfo
	Number   int
	Brief    bool   // it has not begun, or succeeded at its first attempt: one line, whose details open on a click
	Made     int    // attempts that count for the policy, including one that runs or has succeeded
	Limit    string // largest number of attempts, by the policy
	Attempts []Attempt
	Hidden   int // attempts that are not shown
}

// Attempt is an attempt, and the wait after it.
type Attempt struct {
	engine.AttemptInfo
	ID      string // of the HTML element
	Took    time.Duration
	Idle    time.Duration // from its end to the begin of the next attempt; 0 without a wait or a next attempt
	Waiting bool          // the wait after it is the current one
	Why     string        // why no attempt follows, in words
	Output  *Output       // nil if none is stored
}

// Output is the output of an attempt on the page of a run.
type Output struct {
	ID    string // of the HTML element
	URL   string // of the page with the whole output
	Does  string // the request or the command
	Label string // what there is, in words
	End   string // its last lines
	Lost  string // why it is not stored; "" if it is
}

// FindOutput returns the output of an attempt of a step or operation; nil if there is none.
type FindOutput func(s *engine.StepInfo, a *engine.AttemptInfo) *Output

// runPage shows one run.
type runPage struct{ *Streams }

func (h runPage) serve(w http.ResponseWriter, r *http.Request) {
	p, err := h.load(r.Context(), r.PathValue("id"), r.URL.Query().Has("all"), time.Now())
	if errors.Is(err, engine.ErrNotFound) {
		if id, e := h.control.Runs.Find(r.Context(), r.PathValue("id")); e == nil && id != r.PathValue("id") {
			h.Redirect(w, r, RunURL(id))
			return
		}
	}
	if err != nil {
		h.Fail(w, r, err)
		return
	}
	p.Data.Flash = done(r.URL.Query())
	h.Show(w, r, http.StatusOK, "run", p.Data)
}

func (h runPage) live(w http.ResponseWriter, r *http.Request) {
	id, all := r.PathValue("id"), r.URL.Query().Has("all")
	h.Stream(w, r, id, func(ctx context.Context, now time.Time) (Part, error) { return h.load(ctx, id, all, now) })
}

func (h runPage) load(ctx context.Context, id string, all bool, now time.Time) (Part, error) {
	i, err := h.Get(ctx, id)
	if err != nil {
		return Part{}, err
	}
	t, err := h.Totals(ctx, false)
	if err != nil {
		return Part{}, err
	}
	p := newRunPart(i, t.States["dead"], all, now)
	b, _ := p.Data.Body.(runBody)
	viewer := CallerOf(ctx)
	if b.Asks = openQuestions(i, viewer); viewer.ReadOnly {
		b.Offers = nil
	}
	if _, ok := h.control.Workflows.Get(i.Workflow); ok {
		b.Workflows = WorkflowURL(i.Workflow)
	}
	h.addOutputs(i, &b)
	p.Data.Body = b
	return p, nil
}

// newRunPart returns the page of a run. dead is the number of dead letters, for the navigation. If
// all is true, the page shows all attempts.
func newRunPart(i *engine.Info, dead int, all bool, now time.Time) Part {
	b := runBody{
		Info: i, By: WaitSetter(setBy(i)), Why: whyDead(i), Offers: offers(i), AllURL: RunURL(i.ID) + "?all",
		ReplayOf: Link{i.ReplayOf, RunURL(i.ReplayOf)}, Replaced: Link{i.ReplacedBy, RunURL(i.ReplacedBy)},
		Continued: Link{i.ContinuedBy, RunURL(i.ContinuedBy)}, Parent: Link{i.Parent, RunURL(i.Parent)}, Waits: "Next attempt", TagLinks: tagLinks(i),
	}
	if i.Origin != i.ReplayOf {
		b.First = Link{i.Origin, RunURL(i.Origin)}
	}
	if function, ops, steps := control.Operations(i); function != nil {
		b.Chart = NewChart(i, chartSteps(ops), now)
		b.Flow = newFlow(i, function, ops, steps, all)
		b.Waits, _ = control.NextWait(i)
		b.Graph = graphOfFile(steps, b.Flow)
		b.History = newHistory(i, function, ops)
	} else {
		b.Chart, b.Graph, b.History = NewChart(i, i.Steps, now), graphOfRun(i), newHistory(i, nil, nil)
		for k := range i.Steps {
			b.Steps = append(b.Steps, NewStep(&i.Steps[k], k, all))
		}
	}
	if n := len(b.History) - shownEntries; n > 0 && !all {
		b.Earlier, b.History = n, b.History[n:]
	}
	live := "/live/runs/" + url.PathEscape(i.ID)
	if all {
		live += "?all"
	}
	return Part{
		Template: "run", Moving: !i.Finished(),
		Data: Page{Title: "Run " + head(i.ID), Place: MenuRuns.Name, Live: live, Now: now, Dead: dead, Body: b},
	}
}

// NewStep returns a step of a run. If all is true, it has all attempts, otherwise the last ones.
func NewStep(s *engine.StepInfo, number int, all bool) Step {
	v := Step{StepInfo: *s, Number: number, Made: s.Spent}
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
		a := Attempt{AttemptInfo: list[n], ID: "s" + strconv.Itoa(number) + "-a" + strconv.Itoa(list[n].Number), Why: whyStopped(list[n].Reason, allowsOne(s))}
		if a.Ended != nil {
			a.Took = a.Ended.Sub(a.Started)
		}
		if a.Wait != nil && a.Ended != nil && n+1 < len(list) {
			a.Idle = list[n+1].Started.Sub(*a.Ended)
		}
		a.Waiting = n == len(list)-1 && a.Wait != nil && s.Next != nil
		v.Attempts = append(v.Attempts, a)
	}
	return v
}

// whyStopped returns a sentence for the reason why no attempt followed. one says that there may be only one.
func whyStopped(reason string, one bool) string {
	if one && reason == retry.StopAttempts.String() {
		return "the policy allows one attempt"
	}
	return InWords(reason)
}

// allowsOne reports whether a step whose attempts are used up could have only one. Operations have no policy.
func allowsOne(s *engine.StepInfo) bool {
	p, err := retry.Parse(s.Policy)
	return err == nil && p.Attempts == 1 || len(s.Attempts)+s.Omitted == 1
}

// whyDead returns a sentence for the reason why a run gave up, which is that of a step.
func whyDead(i *engine.Info) string {
	for k := range i.Steps {
		s := &i.Steps[k]
		if n := len(s.Attempts); s.Kind != "function" && n > 0 && s.Attempts[n-1].Reason == i.Reason {
			return whyStopped(i.Reason, allowsOne(s))
		}
	}
	return InWords(i.Reason)
}

// addOutputs adds the outputs to the attempts of the steps and operations.
func (h runPage) addOutputs(i *engine.Info, b *runBody) {
	if h.outputs == nil || len(b.Steps) == 0 && b.Flow == nil { // do not read outputs that no step shows
		return
	}
	find := h.outputs(i)
	add := func(s *engine.StepInfo, a *Attempt) {
		if a.Output = find(s, &a.AttemptInfo); a.Output != nil {
			a.Output.ID = a.ID + "-output"
		}
	}
	for s := range b.Steps {
		for k := range b.Steps[s].Attempts {
			add(&b.Steps[s].StepInfo, &b.Steps[s].Attempts[k])
		}
	}
	if b.Flow == nil {
		return
	}
	for r := range b.Flow.Ops {
		row := &b.Flow.Ops[r]
		for k := range row.Tries {
			add(&row.StepInfo, &row.Tries[k])
		}
		if n := len(row.StepInfo.Attempts); n > 0 && len(row.Tries) == 0 {
			only := Attempt{AttemptInfo: row.StepInfo.Attempts[n-1], ID: row.ID}
			add(&row.StepInfo, &only)
			row.Single = only.Output
		}
	}
}

// succeededAtOnce reports whether a step or an operation has succeeded, and had no attempt before.
func succeededAtOnce(s *engine.StepInfo) bool {
	return s.Status == "succeeded" && len(s.Attempts) < 2 && s.Omitted == 0
}
