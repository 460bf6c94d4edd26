package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

func TestRejectedStartsStartNothing(t *testing.T) {
	t.Parallel()
	f := serve(t)
	large := `{"workflow":"echo","input":"` + strings.Repeat("x", 300<<10) + `"}`
	for _, c := range []struct {
		name, body, field string
		want              int
	}{
		{"a timeout of zero", `{"workflow":"echo","timeout":0}`, "timeout", 400},
		{"a negative timeout", `{"workflow":"echo","timeout":-5}`, "timeout", 400},
		{"a fraction of a second", `{"workflow":"echo","timeout":1.5}`, "timeout", 400},
		{"a whole number that is written as a fraction", `{"workflow":"echo","timeout":2.0}`, "timeout", 400},
		{"an exponent", `{"workflow":"echo","timeout":1e3}`, "timeout", 400},
		{"a timeout that is given twice", `{"workflow":"echo","timeout":5,"timeout":6}`, "timeout", 400},
		{"a timeout that is given twice alike", `{"workflow":"echo","timeout":5,"timeout":5}`, "timeout", 400},
		{"a timeout in other letters", `{"workflow":"echo","timeout":5,"Timeout":6}`, "Timeout", 400},
		{"a timeout that is escaped to hide it", `{"workflow":"echo","timeout":5,"time\u006fut":6}`, "timeout", 400},
		{"a timeout that is a list", `{"workflow":"echo","timeout":[5]}`, "timeout", 400},
		{"a timeout that is null", `{"workflow":"echo","timeout":null}`, "timeout", 400},
		{"a timeout that is true", `{"workflow":"echo","timeout":true}`, "timeout", 400},
		{"a timeout that is an empty text", `{"workflow":"echo","timeout":""}`, "timeout", 400},
		{"a timeout in words", `{"workflow":"echo","timeout":"soon"}`, "timeout", 400},
		{"a text without a unit", `{"workflow":"echo","timeout":"5"}`, "timeout", 400},
		{"a text of zero", `{"workflow":"echo","timeout":"0s"}`, "timeout", 400},
		{"a negative text", `{"workflow":"echo","timeout":"-2s"}`, "timeout", 400},
		{"a timeout of a thousand years", `{"workflow":"echo","timeout":31536000000}`, "timeout", 400},
		{"a timeout beyond all numbers", `{"workflow":"echo","timeout":99999999999999999999}`, "timeout", 400},
		{"no workflow", `{}`, "workflow", 400},
		{"no body", ``, "workflow", 400},
		{"an unknown workflow", `{"workflow":"ech"}`, "workflow", 400},
		{"a workflow that is a number", `{"workflow":5}`, "workflow", 400},
		{"an unknown field", `{"workflow":"echo","inputs":1}`, "inputs", 400},
		{"a key that is too long", `{"workflow":"echo","key":"` + strings.Repeat("k", 513) + `"}`, "key", 400},
		{"a key with the end of a text in it", `{"workflow":"echo","key":"a\u0000b"}`, "key", 400},
		{"a key of two lines", `{"workflow":"echo","key":"a\nb"}`, "key", 400},
		{"a key that controls a terminal", `{"workflow":"echo","key":"a\u009b2J"}`, "key", 400},
		{"half a second as a number", `{"workflow":"echo","timeout":0.5}`, "timeout", 400},
		{"a whole number with a point", `{"workflow":"echo","timeout":5.0}`, "timeout", 400},
		{"a number with an exponent", `{"workflow":"echo","timeout":1e3}`, "timeout", 400},
		{"both times", `{"workflow":"echo","in":5,"at":"2030-01-01T00:00:00Z"}`, "in", 400},
		{"a time that is none", `{"workflow":"echo","at":"tomorrow"}`, "at", 400},
		{"a time of long ago", `{"workflow":"echo","at":"0001-01-01T00:00:00Z"}`, "at", 400},
		{"a time that never comes", `{"workflow":"echo","at":"9999-01-01T00:00:00Z"}`, "at", 400},
		{"a name twice in the input", `{"workflow":"echo","input":{"a":[{"b":1,"b":2}]}}`, "input.a.b", 400},
		{"an input that the steps can't read", `{"workflow":"perm","input":{"text":5}}`, "input", 400},
		{"something after the object", `{"workflow":"echo"} {}`, "", 400},
		{"half an object", `{"workflow":"echo"`, "", 400},
		{"a list", `[]`, "", 400},
		{"nothing", `null`, "", 400},
		{"bytes that are no text", "{\"workflow\":\"echo\",\"key\":\"\xff\"}", "", 400},
		{"an input that is too large to store", large, "", 413},
		{"a body that is too large to read", `{"workflow":"echo","input":"` + strings.Repeat("x", 1<<20) + `"}`, "", 413},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := f.ask(false, "POST", Prefix+"runs", c.body)
			if p := got.problem(t); got.status != c.want || p.Field != c.field || p.Message == "" || p.Status != c.want || p.Code == "" {
				t.Errorf("POST runs %.100s: %d %.300s, want %d and the field %q", c.body, got.status, got.text, c.want, c.field)
			}
		})
	}
	stats, err := f.engine.Stats(t.Context())
	if err != nil || len(stats.Workflows) != 0 {
		t.Errorf("something was started: %+v, %v", stats, err)
	}
}

