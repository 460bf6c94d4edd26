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

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/engine"
)

// Runs has the operations on runs and workflows.
type Runs struct{ engine *engine.Engine }

// Find returns the id of the run that a text names: its id, the beginning of the id, or its key.
func (r *Runs) Find(ctx context.Context, text string) (string, error) {
	ids, err := r.engine.Find(ctx, text, 11)
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", fmt.Errorf("%w: %s", engine.ErrNotFound, Excerpt(text))
	case len(ids) > 1:
		e := NewError(CodeAmbiguous, fmt.Sprintf("%q may stand for several runs", Excerpt(text)), "use more of the id")
		e.Candidates = ids[:min(len(ids), 10)]
		return "", e
	}
	return ids[0], nil
}

// Get returns the run with the id.
func (r *Runs) Get(ctx context.Context, id string) (*engine.Info, error) {
	return r.engine.Get(ctx, id)
}

// Lookup returns the run that a text names, as for [Runs.Find].
func (r *Runs) Lookup(ctx context.Context, text string) (*engine.Info, error) {
	id, err := r.Find(ctx, text)
	if err != nil {
		return nil, err
	}
	return r.engine.Get(ctx, id)
}

// Wait waits for the end of a run.
func (r *Runs) Wait(ctx context.Context, id string) (*engine.Info, error) {
	return r.engine.Wait(ctx, id)
}

// Events returns the events after a number, and how many were missed before each, until the
// context ends. It first returns the events that the engine has kept.
func (r *Runs) Events(ctx context.Context, after uint64) iter.Seq2[engine.Event, uint64] {
	return r.engine.Events(ctx, after)
}

// LastEvent returns the number of the last event; 0 if there was none. The engine keeps its
// latest events from the first call on.
func (r *Runs) LastEvent() (seq uint64) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for e := range r.engine.Events(over, 0) {
		seq = e.Seq
	}
	return seq
}

// options returns the options of the start for the engine.
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

// Start starts a run.
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

// suggestWorkflow returns the hint for a name that no workflow has.
func suggestWorkflow(name string, list []*engine.Workflow) string {
	var names []string
	for _, w := range list {
		if !Internal(w.Name()) {
			names = append(names, w.Name())
		}
	}
	slices.Sort(names)
	return strictyaml.SuggestName("workflow", name, names)
}

