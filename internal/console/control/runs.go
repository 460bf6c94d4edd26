package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/textfmt"
)

// Engine has the operations on an engine, grouped by what they operate on.
type Engine struct {
	Runs      *Runs
	Workflows *Definitions
	Schedules *Schedules
}

// New returns the operations on an engine.
func New(e *engine.Engine) *Engine {
	workflows := &Definitions{e}
	runs := &Runs{e, workflows}
	return &Engine{runs, workflows, &Schedules{e, runs}}
}

// Runs has the operations on runs.
type Runs struct {
	engine    *engine.Engine
	workflows *Definitions // checks their names
}

// Stats returns the counters of the engine.
func (r *Runs) Stats(ctx context.Context) (engine.Stats, error) { return r.engine.Stats(ctx) }

// Find returns the id of the run that text names. The text may be the id, the beginning of the id,
// or the key of the run. If several runs match, the error has the code [CodeAmbiguous].
func (r *Runs) Find(ctx context.Context, text string) (string, error) {
	ids, err := r.engine.Find(ctx, text, 11)
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", unknownRun(ctx, r.engine, text)
	case len(ids) > 1:
		e := NewError(CodeAmbiguous, fmt.Sprintf("%q matches several runs", Excerpt(text)), "use more of the id")
		e.Candidates = ids[:min(len(ids), 10)]
		return "", e
	}
	return ids[0], nil
}

// unknownRun returns the error for a text that names no run. Its hint is the key of a recent run that
// is similar, or that the text is the name of a workflow.
func unknownRun(ctx context.Context, from *engine.Engine, text string) error {
	e := NewError(CodeNotFound, fmt.Sprintf("%v: %s", engine.ErrNotFound, Excerpt(text)), "")
	e.Err = engine.ErrNotFound
	if _, ok := from.Workflow(text); ok {
		return e.WithHint(fmt.Sprintf("%q is a workflow: name one of its runs", Excerpt(text)))
	}
	page, err := from.List(ctx, engine.Filter{Limit: 100})
	if err != nil {
		return e // a hint is not worth another error
	}
	var keys []string
	for i := range page.Runs {
		if key := page.Runs[i].Key; key != "" {
			keys = append(keys, key)
		}
	}
	if near := textfmt.Nearest(text, keys); near != "" {
		return e.WithHint(fmt.Sprintf("did you mean %q?", near))
	}
	return e
}

// Get returns the run with the id.
func (r *Runs) Get(ctx context.Context, id string) (*engine.Info, error) {
	return r.engine.Get(ctx, id)
}

// Lookup returns the run that text names, as in [Runs.Find].
func (r *Runs) Lookup(ctx context.Context, text string) (*engine.Info, error) {
	id, err := r.Find(ctx, text)
	if err != nil {
		return nil, err
	}
	return r.engine.Get(ctx, id)
}

// History returns the history of the run that text names, as in [Runs.Find]: see
// [engine.Engine.History].
func (r *Runs) History(ctx context.Context, text string) (json.RawMessage, error) {
	id, err := r.Find(ctx, text)
	if err != nil {
		return nil, err
	}
	return r.engine.History(ctx, id)
}

// Wait waits until a run has ended, and returns the run.
func (r *Runs) Wait(ctx context.Context, id string) (*engine.Info, error) {
	return r.engine.Wait(ctx, id)
}

// Events yields the events whose number is greater than after, first those that the engine has
// kept, until the context ends. With each event it yields how many events before it were missed.
func (r *Runs) Events(ctx context.Context, after uint64) iter.Seq2[engine.Event, uint64] {
	return r.engine.Events(ctx, after)
}

// LastEvent returns the number of the last event that the engine has kept; 0 if there is none. The
// first call makes the engine keep its latest events.
func (r *Runs) LastEvent() (seq uint64) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for e := range r.engine.Events(over, 0) {
		seq = e.Seq
	}
	return seq
}