func TestValidStarts(t *testing.T) {
	t.Parallel()
	f := serve(t)
	for _, c := range []struct{ name, body, output string }{
		{"an input comes back", `{"workflow":"echo","input":{"a":1}}`, `{"a":1}`},
		{"no input is null", `{"workflow":"echo"}`, `null`},
		{"null is null", `{"workflow":"echo","input":null}`, `null`},
		{"whole seconds", `{"workflow":"echo","input":1,"timeout":20}`, `1`},
		{"a duration", `{"workflow":"echo","input":2,"timeout":"1m30s"}`, `2`},
		{"days", `{"workflow":"echo","input":3,"timeout":"2d"}`, `3`},
		{"a duration with a fraction", `{"workflow":"echo","input":6,"timeout":"1.5m"}`, `6`},
		{"soon", `{"workflow":"echo","input":4,"in":"1ms"}`, `4`},
		{"a key of any characters that can be seen", `{"workflow":"echo","input":7,"key":"Bestellung Nº 7/ä"}`, `7`},
		{"at a time that has passed", `{"workflow":"echo","input":5,"at":"2020-01-01T00:00:00Z"}`, `5`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := f.ask(false, "POST", Prefix+"runs", c.body)
			var s control.Started
			if err := json.Unmarshal([]byte(got.text), &s); err != nil || got.status != 201 || s.Existing || got.header.Get("Location") != Prefix+"runs/"+s.ID {
				t.Fatalf("POST runs %s: %d %s %v", c.body, got.status, got.text, got.header)
			}
			if got := f.ask(false, "GET", Prefix+"runs/"+s.ID+"/result?wait=20s", ""); got.status != 200 || strings.TrimSpace(got.text) != c.output {
				t.Errorf("result: %d %s, want %s", got.status, got.text, c.output)
			}
		})
	}
}

func TestAKeyStartsOnce(t *testing.T) {
	t.Parallel()
	f := serve(t)
	c := f.client()
	first, err := c.Start(t.Context(), control.Start{Workflow: "gate", Key: "order/4711"})
	if err != nil || first.Existing {
		t.Fatalf("first: %+v, %v", first, err)
	}
	again := f.ask(false, "POST", Prefix+"runs", `{"workflow":"gate","key":"order/4711"}`)
	if again.status != 200 || !strings.Contains(again.text, `"existing":true`) || !strings.Contains(again.text, first.ID) {
		t.Errorf("again: %d %s", again.status, again.text)
	}
	if !strings.Contains(again.text, `"input_differs":false`) {
		t.Errorf("the same start again: %s", again.text)
	}
	again = f.ask(false, "POST", Prefix+"runs", `{"workflow":"gate","key":"order/4711","input":{"n":2}}`)
	if again.status != 200 || !strings.Contains(again.text, `"input_differs":true`) || !strings.Contains(again.text, first.ID) {
		t.Errorf("again with another input: %d %s", again.status, again.text)
	}
	if other := f.ask(false, "POST", Prefix+"runs", `{"workflow":"echo","key":"order/4711"}`); other.status != 409 || other.problem(t).Code != control.CodeConflict {
		t.Errorf("of another workflow: %d %s", other.status, other.text)
	}
	if info, err := c.Get(t.Context(), "order/4711"); err != nil || info.ID != first.ID {
		t.Errorf("by key: %+v, %v", info, err)
	}
	if info, err := c.Get(t.Context(), first.ID); err != nil || info.Source != "tester" {
		t.Errorf("who started it: %+v, %v", info, err)
	}
}

func TestRunsAreFoundByTheBeginningOfTheirID(t *testing.T) {
	t.Parallel()
	f := serve(t)
	one, two := f.start("echo", `1`), f.start("echo", `2`)
	f.listed("succeeded", 2)
	same := 0
	for one[same] == two[same] {
		same++
	}
	c := f.client()
	if info, err := c.Get(t.Context(), one[:same+1]); err != nil || info.ID != one {
		t.Errorf("Get(%q) = %+v, %v; want %s", one[:same+1], info, err, one)
	}
	_, err := c.Get(t.Context(), one[:same])
	if p, ok := errors.AsType[*control.Error](err); !ok || p.Status != 409 || p.Code != control.CodeAmbiguous || len(p.Candidates) != 2 {
		t.Errorf("Get(%q): %+v", one[:same], err)
	}
	for _, id := range []string{"nothing-like-it", "01arz3ndektsv4rrffq69g5fav", "a/b", "%2e%2e", "\x1b[31m", "\x00", strings.Repeat("0", 5000)} {
		if _, err := c.Get(t.Context(), id); err == nil || !isCode(err, control.CodeNotFound) {
			t.Errorf("Get(%q): %v", id, err)
		}
	}
}

