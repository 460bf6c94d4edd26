package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/engine"
)

// read reads a start. Nothing has happened when it returns an error.
func (st *Start) read(o object) error {
	var timeout, in *Span
	var at *string
	err := o.fields("workflow", &st.Workflow, "input", &st.Input, "key", &st.Key, "timeout", &timeout, "at", &at, "in", &in)
	if err != nil {
		return err
	}
	if st.Workflow == "" {
		return bad("workflow", "is missing")
	}
	if timeout != nil {
		st.Timeout = *timeout
	}
	if at != nil && in != nil {
		return bad("in", "at is given too; one of them is enough")
	}
	if in != nil {
		st.In = *in
	}
	if at != nil {
		if st.At, err = time.Parse(time.RFC3339, *at); err != nil {
			return bad("at", "%q is not a time such as 2026-11-15T08:00:00Z", excerpt(*at))
		}
		if err := checkMoment(st.At); err != nil {
			return bad("at", "%v", err)
		}
	}
	if err := CheckKey(st.Key); err != nil {
		return bad("key", "%v", err)
	}
	return nil
}

// CheckKey refuses keys that can't be used: they are variables of commands and
// headers of requests, too.
func CheckKey(key string) error {
	switch {
	case len(key) > 512:
		return fmt.Errorf("has %d bytes, at most 512 are possible", len(key))
	case !utf8.ValidString(key):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(key, unicode.IsControl):
		return fmt.Errorf("%q has a control character in it", excerpt(key))
	}
	return nil
}

// options returns what the engine is told.
func (st *Start) options(by string) []engine.StartOption {
	opts := []engine.StartOption{engine.Source(by)}
	if st.Key != "" {
		opts = append(opts, engine.Key(st.Key))
	}
	if st.Timeout != 0 {
		opts = append(opts, engine.RunTimeout(time.Duration(st.Timeout)))
	}
	if !st.At.IsZero() {
		opts = append(opts, engine.At(st.At))
	}
	if st.In != 0 {
		opts = append(opts, engine.In(time.Duration(st.In)))
	}
	return opts
}

// asked reads a request that has a body and no query: who asks, and for what.
func asked(r *http.Request) (who string, o object, err error) {
	if who, err = by(r); err != nil {
		return "", nil, err
	}
	if _, err := queryOf(r); err != nil {
		return "", nil, err
	}
	o, err = body(r)
	return who, o, err
}

func (s *server) start(w http.ResponseWriter, r *http.Request, _ string) error {
	who, o, err := asked(r)
	if err != nil {
		return err
	}
	var st Start
	if err := st.read(o); err != nil {
		return err
	}
	if err := Startable(st.Workflow); err != nil {
		return err
	}
	flow, ok := s.engine.Workflow(st.Workflow)
	if !ok {
		p := bad("workflow", "there is none of the name %q", excerpt(st.Workflow))
		p.Hint = s.known()
		return p
	}
	run, err := s.engine.StartRegistered(r.Context(), flow, st.Input, st.options(who)...)
	if err != nil {
		return err
	}
	w.Header().Set("Location", Prefix+"runs/"+run.ID)
	status := http.StatusCreated
	if run.Existing {
		status = http.StatusOK
	}
	return answer(w, status, Started{run.ID, run.Existing, run.InputDiffers})
}

// known lists the workflows for somebody who has mistyped one.
func (s *server) known() string {
	var names []string
	for _, w := range s.engine.Workflows() {
		if !Internal(w.Name()) {
			names = append(names, w.Name())
		}
	}
	slices.Sort(names)
	switch n := len(names); {
	case n == 0:
		return "this server has no workflows"
	case n > 10:
		return fmt.Sprintf("there are %s and %d more", strings.Join(names[:10], ", "), n-10)
	}
	return "there are " + strings.Join(names, ", ")
}

func (f *Filter) engine() engine.Filter {
	return engine.Filter{
		States: f.States, Workflow: f.Workflow, Exclude: f.exclude(), Search: f.Search, ErrorLike: f.Error, Since: f.Since, Until: f.Until,
		MinAttempts: f.MinAttempts, Order: f.Order, After: f.After, Limit: f.Limit, Fresh: f.After == "",
	}
}

func (s *server) list(w http.ResponseWriter, r *http.Request, _ string) error {
	q, err := queryOf(r, filterKeys...)
	if err != nil {
		return err
	}
	f, err := q.filter()
	if err != nil {
		return err
	}
	page, err := s.page(r.Context(), f)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, page)
}

