package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/engine"
)

// runsHandler answers requests about runs and workflows.
type runsHandler struct{ runs *control.Runs }

// readStart reads the body of a start.
func readStart(o object) (st control.Start, err error) {
	var timeout, in *control.Span
	var at *string
	if err := o.fields("workflow", &st.Workflow, "input", &st.Input, "key", &st.Key, "timeout", &timeout, "at", &at, "in", &in); err != nil {
		return st, err
	}
	if st.Workflow == "" {
		return st, control.Invalid("workflow", "is missing")
	}
	if timeout != nil {
		st.Timeout = *timeout
	}
	if at != nil && in != nil {
		return st, control.Invalid("in", "at is given too; one of them is enough")
	}
	if in != nil {
		st.In = *in
	}
	if at != nil {
		if st.At, err = time.Parse(time.RFC3339, *at); err != nil {
			return st, control.Invalid("at", "%q is not a time such as 2026-11-15T08:00:00Z", control.Excerpt(*at))
		}
		if err := control.CheckMoment(st.At); err != nil {
			return st, control.Invalid("at", "%v", err)
		}
	}
	return st, nil
}

func (h runsHandler) start(w http.ResponseWriter, r *http.Request, _ string) error {
	who, o, err := readChange(r)
	if err != nil {
		return err
	}
	st, err := readStart(o)
	if err != nil {
		return err
	}
	started, err := h.runs.Start(r.Context(), st, who)
	if err != nil {
		return err
	}
	w.Header().Set("Location", Prefix+"runs/"+started.ID)
	status := http.StatusCreated
	if started.Existing {
		status = http.StatusOK
	}
	return answer(w, status, started)
}

func (h runsHandler) list(w http.ResponseWriter, r *http.Request, _ string) error {
	q, err := queryOf(r, filterKeys...)
	if err != nil {
		return err
	}
	f, err := q.filter()
	if err != nil {
		return err
	}
	page, err := h.runs.ListOf(r.Context(), f)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, page)
}

func (h runsHandler) show(ctx context.Context, id string) (any, error) { return h.runs.Lookup(ctx, id) }

// result answers with the output of a run: at once, or at its end.
func (h runsHandler) result(w http.ResponseWriter, r *http.Request, id string) error {
	q, err := queryOf(r, "wait")
	if err != nil {
		return err
	}
	info, err := h.runs.Lookup(r.Context(), id)
	if err != nil {
		return err
	}
	if q["wait"] != "" && !info.Finished() {
		wait, err := control.ParseSpan(q["wait"])
		if err != nil || wait > maxWait {
			return control.Invalid("wait", "%q is not a duration of at most %v", control.Excerpt(q["wait"]), maxWait)
		}
		if info, err = h.await(w, r, info.ID, wait); err != nil {
			return err
		}
	}
	output, over, err := control.Result(info)
	switch {
	case err != nil:
		return err
	case !over:
		return answer(w, http.StatusAccepted, control.NewOutcome(info))
	}
	w.Header().Set("Tideover-Run", info.ID)
	return answer(w, http.StatusOK, output)
}

// await waits for the end of a run, and returns the run as it is then.
func (h runsHandler) await(w http.ResponseWriter, r *http.Request, id string, wait time.Duration) (*engine.Info, error) {
	ctx, cancel := httpserver.LongRequest(w, r, wait)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, wait)
	defer stop()
	if info, err := h.runs.Wait(ctx, id); err == nil || ctx.Err() == nil {
		return info, err
	}
	return h.runs.Get(r.Context(), id)
}

// change applies an operation to a run and answers with the run's outcome.
func (h runsHandler) change(w http.ResponseWriter, r *http.Request, text string, do func(ctx context.Context, id, by string) error) error {
	who, err := by(r)
	if err != nil {
		return err
	}
	o, err := body(r)
	if err != nil {
		return err
	}
	if err := o.rejectUnknown(); err != nil {
		return err
	}
	id, err := h.runs.Find(r.Context(), text)
	if err != nil {
		return err
	}
	if err := do(r.Context(), id, who); err != nil {
		return err
	}
	info, err := h.runs.Get(r.Context(), id)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, control.NewOutcome(info))
}

func (h runsHandler) cancel(w http.ResponseWriter, r *http.Request, id string) error {
	return h.change(w, r, id, h.runs.Cancel)
}

func (h runsHandler) retry(w http.ResponseWriter, r *http.Request, id string) error {
	return h.change(w, r, id, h.runs.Retry)
}

func (h runsHandler) wake(w http.ResponseWriter, r *http.Request, id string) error {
	return h.change(w, r, id, h.runs.Wake)
}

func (h runsHandler) replay(w http.ResponseWriter, r *http.Request, id string) error {
	var input json.RawMessage
	return h.repeat(w, r, id, func(ctx context.Context, id, by string) (control.Started, error) {
		return h.runs.Replay(ctx, id, input, by)
	}, "input", &input)
}

func (h runsHandler) rerun(w http.ResponseWriter, r *http.Request, id string) error {
	var step string
	return h.repeat(w, r, id, func(ctx context.Context, id, by string) (control.Started, error) {
		return h.runs.Rerun(ctx, engine.RerunRequest{Run: id, Step: step, By: by})
	}, "step", &step)
}

func (h runsHandler) retryLatest(w http.ResponseWriter, r *http.Request, id string) error {
	var from *string
	var input json.RawMessage
	return h.repeat(w, r, id, func(ctx context.Context, id, by string) (control.Started, error) {
		return h.runs.RetryLatest(ctx, id, from, input, by)
	}, "from", &from, "input", &input)
}

// repeat starts a run in place of another.
func (h runsHandler) repeat(w http.ResponseWriter, r *http.Request, text string, do func(ctx context.Context, id, by string) (control.Started, error), fields ...any) error {
	who, err := by(r)
	if err != nil {
		return err
	}
	o, err := body(r)
	if err != nil {
		return err
	}
	if err := o.fields(fields...); err != nil {
		return err
	}
	id, err := h.runs.Find(r.Context(), text)
	if err != nil {
		return err
	}
	started, err := do(r.Context(), id, who)
	if err != nil {
		return err
	}
	w.Header().Set("Location", Prefix+"runs/"+started.ID)
	return answer(w, http.StatusCreated, started)
}

func (h runsHandler) workflows(w http.ResponseWriter, r *http.Request, _ string) error {
	q, err := queryOf(r, "internal")
	if err != nil {
		return err
	}
	internal, err := q.yes("internal")
	if err != nil {
		return err
	}
	all, err := h.runs.Workflows(r.Context(), internal)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, all)
}

func (h runsHandler) schedules(ctx context.Context, _ string) (any, error) {
	list, err := h.runs.Schedules(ctx)
	return map[string]any{"schedules": list}, err
}

func (h runsHandler) dead(w http.ResponseWriter, r *http.Request, _ string) error {
	q, err := queryOf(r, "limit", "internal")
	if err != nil {
		return err
	}
	want := control.DeadQuery{Fresh: true}
	if want.Internal, err = q.yes("internal"); err != nil {
		return err
	}
	if want.Limit, err = q.number("limit", defaultLimit, maxLimit); err != nil {
		return err
	}
	dead, err := h.runs.DeadGroups(r.Context(), want)
	if err != nil {
		return err
	}
	out := control.Dead{Groups: []control.Group{}, Silent: dead.Silent}
	for _, g := range dead.Groups {
		out.Groups = append(out.Groups, control.Group(g))
	}
	return answer(w, http.StatusOK, out)
}