func isCode(err error, code control.Code) bool {
	p, ok := errors.AsType[*control.Error](err)
	return ok && p.Code == code
}

func TestResults(t *testing.T) {
	t.Parallel()
	f := serve(t)
	c := f.client()

	waiting := f.start("later", `{"fail":1,"text":"not yet"}`)
	testwait.Until(t, "the wait", func() bool { i, _ := f.engine.Get(t.Context(), waiting); return i.State == "waiting" })
	got := f.ask(false, "GET", Prefix+"runs/"+waiting+"/result?wait=10ms", "")
	var o control.Outcome
	if err := json.Unmarshal([]byte(got.text), &o); err != nil || got.status != 202 || o.State != "waiting" || o.Next == nil || o.LastError != "not yet" {
		t.Errorf("of one that waits: %d %s", got.status, got.text)
	}

	dead := f.start("never", `{"fail":9,"text":"boom"}`)
	_, err := c.Result(t.Context(), dead)
	p, ok := errors.AsType[*control.Error](err)
	if !ok || p.Status != 409 || p.Code != control.CodeDead || p.Outcome == nil || p.Outcome.Reason != "attempts" || p.Outcome.LastError != "boom" ||
		p.Outcome.Retry.MaxRetries != 1 || p.Outcome.Retry.Attempt != 1 || len(p.Outcome.Retry.Backoff) != 1 {
		t.Errorf("of a dead one: %+v", err)
	}
	if text := f.ask(false, "GET", Prefix+"runs/"+dead+"/result", "").text; !strings.Contains(text, `"backoffHistory":[0]`) {
		t.Errorf("the history of the waits: %s", text)
	}

	canceled := f.start("gate", `{}`)
	if o, err := c.Cancel(t.Context(), canceled); err != nil || o.State != "canceled" {
		t.Fatalf("cancel: %+v, %v", o, err)
	}
	if _, err := c.Result(t.Context(), canceled); !isCode(err, control.CodeCanceled) {
		t.Errorf("of a canceled one: %v", err)
	}
	for _, wait := range []string{"x", "-1s", "11m", "0s"} {
		if got := f.ask(false, "GET", Prefix+"runs/"+waiting+"/result?wait="+wait, ""); got.status != 400 || got.problem(t).Field != "wait" {
			t.Errorf("wait=%s: %d %s", wait, got.status, got.text)
		}
	}
}