// Validate returns an error for a filter with a value that does not exist.
func (f *Filter) Validate() error {
	for _, s := range f.States {
		if !slices.Contains(stateNames, s) {
			return Invalid("state", "unknown state %q", Excerpt(s)).WithHint(strictyaml.SuggestName("state", s, stateNames))
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

// exclude returns the workflows whose runs the filter leaves out.
func (f *Filter) exclude() []string {
	if f.Internal || f.Workflow != "" {
		return nil
	}
	return InternalNames()
}

// engine returns the filter of the engine.
func (f *Filter) engine() engine.Filter {
	return engine.Filter{
		States: f.States, Workflow: f.Workflow, Exclude: f.exclude(), Search: f.Search, ErrorLike: f.Error, Since: f.Since, Until: f.Until,
		MinAttempts: f.MinAttempts, Order: f.Order, After: f.After, Limit: f.Limit, Fresh: f.Fresh,
	}
}

// List returns one page of a list of runs. The error of a cursor of another list is about the
// field "after".
func (r *Runs) List(ctx context.Context, f Filter) (engine.Page, error) {
	page, err := r.engine.List(ctx, f.engine())
	if err != nil && f.After != "" && !errors.Is(err, engine.ErrClosed) {
		// If the same list works from its beginning, the cursor is wrong.
		first := f
		first.After, first.Limit = "", 1
		if _, err := r.engine.List(ctx, first.engine()); err == nil {
			return page, Invalid("after", "%q is not from a page of the same list", Excerpt(f.After))
		}
	}
	return page, err
}

// checkWorkflow returns an error if there is no workflow of the name, and no run of one.
func (r *Runs) checkWorkflow(ctx context.Context, name string) error {
	if _, ok := r.engine.Workflow(name); ok || name == "" {
		return nil
	}
	stats, err := r.engine.Stats(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(stats.Workflows, func(w engine.WorkflowStats) bool { return w.Name == name }) {
		return nil
	}
	page, err := r.engine.List(ctx, engine.Filter{Workflow: name, Limit: 1})
	if err != nil || len(page.Runs) > 0 {
		return err
	}
	return NewError(CodeNotFound, fmt.Sprintf("unknown workflow %q", Excerpt(name)), suggestWorkflow(name, r.engine.Workflows()))
}

// ListOf is [Runs.List], with an error if the filter names an unknown workflow and the list is
// empty because of that.
func (r *Runs) ListOf(ctx context.Context, f Filter) (engine.Page, error) {
	page, err := r.List(ctx, f)
	if err == nil && len(page.Runs) == 0 && f.After == "" {
		err = r.checkWorkflow(ctx, f.Workflow)
	}
	page.Runs = NotNil(page.Runs)
	return page, err
}

// Cancel ends a run.
func (r *Runs) Cancel(ctx context.Context, id, by string) error {
	return r.explain(ctx, id, r.engine.Cancel(ctx, id, by))
}

// Retry gives the failed steps of a dead run new attempts.
func (r *Runs) Retry(ctx context.Context, id, by string) error {
	return r.explain(ctx, id, r.engine.Retry(ctx, id, by))
}

// Wake ends the waits of a run.
func (r *Runs) Wake(ctx context.Context, id, by string) error {
	return r.explain(ctx, id, r.engine.Wake(ctx, id, by))
}

// explain returns a better error if an operation was refused because the run is over.
func (r *Runs) explain(ctx context.Context, id string, err error) error {
	if !errors.Is(err, engine.ErrState) {
		return err
	}
	info, e := r.engine.Get(ctx, id)
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

// Repeatable returns an error if no other run can be started in place of the run.
func Repeatable(i *engine.Info) error {
	if err := Startable(i.Workflow); err != nil {
		return err
	}
	if i.State == "replaced" {
		return replaced(i)
	}
	return nil
}

// replaced is the error of an operation on a run that another run has replaced.
func replaced(i *engine.Info) *Error {
	e := NewError(CodeState, "run "+i.ID+" was replaced", "")
	if i.ReplacedBy != "" {
		e.Message += " by " + i.ReplacedBy
		e.Hint = "do it with that one"
	}
	return e
}

// repeatable returns the run if another run can be started in its place.
func (r *Runs) repeatable(ctx context.Context, id string) (*engine.Info, error) {
	info, err := r.engine.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return info, Repeatable(info)
}

// Replay starts a run in place of one that has ended, with another input unless it is nil.
func (r *Runs) Replay(ctx context.Context, id string, input json.RawMessage, by string) (Started, error) {
	if _, err := r.repeatable(ctx, id); err != nil {
		return Started{}, err
	}
	run, err := r.engine.Replay(ctx, id, input, by)
	return Started{ID: run.ID}, err
}

// Rerun starts a run in place of one that has ended, from a step on.
func (r *Runs) Rerun(ctx context.Context, q engine.RerunRequest) (Started, error) {
	info, err := r.repeatable(ctx, q.Run)
	if err != nil {
		return Started{}, err
	}
	if err := hasStep("step", info.Workflow, info.Steps, q.Step); err != nil {
		return Started{}, err
	}
	run, err := r.engine.Rerun(ctx, q)
	return Started{ID: run.ID}, err
}

// RetryLatest starts a run in place of one that has ended, with the current definition and the
// results of the steps that are the same. from is the step to begin with; nil means the first
// that failed or has changed. input replaces that of the run unless it is nil.
func (r *Runs) RetryLatest(ctx context.Context, id string, from *string, input json.RawMessage, by string) (Started, error) {
	info, err := r.repeatable(ctx, id)
	if err != nil {
		return Started{}, err
	}
	latest := engine.Latest{Input: input}
	if from != nil {
		if latest.From = *from; input != nil {
			return Started{}, Invalid("input", "from is given too; one of them is possible, since another input changes all results")
		}
		// For an unknown workflow the engine returns a better error.
		if flow, ok := r.engine.Workflow(info.Workflow); ok {
			if err := hasStep("from", info.Workflow, flow.Steps(), latest.From); err != nil {
				return Started{}, err
			}
		}
	}
	run, err := r.engine.RetryLatest(ctx, id, latest, by)
	return Started{ID: run.ID}, explainLatest(err)
}

// hasStep returns an error if the steps do not include one of the name.
func hasStep(field, workflow string, steps []engine.StepInfo, name string) error {
	var names []string
	for _, s := range steps {
		if s.Name == name {
			return nil
		}
		names = append(names, s.Name)
	}
	e := Invalid(field, "workflow %q has no step %q", workflow, Excerpt(name))
	return e.WithHint(strictyaml.SuggestName("step", name, names))
}

// explainLatest adds a hint if the current definition lacks steps of the run.
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

// Result returns the output of a run that has succeeded, and false for one that is not over. The
// error of a run that is over and has not succeeded has the run's outcome.
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
