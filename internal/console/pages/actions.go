package pages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/retry"
)

// Offer is a button or link for an action. Its URL opens a question that asks for confirmation: as a
// page, or as a dialog if JavaScript is enabled.
type Offer struct {
	Name   string // of the action in the URL
	Label  string
	URL    string
	Danger bool
	Text   string // one sentence about it, for the menu
	InMenu bool   // it is in the menu More
}

// Fold moves actions to the menu More: all but the first one and the destructive ones.
func Fold(list []Offer) []Offer {
	for i := range list {
		list[i].InMenu = i > 0 && !list[i].Danger
	}
	return list
}

func newOffer(id, name, label string) Offer {
	return Offer{Name: name, Label: label, URL: ActionURL(RunURL(id), name), Danger: name == "cancel" || name == "abandon", Text: actionTexts[name]}
}

// offers returns the actions that are possible for a run.
func offers(i *engine.Info) (list []Offer) {
	for _, name := range possibleActions(i) {
		list = append(list, newOffer(i.ID, name, actionLabels[name]))
	}
	return Fold(list)
}

// actionLabels has the text of the button of each action on a run.
var actionLabels = map[string]string{
	"wake": "Wake", "abandon": "Abandon", "cancel": "Cancel", "retry": "Retry", "undo": "Undo", "latest": "Retry with the current definition",
	"rerun": "Retry from a step", "replay": "Retry with another input",
}

// actionTexts has a sentence about each action that can be in the menu.
var actionTexts = map[string]string{
	"undo": "Its operations are undone, the last one first.", "latest": "A new run replaces it, with the steps that the workflow has now.",
	"rerun": "A new run starts at a step, and keeps the results of the steps before it.", "replay": "A new run starts with an input that you edit.",
}

func possibleActions(i *engine.Info) (names []string) {
	switch {
	case !i.Finished():
		if _, bySignal := control.NextWait(i); i.Next != nil && !bySignal {
			names = append(names, "wake")
		}
		if i.State == engine.StateUndoing {
			return append(names, "abandon")
		}
		return append(names, "cancel")
	case i.State == "dead" && i.ReplacedBy == "":
		names = append(names, "retry")
		if i.Undoable > 0 && i.Reason != retry.StopUndo.String() {
			names = append(names, "undo")
		}
		if !control.Internal(i.Workflow) {
			names = append(append(names, "latest"), repetitions(i)...)
		}
		return append(names, "cancel")
	case i.State == "replaced" || control.Internal(i.Workflow):
		return nil
	}
	return repetitions(i)
}

// repetitions returns the actions that start another run in place of one that has ended.
func repetitions(i *engine.Info) []string {
	if i.Operations == nil {
		return []string{"rerun", "replay"}
	}
	return []string{"replay"}
}

// LetterOffers returns the actions for a dead run in a list of dead letters.
func LetterOffers(i *engine.Info) []Offer {
	list := []Offer{newOffer(i.ID, "retry", "Retry"), newOffer(i.ID, "replay", "Retry with another input"), newOffer(i.ID, "cancel", "Cancel")}
	if control.Internal(i.Workflow) {
		list = append(list[:1], list[2])
	}
	return Fold(list)
}

// runActions handles the actions on one run.
type runActions struct{ *Data }

// simpleQuestions has the confirmation questions that are the same for all runs.
var simpleQuestions = map[string]Question{
	"abandon": {Title: "Abandon this run?", Button: "Abandon the run", Danger: true, Text: "It ends at once. What it has not undone yet stays as it is."},
	"undo":    {Title: "Undo the operations of this run?", Button: "Undo", Text: "Its operations that can be undone are undone, the last one first. The run is dead again then."},
	"retry":   {Title: "Retry this run?", Button: "Retry", Text: "Failed steps get a new set of attempts; the results of succeeded steps are kept."},
	"wake":    {Title: "Wake this run?", Button: "Wake", Text: "The wait ends, and the next attempt starts now."},
}