func TestResultOfARunThatTimesOut(t *testing.T) {
	t.Parallel()
	f := serve(t)
	c := f.client()
	s, err := c.Start(t.Context(), control.Start{Workflow: "gate", Timeout: control.Span(200 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Result(t.Context(), s.ID)
	if p, ok := errors.AsType[*control.Error](err); !ok || p.Code != control.CodeDead || p.Message != "Operation timed out after 200ms" {
		t.Errorf("result: %v", err)
	}
	var last control.Event
	end, err := c.Follow(t.Context(), s.ID, func(e control.Event) { last = e })
	if err != nil || end.State != "dead" || last.Message != "Operation timed out after 200ms" {
		t.Errorf("feedback: %+v, %v, last %+v", end, err, last)
	}
}

func TestControl(t *testing.T) {
	t.Parallel()
	f := serve(t)
	c := f.client()

	later := f.start("later", `{"fail":1,"text":"once"}`)
	testwait.Until(t, "the wait", func() bool { i, _ := f.engine.Get(t.Context(), later); return i.State == "waiting" })
	if _, err := c.Retry(t.Context(), later); !isCode(err, control.CodeState) {
		t.Errorf("retry of one that waits: %v", err)
	}
	if _, err := c.Wake(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	info := f.over(later)
	if info.State != "succeeded" || info.Steps[0].Attempts[0].Wait.Woken != "tester" {
		t.Errorf("woken: %+v", info)
	}
	if _, err := c.Wake(t.Context(), later); !isCode(err, control.CodeState) {
		t.Errorf("wake of one that is over: %v", err)
	}
	if _, err := c.Cancel(t.Context(), later); !isCode(err, control.CodeState) {
		t.Errorf("cancel of one that is over: %v", err)
	}

	dead := f.start("never", `{"fail":3,"text":"thrice"}`)
	f.over(dead)
	if _, err := c.Retry(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	if info := f.over(dead); info.State != "succeeded" || info.Attempts != 4 {
		t.Errorf("retried: %+v", info)
	}

	dead = f.start("never", `{"fail":9,"text":"x"}`)
	f.over(dead)
	s, err := c.Replay(t.Context(), dead, json.RawMessage(`{"text":"better"}`))
	if err != nil {
		t.Fatal(err)
	}
	if info := f.over(s.ID); string(info.Output) != `"did better"` || info.ReplayOf != dead {
		t.Errorf("replayed: %+v", info)
	}
	if _, err := c.Result(t.Context(), dead); !isCode(err, control.CodeReplaced) {
		t.Errorf("result of one that was replaced: %v", err)
	}
	if end, err := c.Follow(t.Context(), dead, func(control.Event) {}); err != nil || end.State != "replaced" || end.Replaced != s.ID {
		t.Errorf("feedback of one that was replaced: %+v, %v", end, err)
	}
	if _, err := c.Retry(t.Context(), dead); !isCode(err, control.CodeState) {
		t.Errorf("retry of one that was replaced: %v", err)
	}

	two := f.start("two", `{"text":"both"}`)
	f.over(two)
	if _, err := c.Rerun(t.Context(), two, "third"); !isCode(err, control.CodeBadRequest) {
		t.Errorf("rerun from nowhere: %v", err)
	}
	s, err = c.Rerun(t.Context(), two, "second")
	if err != nil {
		t.Fatal(err)
	}
	if info := f.over(s.ID); info.Attempts != 1 || info.State != "succeeded" {
		t.Errorf("rerun: %+v", info)
	}
	for _, path := range []string{"cancel", "retry", "wake", "replay", "rerun", "retry-latest"} {
		if got := f.ask(false, "POST", Prefix+"runs/"+two+"/"+path, `{"force":true}`); got.status != 400 || got.problem(t).Field != "force" {
			t.Errorf("%s with a field that is unknown: %d %s", path, got.status, got.text)
		}
	}
}

// TestRetryLatest continues dead runs with a new, repaired definition of their workflow.
func TestRetryLatest(t *testing.T) {
	t.Parallel()
	f := serve(t)
	c := f.client()
	register := func(steps ...string) {
		t.Helper()
		w, err := engine.NewWorkflow("two", engine.Step(steps[0], f.work, engine.Policy("fixed(0s) attempts=1")),
			engine.Step(steps[1], func(context.Context, job) (string, error) { return "repaired", nil }, engine.After(steps[0]), engine.Version("2")))
		if err == nil {
			err = f.engine.Register(w)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w, err := engine.NewWorkflow("two", engine.Step("first", f.work, engine.Policy("fixed(0s) attempts=1")),
		engine.Step("second", func(context.Context, job) (string, error) { return "", retry.Permanent(errors.New("a mistake")) }, engine.After("first")))
	if err == nil {
		err = f.engine.Register(w)
	}
	if err != nil {
		t.Fatal(err)
	}
	var dead []string
	for range 5 {
		id := f.start("two", `{"text":"x"}`)
		f.over(id)
		dead = append(dead, id)
	}
	f.listed("dead", 5)
	_, err = c.Result(t.Context(), dead[0])
	if p, ok := errors.AsType[*control.Error](err); !ok || !strings.Contains(p.Hint, "tideover retry --latest "+dead[0]) {
		t.Errorf("the result of a dead run: %v", err)
	}

	register("renamed", "second")
	_, err = c.RetryLatest(t.Context(), dead[0], control.Latest{})
	if p, ok := errors.AsType[*control.Error](err); !ok || p.Code != control.CodeState || !strings.Contains(p.Message, "step first of run "+dead[0]) || !strings.Contains(p.Hint, "--from STEP "+dead[0]+"; the steps are renamed, second") {
		t.Errorf("a step that was renamed: %v", err)
	}
	d, err := c.RetryMany(t.Context(), control.Bulk{IDs: dead[:2], Latest: true})
	if err != nil || d.Done != 0 || len(d.Failed) != 2 || !strings.Contains(d.Failed[1].Error, "step first of run "+dead[1]) {
		t.Errorf("many: %+v, %v", d, err)
	}
	s, err := c.RetryLatest(t.Context(), dead[0], control.Latest{From: "renamed"})
	if err != nil {
		t.Fatal(err)
	}
	if i := f.over(s.ID); i.State != "succeeded" || i.Attempts != 2 || i.ReplayOf != dead[0] {
		t.Errorf("from a step: %+v", i)
	}

	register("first", "second")
	for body, field := range map[string]string{`{"from":"third"}`: "from", `{"from":""}`: "from", `{"from":"first","input":{}}`: "input", `{"step":"first"}`: "step"} {
		if got := f.ask(false, "POST", Prefix+"runs/"+dead[1]+"/retry-latest", body); got.status != 400 || got.problem(t).Field != field {
			t.Errorf("%s: %d %s, want 400 and the field %s", body, got.status, got.text, field)
		}
	}
	if s, err = c.RetryLatest(t.Context(), dead[1], control.Latest{}); err != nil {
		t.Fatal(err)
	}
	if i := f.over(s.ID); i.State != "succeeded" || i.Attempts != 1 {
		t.Errorf("with the results: %+v", i)
	}
	if _, err := c.RetryLatest(t.Context(), dead[1], control.Latest{}); !isCode(err, control.CodeState) {
		t.Errorf("a run that was replaced: %v", err)
	}
	if s, err = c.RetryLatest(t.Context(), dead[2], control.Latest{Input: json.RawMessage(`{"text":"y"}`)}); err != nil {
		t.Fatal(err)
	}
	if i := f.over(s.ID); i.State != "succeeded" || i.Attempts != 2 || string(i.Input) != `{"text":"y"}` {
		t.Errorf("with another input: %+v", i)
	}
	d, err = c.RetryMany(t.Context(), control.Bulk{Filter: &control.Filter{Workflow: "two"}, Latest: true})
	if err != nil || d.Done != 2 || len(d.Failed) > 0 {
		t.Errorf("many: %+v, %v", d, err)
	}
	for _, id := range dead[3:] {
		info, err := c.Get(t.Context(), id)
		if err != nil || info.State != "replaced" || f.over(info.ReplacedBy).State != "succeeded" {
			t.Errorf("one of many: %+v, %v", info, err)
		}
	}
	if got := f.ask(false, "POST", Prefix+"runs/cancel", `{"ids":["x"],"latest":true}`); got.status != 400 || got.problem(t).Field != "latest" {
		t.Errorf("cancel: %d %s", got.status, got.text)
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	f := serve(t)
	c := f.client()
	for range 3 {
		f.over(f.start("echo", `1`))
	}
	for i := range 2 {
		f.over(f.start("never", fmt.Sprintf(`{"fail":9,"text":"no answer of host %d"}`, i)))
	}
	f.listed("succeeded", 3)
	f.listed("dead", 2)
	for _, c := range []struct {
		name, query string
		want        int
	}{
		{"all", "", 5},
		{"by state", "state=dead", 2},
		{"by several states", "state=dead,succeeded", 5},
		{"by workflow", "workflow=echo", 3},
		{"by error", "error=no+answer+of+host+7", 2},
		{"by attempts", "min_attempts=2", 2},
		{"since a while", "since=1h", 5},
		{"until a while ago", "until=1h", 0},
		{"since a time", "since=2020-01-01T00:00:00Z", 5},
		{"with a limit", "limit=2", 2},
		{"oldest first", "order=oldest", 5},
		{"with what is empty as if it were not there", "state=&workflow=&search=&error=&since=&min_attempts=&limit=", 5},
	} {
		got := f.ask(false, "GET", Prefix+"runs?"+c.query, "")
		var page engine.Page
		if err := json.Unmarshal([]byte(got.text), &page); err != nil || got.status != 200 || len(page.Runs) != c.want {
			t.Errorf("%s: %s: %d %s, want %d runs", c.name, c.query, got.status, got.text, c.want)
		}
	}
	seen := map[string]bool{}
	for after := ""; ; {
		page, err := c.List(t.Context(), control.Filter{Limit: 2, After: after, States: []string{"dead", "succeeded"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Runs {
			seen[r.ID] = true
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(seen) != 5 {
		t.Errorf("page by page: %d runs, want 5", len(seen))
	}
	for query, field := range map[string]string{
		"state=ded": "state", "order=best": "order", "limit=0": "limit", "limit=1001": "limit", "limit=x": "limit", "since=never": "since",
		"min_attempts=-1": "min_attempts", "states=dead": "states", "state=dead&state=queued": "state", "after=nowhere": "after", "workflow=%00": "workflow",
	} {
		if got := f.ask(false, "GET", Prefix+"runs?"+query, ""); got.status != 400 || got.problem(t).Field != field {
			t.Errorf("runs?%s: %d %s, want 400 and the field %s", query, got.status, got.text, field)
		}
	}
	dead, err := c.Dead(t.Context(), 0, false)
	groups := dead.Groups
	if err != nil || len(groups) != 1 || groups[0].Count != 2 || groups[0].Workflow != "never" || groups[0].Pattern == "" {
		t.Errorf("dead: %+v, %v", groups, err)
	}
	s, err := c.Status(t.Context())
	if err != nil || s.Version != "v1.2.3" || len(s.Workflows) != 2 || s.Workflows[1].States["dead"] != 2 || s.Workflows[0].Totals.Succeeded != 3 {
		t.Errorf("status: %+v, %v", s, err)
	}
}

func TestBulk(t *testing.T) {
	t.Parallel()
	f := serve(t)
	c := f.client()
	var dead []string
	for i := range 5 {
		dead = append(dead, f.start("never", fmt.Sprintf(`{"fail":2,"text":"host %d is away"}`, i)))
	}
	other := f.start("never", `{"fail":9,"text":"disk full"}`)
	for _, id := range append(dead, other) {
		f.over(id)
	}
	f.listed("dead", 6)
	for body, field := range map[string]string{
		`{}`: "filter", `{"filter":{}}`: "filter", `{"ids":[]}`: "filter", `{"ids":["a"],"filter":{"workflow":"x"}}`: "filter",
		`{"filter":{"state":["running"]}}`: "state", `{"filter":{"workflow":"x","order":"next"}}`: "order", `{"filter":{"state":"dead"}}`: "state",
		`{"filter":{"workflow":"x"},"limit":0}`: "limit", `{"filter":{"workflow":"x"},"limit":1001}`: "limit", `{"ids":["a"],"after":"x"}`: "after",
		`{"filter":{"workflow":"x","workflow":"y"}}`: "filter.workflow", `{"filter":{"min_attempts":-1}}`: "min_attempts",
		`{"filter":{"workflow":"x"},"after":"nowhere"}`: "after",
		`{"filter":{"workflow":""}}`:                    "workflow", `{"filter":{"workflow":" "}}`: "workflow", `{"filter":{"search":""}}`: "search", `{"filter":{"search":"\t "}}`: "search",
		`{"filter":{"error":""}}`: "error", `{"filter":{"min_attempts":0}}`: "min_attempts", `{"filter":{"state":[]}}`: "state", `{"filter":{"state":[""]}}`: "state",
		`{"filter":{"since":""}}`: "since", `{"filter":{"until":""}}`: "until", `{"filter":{"state":["dead"],"workflow":""}}`: "workflow",
		`{"ids":[""]}`: "ids",
	} {
		for _, verb := range []string{"retry", "cancel"} {
			if verb == "cancel" && strings.Contains(body, "running") {
				continue
			}
			if got := f.ask(false, "POST", Prefix+"runs/"+verb, body); got.status != 400 || got.problem(t).Field != field {
				t.Errorf("%s %s: %d %s, want 400 and the field %s", verb, body, got.status, got.text, field)
			}
		}
	}
	f.listed("dead", 6)
	total := control.Done{}
	b := control.Bulk{Filter: &control.Filter{Workflow: "never", Error: "host 3 is away"}, Limit: 2}
	for calls := 1; ; calls++ {
		d, err := c.RetryMany(t.Context(), b)
		if err != nil || d.Matched > 2 || calls > 4 {
			t.Fatalf("call %d: %+v, %v", calls, d, err)
		}
		total.Matched, total.Done = total.Matched+d.Matched, total.Done+d.Done
		if b.After = d.Next; b.After == "" {
			break
		}
	}
	if total.Matched != 5 || total.Done != 5 {
		t.Errorf("by error: %+v, want 5", total)
	}
	for _, id := range dead {
		if info := f.over(id); info.State != "succeeded" {
			t.Errorf("%s: %+v", id, info)
		}
	}
	d, err := c.RetryMany(t.Context(), control.Bulk{IDs: []string{dead[0], "unknown", other}})
	if err != nil || d.Matched != 3 || d.Done != 1 || len(d.Failed) != 2 || d.Failed[0].ID != dead[0] || d.Failed[1].ID != "unknown" {
		t.Errorf("by id: %+v, %v", d, err)
	}
	f.over(other)
	var waiting []string
	for range 3 {
		waiting = append(waiting, f.start("later", `{"fail":1,"text":"x"}`))
	}
	f.listed("waiting", 3)
	f.listed("dead", 1)
	if d, err := c.CancelMany(t.Context(), control.Bulk{Filter: &control.Filter{Since: time.Now().Add(-time.Hour)}}); err != nil || d.Done != 3 {
		t.Errorf("cancel: %+v, %v", d, err)
	}
	for _, id := range waiting {
		if info := f.over(id); info.State != "canceled" {
			t.Errorf("%s: %+v", id, info)
		}
	}
	if info := f.over(other); info.State != "dead" {
		t.Errorf("a dead run outside the filter was canceled: %+v", info)
	}
}

func TestMethodsPathsAndTypes(t *testing.T) {
	t.Parallel()
	f := serve(t)
	for _, c := range []struct {
		name, method, path, body, kind, allow string
		want                                  int
	}{
		{"nothing is there", "GET", "nothing", "", "", "", 404},
		{"nor below a run", "GET", "runs/x/nothing", "", "", "", 404},
		{"a run without a name", "GET", "runs//result", "", "", "", 404},
		{"no deleting", "DELETE", "runs", "", "", "GET, POST", 405},
		{"no writing to the status", "POST", "status", "{}", "", "GET", 405},
		{"a run called retry may be shown", "GET", "runs/retry", "", "", "", 404},
		{"but not changed", "PUT", "runs/retry", "", "", "GET, POST", 405},
		{"cancel is not to be read", "GET", "runs/x/cancel", "", "", "POST", 405},
		{"a form", "POST", "runs", "workflow=echo", "application/x-www-form-urlencoded", "", 415},
		{"plain text", "POST", "runs", `{"workflow":"echo"}`, "text/plain", "", 415},
		{"no type", "POST", "runs", `{"workflow":"echo"}`, " ", "", 415},
		{"JSON with a charset", "POST", "runs", `{"workflow":"echo"}`, "application/json; charset=utf-8", "", 201},
		{"a query where none is", "GET", "status?verbose=1", "", "", "", 400},
		{"a body that is too large", "POST", "runs/x/cancel", strings.Repeat("x", httpserver.DefaultMaxBody+1), "", "", 413},
	} {
		t.Run(c.name, func(t *testing.T) {
			var header []string
			if c.kind != "" {
				header = []string{"Content-Type", c.kind}
			}
			got := f.ask(false, c.method, Prefix+c.path, c.body, header...)
			if got.status != c.want || got.header.Get("Allow") != c.allow {
				t.Errorf("%s %s: %d %s, Allow %q; want %d, %q", c.method, c.path, got.status, got.text, got.header.Get("Allow"), c.want, c.allow)
			}
			if got.status >= 400 && got.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("Content-Type is %q", got.header.Get("Content-Type"))
			}
		})
	}
	if got := f.ask(false, "HEAD", Prefix+"status", ""); got.status != 200 || got.text != "" {
		t.Errorf("HEAD status: %d %q", got.status, got.text)
	}
	if got := f.ask(false, "POST", Prefix+"runs", `{"workflow":"echo"}`, "Tideover-By", strings.Repeat("x", 65)); got.status != 400 {
		t.Errorf("a long name: %d %s", got.status, got.text)
	}
}

func TestWorkflowsAndSchedules(t *testing.T) {
	t.Parallel()
	f := serve(t)
	c := f.client()
	if list, err := c.Schedules(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("none: %+v, %v", list, err)
	}
	began := time.Now()
	if err := f.engine.SetSchedules(t.Context(), []engine.Schedule{{Name: "nightly", Workflow: "two", Cron: "0 3 * * *"}}); err != nil {
		t.Fatal(err)
	}
	list, err := c.Schedules(t.Context())
	if err != nil || len(list) != 1 || list[0].Next.Before(began) {
		t.Errorf("schedules: %+v, %v", list, err)
	}
	all, err := c.Workflows(t.Context())
	flows := all.Workflows
	if err != nil || len(flows) != 7 {
		t.Fatalf("workflows: %+v, %v", flows, err)
	}
	two := flows[len(flows)-1]
	if two.Name != "two" || two.Timeout != time.Hour || len(two.Steps) != 2 || two.Steps[1].Needs[0] != "first" ||
		two.Steps[1].Policy != "fixed(0s) attempts=1" || two.Next == nil || two.Schedules[0] != "nightly" {
		t.Errorf("two: %+v", two)
	}
	paused, err := c.PauseSchedule(t.Context(), "nightly")
	if err != nil || paused.Paused == nil || paused.Paused.By == "" || !paused.Next.IsZero() {
		t.Errorf("pause: %+v, %v", paused, err)
	}
	if all, err = c.Workflows(t.Context()); err != nil || all.Workflows[6].Next != nil {
		t.Errorf("a paused schedule has a next start: %+v, %v", all.Workflows[6], err)
	}
	resumed, err := c.ResumeSchedule(t.Context(), "nightly")
	if err != nil || resumed.Paused != nil || resumed.Next.Before(began) {
		t.Errorf("resume: %+v, %v", resumed, err)
	}
	for range 2 { // the second pause changes nothing
		w, err := c.PauseWorkflow(t.Context(), "two")
		if err != nil || w.Name != "two" || len(w.Steps) != 2 || w.Paused == nil || w.Paused.By == "" {
			t.Errorf("pause of a workflow: %+v, %v", w, err)
		}
	}
	run, err := c.RunSchedule(t.Context(), "nightly")
	if err != nil {
		t.Fatal(err)
	}
	if i, err := c.Get(t.Context(), run.ID); err != nil || i.Workflow != "two" || i.State != engine.StateQueued && i.State != engine.StateScheduled || i.WorkflowPaused == nil {
		t.Errorf("run now: %+v, %v", i, err)
	}
	if page, err := c.List(t.Context(), control.Filter{Workflow: "two"}); err != nil || page.Runs[0].WorkflowPaused == nil {
		t.Errorf("in a list: %+v, %v", page, err)
	}
	if w, err := c.ResumeWorkflow(t.Context(), "two"); err != nil || w.Paused != nil {
		t.Errorf("resume of a workflow: %+v, %v", w, err)
	}
	if _, err := c.Result(t.Context(), run.ID); err != nil {
		t.Errorf("after that: %v", err)
	}
	if _, err := c.PauseSchedule(t.Context(), "weekly"); err == nil || !strings.Contains(err.Error(), `no schedule "weekly"`) {
		t.Errorf("an unknown schedule: %v", err)
	}
}

func TestBackupIsForTheMachineItself(t *testing.T) {
	t.Parallel()
	f := serve(t)
	dir := t.TempDir() + "/copy"
	body := fmt.Sprintf(`{"dir":%q}`, dir)
	if got := f.ask(true, "POST", Prefix+"backup", body, "Authorization", "Bearer "+token); got.status != 403 {
		t.Errorf("over TCP: %d %s", got.status, got.text)
	}
	for _, bad := range []string{`{"dir":"relative"}`, `{"dir":""}`, `{}`, `{"dir":5}`} {
		if got := f.ask(false, "POST", Prefix+"backup", bad); got.status != 400 || got.problem(t).Field != "dir" {
			t.Errorf("%s: %d %s", bad, got.status, got.text)
		}
	}
	file, link, full := f.dir+"/log.db", t.TempDir()+"/link", t.TempDir()
	if err := errors.Join(os.Symlink(f.dir, link), os.WriteFile(full+"/mine", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for dir, part := range map[string]string{
		f.dir: "in the data folder", f.dir + "/copy": "in the data folder", f.dir + "/a/../b/c": "in the data folder",
		link + "/copy": "in the data folder", file: "in the data folder",
		full: "is not empty: it has \"mine\"", full + "/mine": "not a directory", full + "/mine/copy": "not a directory",
		full + "/" + strings.Repeat("x", 300): "name too long", "relative": "absolute", full + "\x00": "absolute",
	} {
		body, err := json.Marshal(map[string]string{"dir": dir})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.ask(false, "POST", Prefix+"backup", string(body)); got.status != 400 || got.problem(t).Field != "dir" || !strings.Contains(got.problem(t).Message, part) {
			t.Errorf("%.100q: %d %s, want 400 and %q", dir, got.status, got.text, part)
		}
	}
	if os.Geteuid() != 0 { // root ignores file permissions
		closed := t.TempDir()
		if err := os.Chmod(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{closed, closed + "/copy", closed + "/a/b"} {
			if got := f.ask(false, "POST", Prefix+"backup", fmt.Sprintf(`{"dir":%q}`, dir)); got.status != 400 || got.problem(t).Field != "dir" {
				t.Errorf("without permission: %s: %d %s", dir, got.status, got.text)
			}
		}
	}
	id := f.start("echo", `"kept"`)
	f.over(id)
	if _, err := f.client().BackupWithout(t.Context(), dir, nil); err != nil {
		t.Fatal(err)
	}
	copied, err := engine.Open(t.Context(), engine.Config{Dir: dir, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close(t.Context())
	if info, err := copied.Get(t.Context(), id); err != nil || string(info.Output) != `"kept"` {
		t.Errorf("in the copy: %+v, %v", info, err)
	}
}

func TestAnEngineThatHasStoppedIsUnhealthy(t *testing.T) {
	t.Parallel()
	f := serve(t)
	if got := f.ask(true, "GET", "/healthz", ""); got.status != 200 || strings.TrimSpace(got.text) != `{"ok":true}` {
		t.Errorf("healthy: %d %s", got.status, got.text)
	}
	if err := f.engine.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.ask(true, "GET", "/healthz", ""); got.status != http.StatusServiceUnavailable || !strings.Contains(got.text, "stopped") {
		t.Errorf("unhealthy: %d %s", got.status, got.text)
	}
	if got := f.ask(false, "POST", Prefix+"runs", `{"workflow":"echo"}`); got.status != 503 || got.problem(t).Code != control.CodeClosed {
		t.Errorf("start: %d %s", got.status, got.text)
	}
}

// The API must reject half of a surrogate pair in a key. encoding/json would replace it by U+FFFD, so
// that different keys would become equal, and the second start would be ignored.
func TestKeyWithHalfASurrogatePairIsRejected(t *testing.T) {
	t.Parallel()
	f := serve(t)
	for _, key := range []string{`\ud800`, `\udbff`, `order-\udc00-1`} {
		got := f.ask(false, "POST", Prefix+"runs", `{"workflow":"echo","key":"`+key+`"}`)
		if p := got.problem(t); got.status != 400 || p.Field != "key" || !strings.Contains(p.Message, "half of a surrogate pair") {
			t.Errorf("the key %s: %d %s", key, got.status, got.text)
		}
	}
	if got := f.ask(false, "POST", Prefix+"runs", `{"workflow":"echo","key":"\ud83d\ude00"}`); got.status != 201 {
		t.Errorf("a whole character: %d %s", got.status, got.text)
	}
}