// options converts the request to options of the engine. by names the user who starts the run.
func (s *Start) options(by string) []engine.StartOption {
	opts := []engine.StartOption{engine.Source(by)}
	if s.Key != "" {
		opts = append(opts, engine.Key(s.Key))
	}
	if s.Timeout != 0 {
		opts = append(opts, engine.RunTimeout(time.Duration(s.Timeout)))
	}
	if !s.At.IsZero() {
		opts = append(opts, engine.At(s.At))
	}
	if s.In != 0 {
		opts = append(opts, engine.In(time.Duration(s.In)))
	}
	return opts
}

// Start starts a run. by names the user who starts it, in the history of the run.
func (r *Runs) Start(ctx context.Context, s Start, by string) (Started, error) {
	if s.Workflow == "" {
		return Started{}, Invalid("workflow", "is missing")
	}
	if err := CheckKey(s.Key); err != nil {
		return Started{}, Invalid("key", "%v", err)
	}
	if err := Startable(s.Workflow); err != nil {
		return Started{}, err
	}
	flow, ok := r.engine.Workflow(s.Workflow)
	if !ok {
		e := Invalid("workflow", "unknown workflow %q", Excerpt(s.Workflow))
		return Started{}, e.WithHint(suggestWorkflow(s.Workflow, r.engine.Workflows()))
	}
	run, err := r.engine.StartRegistered(ctx, flow, s.Input, s.options(by)...)
	return Started{run.ID, run.Existing, run.InputDiffers}, err
}

// suggestWorkflow returns a hint for an unknown workflow: the names that exist.
func suggestWorkflow(name string, list []*engine.Workflow) string {
	var names []string
	for _, w := range list {
		if !Internal(w.Name()) {
			names = append(names, w.Name())
		}
	}
	slices.Sort(names)
	return textfmt.SuggestName("workflow", name, names)
}

// Validate returns an error for an unknown state or order, or a negative number of attempts.
func (f *Filter) Validate() error {
	for _, s := range f.States {
		if !slices.Contains(stateNames, s) {
			return Invalid("state", "unknown state %q", Excerpt(s)).WithHint(textfmt.SuggestName("state", s, stateNames))
		}
	}
	for _, tag := range f.Tags {
		if name, value, ok := strings.Cut(tag, "="); !ok || name == "" || value == "" {
			return Invalid("tag", "%q is not a tag such as name=value", Excerpt(tag))
		}
	}
	if f.MinAttempts < 0 {
		return Invalid("min_attempts", "%d is negative", f.MinAttempts)
	}
	if !slices.Contains([]string{"", "newest", "oldest", "next"}, f.Order) {
		return Invalid("order", "%q is not newest, oldest or next", Excerpt(f.Order))
	}
	return nil
}

// exclude returns patterns for the workflows that the filter leaves out: the [Internal] ones, unless
// the filter includes them or names a workflow.
func (f *Filter) exclude() []string {
	if f.Internal || f.Workflow != "" {
		return nil
	}
	return InternalNames()
}

// engine converts the filter to an [engine.Filter].
func (f *Filter) engine() engine.Filter {
	return engine.Filter{
		States: f.States, Workflow: f.Workflow, Exclude: f.exclude(), Search: f.Search, ErrorLike: f.Error, Since: f.Since, Until: f.Until,
		MinAttempts: f.MinAttempts, Tags: f.Tags, Asking: f.Asking, Order: f.Order, After: f.After, Limit: f.Limit, Fresh: f.Fresh,
	}
}

// List returns one page of the runs that match a filter. If the cursor f.After belongs to another
// list, the error names the field "after".
func (r *Runs) List(ctx context.Context, f Filter) (engine.Page, error) {
	page, err := r.engine.List(ctx, f.engine())
	if err != nil && f.After != "" && !errors.Is(err, engine.ErrClosed) {
		// If the same list works from its beginning, the cursor is wrong.
		first := f
		first.After, first.Limit = "", 1
		if _, err := r.engine.List(ctx, first.engine()); err == nil {
			return page, Invalid("after", "%q is not the cursor of a page of this list", Excerpt(f.After))
		}
	}
	return page, err
}