// page returns a part of a list. Whether it was the cursor that the engine did
// not like shows in that it likes everything else.
func (s *server) page(ctx context.Context, f Filter) (engine.Page, error) {
	page, err := s.engine.List(ctx, f.engine())
	if err != nil && f.After != "" && !errors.Is(err, engine.ErrClosed) {
		again := f
		again.After, again.Limit = "", 1
		if _, err := s.engine.List(ctx, again.engine()); err == nil {
			return page, bad("after", "%q is not from a page of the same list", excerpt(f.After))
		}
	}
	if err == nil && len(page.Runs) == 0 && f.After == "" {
		err = s.named(ctx, f.Workflow)
	}
	if page.Runs == nil {
		page.Runs = []engine.Info{}
	}
	return page, err
}

func (s *server) show(w http.ResponseWriter, r *http.Request, id string) error {
	if _, err := queryOf(r); err != nil {
		return err
	}
	info, err := s.get(r.Context(), id)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, info)
}

// outcome returns how a run stands.
func outcome(i *engine.Info) *Outcome {
	account := i.Retry()
	if account.Backoff == nil {
		account.Backoff = []int64{}
	}
	return &Outcome{
		ID: i.ID, State: i.State, Step: i.Step, Attempts: i.Attempts, Next: i.Next, Reason: i.Reason, LastError: i.Error,
		Replaced: i.ReplacedBy, Output: i.Output, Retry: &account,
	}
}

// result answers with what a run returned: at once, or when it is over.
func (s *server) result(w http.ResponseWriter, r *http.Request, id string) error {
	q, err := queryOf(r, "wait")
	if err != nil {
		return err
	}
	info, err := s.get(r.Context(), id)
	if err != nil {
		return err
	}
	if q["wait"] != "" && !info.Finished() {
		wait, err := ParseSpan(q["wait"])
		if err != nil || wait > maxWait {
			return bad("wait", "%q is not a duration of at most %v", excerpt(q["wait"]), maxWait)
		}
		if info, err = s.await(w, r, info.ID, wait); err != nil {
			return err
		}
	}
	out := outcome(info)
	switch info.State {
	case "succeeded":
		w.Header().Set("Tideover-Run", info.ID)
		if len(info.Output) == 0 {
			info.Output = json.RawMessage("null")
		}
		return answer(w, http.StatusOK, info.Output)
	case "dead":
		return &Problem{
			Status: http.StatusConflict, Code: CodeDead, Outcome: out,
			Message: cmp.Or(timeoutText(info), "run "+info.ID+" is dead: "+cmp.Or(info.Error, info.Reason)),
			Hint:    "tideover retry " + info.ID + " puts it back to work; if the workflow was changed to repair it, tideover retry --latest " + info.ID,
		}
	case "replaced":
		return &Problem{
			Status: http.StatusConflict, Code: CodeReplaced, Outcome: out, Message: "run " + info.ID + " is dead, and was replaced by " + info.ReplacedBy,
		}
	case "canceled":
		return &Problem{Status: http.StatusConflict, Code: CodeCanceled, Outcome: out, Message: "run " + info.ID + " was canceled"}
	}
	return answer(w, http.StatusAccepted, out)
}

// await waits for the end of a run, and returns how it stands then.
func (s *server) await(w http.ResponseWriter, r *http.Request, id string, wait time.Duration) (*engine.Info, error) {
	ctx, cancel := patient(w, r, wait)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, wait)
	defer stop()
	if info, err := s.engine.Wait(ctx, id); err == nil || ctx.Err() == nil {
		return info, err
	}
	return s.engine.Get(r.Context(), id)
}

// with does something with the run that is meant, and answers how it stands.
func (s *server) with(w http.ResponseWriter, r *http.Request, text string, do func(ctx context.Context, id, by string) error) error {
	who, err := by(r)
	if err != nil {
		return err
	}
	o, err := body(r)
	if err != nil {
		return err
	}
	if err := o.rest(); err != nil {
		return err
	}
	id, err := s.find(r.Context(), text)
	if err != nil {
		return err
	}
	if err := do(r.Context(), id, who); err != nil {
		return s.refusal(r.Context(), id, err)
	}
	info, err := s.engine.Get(r.Context(), id)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, outcome(info))
}

func (s *server) cancel(w http.ResponseWriter, r *http.Request, id string) error {
	return s.with(w, r, id, s.engine.Cancel)
}