// question returns the confirmation question for an action on a run.
func (h runActions) question(r *http.Request) (*Question, error) {
	id, action := r.PathValue("id"), r.PathValue("action")
	i, err := h.control.Runs.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if action == "rerun" || action == "replay" || action == "latest" {
		if err := control.Repeatable(i); err != nil {
			return nil, err
		}
	}
	raw := i.Input
	i = h.Redact.run(i)
	simple, isSimple := simpleQuestions[action]
	q := &simple
	q.Action, q.Back, q.Run = ActionURL(RunURL(id), action), RunURL(id), i
	switch {
	case isSimple:
	case action == "cancel":
		q.cancel(i)
	case action == "rerun":
		q.Title, q.Button = "Retry from which step?", "Retry"
		q.Steps = Changed(i.Steps, func(s *engine.StepInfo) { s.Status = control.StateOf(s) })
		q.Text = "A new run starts at this step and keeps the results of the steps before it."
		q.Step = failedStep(i)
	case action == "latest":
		if q.Steps, err = h.currentSteps(i); err != nil {
			return nil, err
		}
		q.Title, q.Button, q.Same, q.Step = "Retry with the current definition?", "Retry", true, -1
		q.Text = "A new run replaces this one. It keeps the results of unchanged steps, and runs the steps that failed, are new or have changed, and all steps after them."
	case action == "replay":
		text := pretty(string(i.Input))
		q.Title, q.Button, q.Input, q.Hidden = "Retry with this input?", "Retry", &text, !bytes.Equal(raw, i.Input)
		q.Text = "A new run of the same workflow replaces this one."
	case action == "answer":
		err = h.answerQuestion(r, q)
	default:
		err = UnknownAction(action)
	}
	if err != nil {
		return nil, err
	}
	return q, nil
}

// cancel makes q the question whether to cancel a run.
func (q *Question) cancel(i *engine.Info) {
	q.Title, q.Button, q.Danger = "Cancel this run?", "Cancel the run", true
	switch {
	case i.State == "dead":
		q.Title, q.Text = "Cancel this dead run?", "It will not be retried. Its history is kept until its retention ends."
	case i.Undoable > 0:
		q.Text = "Its running operations are canceled. Then the operations that can be undone are undone, the last one first."
	default:
		q.Text = "Its running steps are canceled, and their results are discarded. This can't be undone."
	}
}

// currentSteps returns the steps of the current definition of the run's workflow.
func (h runActions) currentSteps(i *engine.Info) ([]engine.StepInfo, error) {
	flow, ok := h.control.Workflows.Get(i.Workflow)
	if !ok {
		return nil, fmt.Errorf("%w: workflow %q is no longer defined", engine.ErrState, i.Workflow)
	}
	return flow.Steps(), nil
}

// chosenStep returns the name of the step that the user has chosen in the form.
func chosenStep(r *http.Request, steps []engine.StepInfo) (string, error) {
	n, err := strconv.Atoi(r.PostForm.Get("step"))
	if err != nil || n < 0 || n >= len(steps) {
		return "", &inputError{"there is no such step", ""}
	}
	return steps[n].Name, nil
}

// failedStep returns the index of the first failed step, or 0.
func failedStep(i *engine.Info) int {
	return max(slices.IndexFunc(i.Steps, func(s engine.StepInfo) bool { return s.Status == "failed" }), 0)
}

// runTexts has the sentence that is shown after each action on a run.
var runTexts = map[string]string{
	"cancel": "Canceled.", "abandon": "Abandoned.", "undo": "The operations are being undone.", "retry": "Retried.", "wake": "The wait was ended; the next attempt starts now.",
	"start": "Started.", "existing": "A run with this key existed already; no run was started.", "differs": "No run was started: this run has the same key, but another input. Use another key.", "answer": "Answered.", "rerun": "This is the new run.", "replay": "This is the new run.", "latest": "This is the new run.",
}