// ListOf is like [Runs.List], but returns an error if the list is empty because the filter names an
// unknown workflow.
func (r *Runs) ListOf(ctx context.Context, f Filter) (engine.Page, error) {
	page, err := r.List(ctx, f)
	if err == nil && len(page.Runs) == 0 && f.After == "" {
		err = r.workflows.Check(ctx, f.Workflow)
	}
	page.Runs = NotNil(page.Runs)
	return page, err
}

// Cancel ends a run and its attempts. A run with operations that can be undone undoes them first.
func (r *Runs) Cancel(ctx context.Context, id, by string) error {
	return explain(ctx, r.engine, id, r.engine.Cancel(ctx, id, by))
}

// Abandon ends a run without undoing its operations.
func (r *Runs) Abandon(ctx context.Context, id, by string) error {
	return explain(ctx, r.engine, id, r.engine.Abandon(ctx, id, by))
}

// Undo undoes the operations of a dead run.
func (r *Runs) Undo(ctx context.Context, id, by string) error {
	return explain(ctx, r.engine, id, r.engine.Undo(ctx, id, by))
}

// Retry gives the failed steps of a dead run new attempts.
func (r *Runs) Retry(ctx context.Context, id, by string) error {
	return explain(ctx, r.engine, id, r.engine.Retry(ctx, id, by))
}

// Wake ends the waits of a run, so that its next attempts start now.
func (r *Runs) Wake(ctx context.Context, id, by string) error {
	return explain(ctx, r.engine, id, r.engine.Wake(ctx, id, by))
}

// explain returns a clearer error if the engine refused an operation because the run was replaced
// or canceled. It returns all other errors, and nil, unchanged.
func explain(ctx context.Context, from *engine.Engine, id string, err error) error {
	if !errors.Is(err, engine.ErrState) {
		return err
	}
	info, e := from.Get(ctx, id)
	switch {
	case e != nil:
		return err
	case info.State == "replaced":
		return replaced(info)
	case info.State == "canceled":
		return NewError(CodeState, "run "+id+" was canceled", "")
	}
	return err
}

// Repeatable returns an error if no new run can be started in place of the run: users can't start
// its workflow, or another run has replaced it already.
func Repeatable(i *engine.Info) error {
	if err := Startable(i.Workflow); err != nil {
		return err
	}
	if i.State == "replaced" {
		return replaced(i)
	}
	return nil
}

// replaced returns the error for an operation on a run that another run has replaced.
func replaced(i *engine.Info) *Error {
	e := NewError(CodeState, "run "+i.ID+" was replaced", "")
	if i.ReplacedBy != "" {
		e.Message += " by " + i.ReplacedBy
		e.Hint = "use that run instead"
	}
	return e
}

// repeatable returns the run with the id, or the error of [Repeatable].
func repeatable(ctx context.Context, e *engine.Engine, id string) (*engine.Info, error) {
	info, err := e.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return info, Repeatable(info)
}

// Replay starts a new run in place of one that has ended. A nil input means the input of the old
// run.
func (r *Runs) Replay(ctx context.Context, id string, input json.RawMessage, by string) (Started, error) {
	if _, err := repeatable(ctx, r.engine, id); err != nil {
		return Started{}, err
	}
	run, err := r.engine.Replay(ctx, id, input, by)
	return Started{ID: run.ID}, err
}

// Rerun starts a new run in place of one that has ended. It begins with the step of the request and
// keeps the results of the steps before it.
func (r *Runs) Rerun(ctx context.Context, q engine.RerunRequest) (Started, error) {
	info, err := repeatable(ctx, r.engine, q.Run)
	if err != nil {
		return Started{}, err
	}
	if err := CheckStep("step", info.Workflow, info.Steps, q.Step); err != nil {
		return Started{}, err
	}
	run, err := r.engine.Rerun(ctx, q)
	return Started{ID: run.ID}, err
}