func (s *server) retry(w http.ResponseWriter, r *http.Request, id string) error {
	return s.with(w, r, id, s.engine.Retry)
}

func (s *server) wake(w http.ResponseWriter, r *http.Request, id string) error {
	return s.with(w, r, id, s.engine.Wake)
}

func (s *server) replay(w http.ResponseWriter, r *http.Request, id string) error {
	var input json.RawMessage
	return s.repeat(w, r, id, func(ctx context.Context, id, by string) (engine.Started, error) {
		return s.engine.Replay(ctx, id, input, by)
	}, nil, "input", &input)
}

func (s *server) rerun(w http.ResponseWriter, r *http.Request, id string) error {
	var step string
	return s.repeat(w, r, id, func(ctx context.Context, id, by string) (engine.Started, error) {
		return s.engine.Rerun(ctx, engine.RerunRequest{Run: id, Step: step, By: by})
	}, func(info *engine.Info) error { return hasStep("step", info.Workflow, info.Steps, step) }, "step", &step)
}

func (s *server) retryLatest(w http.ResponseWriter, r *http.Request, id string) error {
	var l Latest
	var from *string
	return s.repeat(w, r, id, func(ctx context.Context, id, by string) (engine.Started, error) {
		run, err := s.engine.RetryLatest(ctx, id, engine.Latest{From: l.From, Input: l.Input}, by)
		return run, latestProblem(err)
	}, func(info *engine.Info) error {
		if from == nil {
			return nil
		}
		if l.From = *from; l.Input != nil {
			return bad("input", "from is given too; one of them is possible, since another input changes all results")
		}
		flow, ok := s.engine.Workflow(info.Workflow)
		if !ok {
			return nil // the engine says so
		}
		return hasStep("from", info.Workflow, flow.Steps(), l.From)
	}, "from", &from, "input", &l.Input)
}

// hasStep refuses the name of a step that a workflow has not.
func hasStep(field, workflow string, steps []engine.StepInfo, name string) error {
	var names []string
	for _, s := range steps {
		if s.Name == name {
			return nil
		}
		names = append(names, s.Name)
	}
	p := bad(field, "workflow %q has no step %q", workflow, excerpt(name))
	p.Hint = "there are " + strings.Join(names, ", ")
	return p
}

// latestProblem says what to do if a run can't be continued with the current definition.
func latestProblem(err error) error {
	removed, ok := errors.AsType[*engine.RemovedStepsError](err)
	if !ok {
		return err
	}
	return &Problem{
		Status: http.StatusConflict, Code: CodeState, Message: removed.Error(),
		Hint: "tideover retry --latest --from STEP " + removed.Run + "; the steps are " + strings.Join(removed.Steps, ", "),
	}
}

// repeat starts a run in the place of another.
func (s *server) repeat(w http.ResponseWriter, r *http.Request, text string, do func(ctx context.Context, id, by string) (engine.Started, error), check func(*engine.Info) error, fields ...any) error {
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
	info, err := s.get(r.Context(), text)
	if err != nil {
		return err
	}
	if err := repeatable(info); err != nil {
		return err
	}
	if check != nil {
		if err := check(info); err != nil {
			return err
		}
	}
	run, err := do(r.Context(), info.ID, who)
	if err != nil {
		return err
	}
	w.Header().Set("Location", Prefix+"runs/"+run.ID)
	return answer(w, http.StatusCreated, Started{ID: run.ID})
}

// repeatable refuses runs in whose place no other can be started.
func repeatable(i *engine.Info) error {
	if err := Startable(i.Workflow); err != nil {
		return err
	}
	if i.State == "replaced" {
		return replaced(i)
	}
	return nil
}

// replaced says that another run does the work of this one.
func replaced(i *engine.Info) *Problem {
	p := &Problem{Status: http.StatusConflict, Code: CodeState, Message: "run " + i.ID + " was replaced"}
	if i.ReplacedBy != "" {
		p.Message += " by " + i.ReplacedBy
		p.Hint = "do it with that one"
	}
	return p
}

// refusal says why nothing can be done with a run that is over.
func (s *server) refusal(ctx context.Context, id string, err error) error {
	if !errors.Is(err, engine.ErrState) {
		return err
	}
	info, e := s.engine.Get(ctx, id)
	switch {
	case e != nil:
		return err
	case info.State == "replaced":
		return replaced(info)
	case info.State == "canceled":
		return &Problem{Status: http.StatusConflict, Code: CodeState, Message: "run " + id + " was canceled"}
	}
	return err
}
