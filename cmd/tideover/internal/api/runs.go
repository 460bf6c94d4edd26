package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

// runsHandler handles requests about runs.
type runsHandler struct {
	runs    *control.Runs
	outputs *admin.Outputs
}

// readStart decodes the body of a request to start a run.
func readStart(o object) (st control.Start, err error) {
	var at *string
	in := o["in"]
	if err := o.fields("workflow", &st.Workflow, "input", &st.Input, "key", &st.Key, "timeout", &st.Timeout, "at", &at, "in", &st.In); err != nil {
		return st, err
	}
	if st.Workflow == "" {
		return st, control.Invalid("workflow", "is missing")
	}
	if at != nil && in != nil {
		return st, control.Invalid("in", "can't be combined with at")
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

func (h runsHandler) start(r *request) (any, error) {
	who, o, err := r.plainChange()
	if err != nil {
		return nil, err
	}
	st, err := readStart(o)
	if err != nil {
		return nil, err
	}
	return r.started(h.runs.Start(r.Context(), st, who))
}

// maxAttempt is more than the number of any attempt.
const maxAttempt = 1<<31 - 1

// output answers with the output of an attempt: as JSON or, with download, as text. The text can be
// requested in parts, by the header Range.
func (h runsHandler) output(r *request) (any, error) {
	q := r.query("step", "operation", "attempt", "download")
	find := admin.OutputQuery{
		Run: r.id, Step: q.values["step"], Operation: q.number("operation", 0, maxAttempt), Attempt: q.number("attempt", 0, maxAttempt),
	}
	download := q.yes("download", false)
	if q.err != nil {
		return nil, q.err
	}
	o, err := h.outputs.Get(r.Context(), find)
	if err != nil || !download {
		return o, err
	}
	httpserver.WriteDownload(r.w, r.Request, o.FileName(), o.Text())
	return alreadyAnswered{}, nil
}

// started returns the response for a run: 201 if it was started, 200 if a run with the key existed.
func (r *request) started(run control.Started, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	r.w.Header().Set("Location", Prefix+"runs/"+run.ID)
	if run.Existing {
		return run, nil
	}
	return reply{http.StatusCreated, run}, nil
}

func (h runsHandler) list(r *request) (any, error) {
	f, err := r.query(filterKeys...).filter()
	if err != nil {
		return nil, err
	}
	return h.runs.ListOf(r.Context(), f)
}

// result answers with the output of a run. With the parameter wait it first waits for the end of the
// run. It answers 202 with the outcome if the run has not ended.
func (h runsHandler) result(r *request) (any, error) {
	q := r.query("wait")
	if q.err != nil {
		return nil, q.err
	}
	info, err := h.runs.Lookup(r.Context(), r.id)
	if err != nil {
		return nil, err
	}
	if text := q.values["wait"]; text != "" && !info.Finished() {
		wait, err := control.ParseSpan(text)
		if err != nil || wait > maxWait {
			return nil, control.Invalid("wait", "%q is not a duration of at most %v", control.Excerpt(text), maxWait)
		}
		if info, err = h.await(r, info.ID, wait); err != nil {
			return nil, err
		}
	}
	output, over, err := control.Result(info)
	switch {
	case err != nil:
		return nil, err
	case !over:
		return reply{http.StatusAccepted, control.NewOutcome(info)}, nil
	}
	r.w.Header().Set("Tideover-Run", info.ID)
	return output, nil
}

// await waits until a run has ended, but no longer than the time wait. Then it returns the run.
func (h runsHandler) await(r *request, id string, wait time.Duration) (*engine.Info, error) {
	ctx, cancel := httpserver.LongRequest(r.w, r.Request, wait)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, wait)
	defer stop()
	if info, err := h.runs.Wait(ctx, id); err == nil || ctx.Err() == nil {
		return info, err
	}
	return h.runs.Get(r.Context(), id)
}

// read decodes the body of a request to change a run, and returns the id of the run and the name of
// the sender. fields alternates names and pointers, as in [object.fields].
func (h runsHandler) read(r *request, fields ...any) (id, who string, err error) {
	who, o, err := r.change()
	if err == nil {
		err = o.fields(fields...)
	}
	if err == nil {
		id, err = h.runs.Find(r.Context(), r.id)
	}
	return id, who, err
}

// change returns the handler that calls do for a run, and answers with the run's outcome.
func (h runsHandler) change(do func(runs *control.Runs, ctx context.Context, id, by string) error) handler {
	return func(r *request) (any, error) {
		id, who, err := h.read(r)
		if err == nil {
			err = do(h.runs, r.Context(), id, who)
		}
		if err != nil {
			return nil, err
		}
		info, err := h.runs.Get(r.Context(), id)
		if err != nil {
			return nil, err
		}
		return control.NewOutcome(info), nil
	}
}

func (h runsHandler) replay(r *request) (any, error) {
	var input json.RawMessage
	id, who, err := h.read(r, "input", &input)
	if err != nil {
		return nil, err
	}
	return r.started(h.runs.Replay(r.Context(), id, input, who))
}

func (h runsHandler) rerun(r *request) (any, error) {
	var step string
	id, who, err := h.read(r, "step", &step)
	if err != nil {
		return nil, err
	}
	return r.started(h.runs.Rerun(r.Context(), engine.RerunRequest{Run: id, Step: step, By: who}))
}

func (h runsHandler) retryLatest(r *request) (any, error) {
	var from *string
	var input json.RawMessage
	id, who, err := h.read(r, "from", &from, "input", &input)
	if err != nil {
		return nil, err
	}
	return r.started(h.runs.RetryLatest(r.Context(), id, from, input, who))
}

func (h runsHandler) dead(r *request) (any, error) {
	q := r.query("limit", "internal")
	want := control.DeadQuery{Fresh: true, Internal: q.yes("internal", false), Limit: q.number("limit", defaultLimit, maxLimit)}
	if q.err != nil {
		return nil, q.err
	}
	dead, err := h.runs.DeadGroups(r.Context(), want)
	out := control.Dead{Groups: []control.Group{}, Silent: dead.Silent}
	for _, g := range dead.Groups {
		out.Groups = append(out.Groups, control.Group(g))
	}
	return out, err
}