// RetryLatest starts a new run in place of one that has ended. The new run uses the current
// definition of the workflow and keeps the results of steps that have not changed. from is the step
// to begin with; nil means the first step that failed or has changed. A nil input means the input
// of the old run. from and input can't be combined.
func (r *Runs) RetryLatest(ctx context.Context, id string, from *string, input json.RawMessage, by string) (Started, error) {
	info, err := repeatable(ctx, r.engine, id)
	if err != nil {
		return Started{}, err
	}
	latest := engine.Latest{Input: input}
	if from != nil {
		if latest.From = *from; input != nil {
			return Started{}, Invalid("input", "can't be combined with from: another input changes the results of all steps")
		}
		// If the workflow no longer exists, the error of the engine is clearer.
		if flow, ok := r.engine.Workflow(info.Workflow); ok {
			if err := CheckStep("from", info.Workflow, flow.Steps(), latest.From); err != nil {
				return Started{}, err
			}
		}
	}
	run, err := r.engine.RetryLatest(ctx, id, latest, by)
	return Started{ID: run.ID}, explainLatest(err)
}

// CheckStep returns an error about the field if none of the steps has the name.
func CheckStep(field, workflow string, steps []engine.StepInfo, name string) error {
	var names []string
	for _, s := range steps {
		if s.Name == name {
			return nil
		}
		names = append(names, s.Name)
	}
	e := Invalid(field, "workflow %q has no step %q", workflow, Excerpt(name))
	return e.WithHint(textfmt.SuggestName("step", name, names))
}

// explainLatest adds a hint to the error of a run with steps that the current definition lacks.
func explainLatest(err error) error {
	removed, ok := errors.AsType[*engine.RemovedStepsError](err)
	if !ok {
		return err
	}
	e := NewError(CodeState, removed.Error(), "tideover retry --latest --from STEP "+removed.Run+"; the steps are "+strings.Join(removed.Steps, ", "))
	e.Err = err
	return e
}

// NewOutcome returns the short form of a run.
func NewOutcome(i *engine.Info) *Outcome {
	retries := i.Retry()
	retries.Backoff = NotNil(retries.Backoff)
	return &Outcome{
		ID: i.ID, State: i.State, Step: i.Step, Attempts: i.Attempts, Next: i.Next, Reason: i.Reason, LastError: i.Error,
		Replaced: i.ReplacedBy, Output: i.Output, Retry: &retries,
	}
}

// Result returns the output of a run that has succeeded. over is false if the run has not ended. If
// it has ended without success, the error has the outcome of the run.
func Result(i *engine.Info) (output json.RawMessage, over bool, err error) {
	var e *Error
	switch i.State {
	case "succeeded":
		if len(i.Output) == 0 {
			return json.RawMessage("null"), true, nil
		}
		return i.Output, true, nil
	case "dead":
		e = NewError(CodeDead, cmp.Or(TimeoutText(i), "run "+i.ID+" is dead: "+cmp.Or(i.Error, i.Reason)),
			"tideover retry "+i.ID+" puts it back to work; if the workflow was changed to repair it, tideover retry --latest "+i.ID)
	case "replaced":
		e = NewError(CodeReplaced, "run "+i.ID+" is dead, and was replaced by "+i.ReplacedBy, "")
	case "canceled":
		e = NewError(CodeCanceled, "run "+i.ID+" was canceled", "")
	default:
		return nil, false, nil
	}
	e.Outcome = NewOutcome(i)
	return nil, true, e
}

// DeadQuery selects groups of dead runs.
type DeadQuery struct {
	Limit    int  // largest number of groups
	Internal bool // include runs of [Internal] workflows
	Fresh    bool // wait until the groups contain all runs that died before the call
}

// DeadGroups returns the dead runs grouped by similar errors.
func (r *Runs) DeadGroups(ctx context.Context, q DeadQuery) (engine.Groups, error) {
	f := Filter{Internal: q.Internal}
	if q.Fresh {
		return r.engine.FreshDeadGroups(ctx, q.Limit, f.exclude()...)
	}
	return r.engine.DeadGroups(ctx, q.Limit, f.exclude()...)
}