// act applies an action to a run. If the action starts a new run, to is the URL of that run.
func (h runActions) act(r *http.Request) (did, to string, err error) {
	ctx, id, by, action := r.Context(), r.PathValue("id"), ActorOf(r), r.PathValue("action")
	var next control.Started
	switch action {
	case "cancel":
		err = h.control.Runs.Cancel(ctx, id, by)
	case "abandon":
		err = h.control.Runs.Abandon(ctx, id, by)
	case "undo":
		err = h.control.Runs.Undo(ctx, id, by)
	case "retry":
		err = h.control.Runs.Retry(ctx, id, by)
	case "wake":
		err = h.control.Runs.Wake(ctx, id, by)
	case "answer":
		err = h.answer(r, id)
	case "rerun":
		next, err = h.rerun(r, id, by)
	case "latest":
		next, err = h.retryLatest(r, id, by)
	case "replay":
		var input json.RawMessage
		if input, err = h.edited(r, id); err == nil {
			next, err = h.control.Runs.Replay(ctx, id, input, by)
		}
		if errors.Is(err, engine.ErrInput) {
			err = &inputError{err.Error(), r.PostForm.Get("input")}
		}
	default:
		err = UnknownAction(action)
	}
	if next.ID != "" {
		return "", RunURL(next.ID) + "?did=" + action, err
	}
	return runTexts[action], RunURL(id) + "?did=" + action, err
}

func (h runActions) rerun(r *http.Request, id, by string) (next control.Started, err error) {
	i, err := h.control.Runs.Get(r.Context(), id)
	if err != nil {
		return next, err
	}
	step, err := chosenStep(r, i.Steps)
	if err != nil {
		return next, err
	}
	return h.control.Runs.Rerun(r.Context(), engine.RerunRequest{Run: id, Step: step, By: by})
}

// retryLatest continues a run with the current definition, from the step that the user has chosen, if
// any. If the user must choose a step, it returns an [*inputError], which shows the question again.
func (h runActions) retryLatest(r *http.Request, id, by string) (next control.Started, err error) {
	var from *string
	if r.PostForm.Get("step") != "" {
		i, err := h.control.Runs.Get(r.Context(), id)
		if err != nil {
			return next, err
		}
		steps, err := h.currentSteps(i)
		if err != nil {
			return next, err
		}
		step, err := chosenStep(r, steps)
		if err != nil {
			return next, err
		}
		from = &step
	}
	next, err = h.control.Runs.RetryLatest(r.Context(), id, from, nil, by)
	if removed, ok := errors.AsType[*engine.RemovedStepsError](err); ok {
		return next, &inputError{removed.Error(), ""}
	}
	return next, err
}

// edited returns the input of the form, or nil if the user did not change it. The form shows the
// input without its secrets, so an unchanged text must not replace the original.
func (h runActions) edited(r *http.Request, id string) (json.RawMessage, error) {
	i, err := h.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if !r.PostForm.Has("input") {
		return nil, nil
	}
	text := strings.ReplaceAll(r.PostForm.Get("input"), "\r\n", "\n")
	if strings.TrimSpace(text) == strings.TrimSpace(pretty(string(i.Input))) {
		return nil, nil
	}
	input, problem := compactJSON(text)
	if problem != "" {
		return nil, &inputError{"the input " + problem, strings.ToValidUTF8(text, "\uFFFD")}
	}
	return input, nil
}

// compactJSON returns a text that a user has typed as compact JSON, or what is wrong with it, as the rest
// of a sentence.
func compactJSON(text string) (value json.RawMessage, problem string) {
	var valid json.RawMessage
	if err := json.Unmarshal([]byte(text), &valid); err != nil {
		return nil, "is not JSON: " + place(text, err)
	}
	if !utf8.ValidString(text) {
		return nil, "is not UTF-8"
	}
	if name, twice := control.Duplicate(valid); twice {
		return nil, fmt.Sprintf("gives %q twice", name)
	}
	var small bytes.Buffer
	if err := json.Compact(&small, valid); err != nil {
		return nil, "is not JSON: " + err.Error()
	}
	return small.Bytes(), ""
}

// place returns the message of a JSON error, with its line and column in the text if it has them.
func place(text string, err error) string {
	s, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return err.Error()
	}
	before := text[:min(max(int(s.Offset)-1, 0), len(text))]
	line := strings.Count(before, "\n") + 1
	return fmt.Sprintf("line %d, column %d: %v", line, len(before)-strings.LastIndexByte(before, '\n'), err)
}
