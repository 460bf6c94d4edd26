package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/api"
	"github.com/tideover/tideover/engine"
)

// offer is something that can be done with a run. Each leads to a question
// first, which is a page, or a dialog where there is JavaScript.
type offer struct {
	Name   string // in the address
	Label  string
	URL    string
	Danger bool
}

func newOffer(id, name, label string) offer {
	return offer{name, label, actionURL(id, name), name == "cancel"}
}

// offers returns what can be done with a run as it is.
func offers(i *engine.Info) (list []offer) {
	add := func(name, label string) { list = append(list, newOffer(i.ID, name, label)) }
	switch {
	case !i.Finished():
		if i.Next != nil {
			add("wake", "Retry now")
		}
		add("cancel", "Cancel")
	case i.State == "dead" && i.ReplacedBy == "":
		add("retry", "Retry")
		if !api.Internal(i.Workflow) {
			add("latest", "Retry with the current definition")
			add("rerun", "Rerun from a step")
			add("replay", "Edit and replay")
		}
		add("cancel", "Discard")
	case i.State == "replaced" || api.Internal(i.Workflow): // another run does it, or will
	default:
		add("rerun", "Rerun from a step")
		add("replay", "Edit and replay")
	}
	return list
}

// letterOffers returns what can be done with a dead letter in a list.
func letterOffers(i *engine.Info) []offer {
	list := []offer{newOffer(i.ID, "retry", "Retry"), newOffer(i.ID, "replay", "Edit and replay"), newOffer(i.ID, "cancel", "Discard")}
	if api.Internal(i.Workflow) {
		list = append(list[:1], list[2])
	}
	return list
}

// repeatable refuses to start another run in the place of one that is not for
// people to start.
func repeatable(i *engine.Info, action string) error {
	if action != "rerun" && action != "replay" && action != "latest" {
		return nil
	}
	if i.State == "replaced" {
		return fmt.Errorf("%w: run %s was replaced by %s", engine.ErrState, i.ID, i.ReplacedBy)
	}
	return api.Startable(i.Workflow)
}

// question is asked before something is done.
type question struct {
	Title   string
	Text    string
	Button  string
	Danger  bool
	Action  string // address of the form
	Back    string
	Run     *engine.Info
	Steps   []engine.StepInfo // to choose from
	Same    bool              // or no step, to keep the results of the steps that are the same
	Step    int               // chosen
	Input   *string           // to edit
	Hidden  bool              // parts of the input are not shown
	Key     string            // of a group
	Fields  []fact            // what else the form sends
	Problem string            // with what was sent
	Dialog  bool
}

// ask asks whether something shall be done with a run.
func (h *handler) ask(w http.ResponseWriter, r *http.Request) {
	q, err := h.question(r)
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	h.pose(w, r, http.StatusOK, q)
}

func (h *handler) pose(w http.ResponseWriter, r *http.Request, status int, q *question) {
	name := "confirm"
	if q.Dialog = fromHTMX(r); q.Dialog {
		name = "confirm-part"
	}
	h.show(w, r, status, name, page{Title: q.Title, Body: q})
}

func (h *handler) question(r *http.Request) (*question, error) {
	id, action := r.PathValue("id"), r.PathValue("action")
	i, err := h.Engine.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if err := repeatable(i, action); err != nil {
		return nil, err
	}
	raw := i.Input
	i = h.clean(i)
	q := &question{Action: actionURL(id, action), Back: runURL(id), Run: i}
	switch action {
	case "cancel":
		q.Title, q.Button, q.Danger = "Cancel this run?", "Cancel the run", true
		q.Text = "Its steps are told to end, and what they still return is dropped. This can't be undone."
		if i.State == "dead" {
			q.Title, q.Button, q.Text = "Discard this dead letter?", "Discard", "Nobody will retry it. Its history is kept for a while."
		}
	case "retry":
		q.Title, q.Button = "Retry this run?", "Retry"
		q.Text = "Steps that failed get a new set of attempts; what succeeded is kept."
	case "wake":
		q.Title, q.Button = "Retry now?", "Retry now"
		q.Text = "The wait ends, and the next attempt begins at once."
	case "rerun":
		q.Title, q.Button, q.Steps = "Rerun from which step?", "Rerun", i.Steps
		q.Text = "A new run begins there. What the steps before it returned is taken over."
		q.Step = failedStep(i)
	case "latest":
		flow, ok := h.Engine.Workflow(i.Workflow)
		if !ok {
			return nil, fmt.Errorf("%w: there is no workflow %q now", engine.ErrState, i.Workflow)
		}
		q.Title, q.Button, q.Steps, q.Same, q.Step = "Retry with the current definition?", "Retry", flow.Steps(), true, -1
		q.Text = "A new run takes the place of this one. It keeps the results of the steps that are the same; steps that failed, are new or have changed, and those after them, run."
	case "replay":
		text := pretty(string(i.Input))
		q.Title, q.Button, q.Input, q.Hidden = "Replay with this input?", "Replay", &text, !bytes.Equal(raw, i.Input)
		q.Text = "A new run of the same workflow takes the place of this one."
	default:
		return nil, fmt.Errorf("%w: nothing is called %q", engine.ErrNotFound, action)
	}
	return q, nil
}

// failedStep returns the step that one would begin again with.
func failedStep(i *engine.Info) int {
	for k := range i.Steps {
		if i.Steps[k].Status == "failed" {
			return k
		}
	}
	return 0
}

// act does something with a run.
func (h *handler) act(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		h.fail(w, r, formStatus(err), err)
		return
	}
	ctx, id, by := r.Context(), r.PathValue("id"), h.Actor(r)
	var err error
	var next engine.Started
	switch action := r.PathValue("action"); action {
	case "cancel":
		err = h.Engine.Cancel(ctx, id, by)
	case "retry":
		err = h.Engine.Retry(ctx, id, by)
	case "wake":
		err = h.Engine.Wake(ctx, id, by)
	case "rerun":
		next, err = h.rerun(r, id, by)
	case "latest":
		next, err = h.retryLatest(r, id, by)
	case "replay":
		var input json.RawMessage
		if input, err = h.edited(r, id); err == nil {
			next, err = h.Engine.Replay(ctx, id, input, by)
		}
		if errors.Is(err, engine.ErrInput) {
			err = &inputError{err.Error(), r.PostForm.Get("input")}
		}
	default:
		err = fmt.Errorf("%w: nothing is called %q", engine.ErrNotFound, action)
	}
	if wrong, ok := errors.AsType[*inputError](err); ok {
		h.askAgain(w, r, wrong)
		return
	}
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	h.did(w, r, next.ID)
}

func formStatus(err error) int {
	if s := statusOf(err); s != http.StatusInternalServerError {
		return s
	}
	return http.StatusBadRequest
}

func (h *handler) rerun(r *http.Request, id, by string) (engine.Started, error) {
	i, err := h.Engine.Get(r.Context(), id)
	if err == nil {
		err = repeatable(i, "rerun")
	}
	if err != nil {
		return engine.Started{}, err
	}
	n, err := strconv.Atoi(r.PostForm.Get("step"))
	if err != nil || n < 0 || n >= len(i.Steps) {
		return engine.Started{}, &inputError{"there is no such step", ""}
	}
	return h.Engine.Rerun(r.Context(), engine.RerunRequest{Run: id, Step: i.Steps[n].Name, By: by})
}

// retryLatest continues a run with the current definition, from the step that was
// chosen, if one was. If a step must be chosen, that is asked for.
func (h *handler) retryLatest(r *http.Request, id, by string) (engine.Started, error) {
	i, err := h.Engine.Get(r.Context(), id)
	if err == nil {
		err = repeatable(i, "latest")
	}
	if err != nil {
		return engine.Started{}, err
	}
	var l engine.Latest
	if text := r.PostForm.Get("step"); text != "" {
		flow, ok := h.Engine.Workflow(i.Workflow)
		if !ok {
			return engine.Started{}, fmt.Errorf("%w: there is no workflow %q now", engine.ErrState, i.Workflow)
		}
		n, err := strconv.Atoi(text)
		steps := flow.Steps()
		if err != nil || n < 0 || n >= len(steps) {
			return engine.Started{}, &inputError{"there is no such step", ""}
		}
		l.From = steps[n].Name
	}
	next, err := h.Engine.RetryLatest(r.Context(), id, l, by)
	if removed, ok := errors.AsType[*engine.RemovedStepsError](err); ok {
		return next, &inputError{removed.Error(), ""}
	}
	return next, err
}

// inputError is why what somebody typed can't be used.
type inputError struct{ problem, text string }

func (e *inputError) Error() string { return e.problem }

// edited returns the input that was sent, nil if it is the one that was shown:
// what was not shown of that must not get lost.
func (h *handler) edited(r *http.Request, id string) (json.RawMessage, error) {
	i, err := h.get(r.Context(), id)
	if err == nil {
		err = repeatable(i, "replay")
	}
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
	var valid json.RawMessage
	if err := json.Unmarshal([]byte(text), &valid); err != nil {
		return nil, &inputError{"the input is not JSON: " + place(text, err), text}
	}
	if !utf8.ValidString(text) {
		return nil, &inputError{"the input is not UTF-8", strings.ToValidUTF8(text, "\uFFFD")}
	}
	if name, twice := api.Duplicate(valid); twice {
		return nil, &inputError{fmt.Sprintf("%q is given twice in the input", name), text}
	}
	var small bytes.Buffer
	if err := json.Compact(&small, valid); err != nil {
		return nil, err
	}
	return small.Bytes(), nil
}

// place says where a text stops being JSON.
func place(text string, err error) string {
	s, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return err.Error()
	}
	before := text[:min(max(int(s.Offset)-1, 0), len(text))]
	line := strings.Count(before, "\n") + 1
	return fmt.Sprintf("line %d, column %d: %v", line, len(before)-strings.LastIndexByte(before, '\n'), err)
}

// askAgain shows what was sent once more, with what is wrong with it.
func (h *handler) askAgain(w http.ResponseWriter, r *http.Request, wrong *inputError) {
	q, err := h.question(r)
	if err != nil {
		h.fail(w, r, statusOf(err), err)
		return
	}
	q.Problem = wrong.problem
	if q.Input != nil {
		q.Input = &wrong.text
	}
	h.pose(w, r, http.StatusUnprocessableEntity, q)
}

// did answers after something was done: with the new run if there is one, or
// else with the page that the question was asked on.
func (h *handler) did(w http.ResponseWriter, r *http.Request, next string) {
	what := url.Values{"did": {r.PathValue("action")}}
	to := runURL(r.PathValue("id"))
	if next != "" {
		to = runURL(next)
	}
	to += "?" + what.Encode()
	if fromHTMX(r) && next == "" {
		h.flash(w, r, done(what))
		return
	}
	forward(w, r, to)
}

// flash tells an open page what was done. The page itself follows by its stream.
func (h *handler) flash(w http.ResponseWriter, r *http.Request, text string) {
	w.Header().Set("HX-Trigger", "done")
	h.show(w, r, http.StatusOK, "flash", page{Flash: text})
}

func forward(w http.ResponseWriter, r *http.Request, to string) {
	if fromHTMX(r) {
		w.Header().Set("HX-Redirect", to)
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}
