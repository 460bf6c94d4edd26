package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

var htmx = []string{"HX-Request", "true"}

func TestActions(t *testing.T) {
	t.Parallel()
	b := newTestSite(t, func(o *setup) { o.actor = "alice" })
	none := url.Values{}

	t.Run("retry now ends the wait", func(t *testing.T) {
		id := b.start("slow", job{Fail: 1})
		b.until(id, "waiting")
		has(t, "the question", b.page("/runs/"+id+"/wake"), "Wake this run?", `method="post"`, `action="/runs/`+id+`/wake"`)
		if i, _ := b.e.Get(t.Context(), id); i.State != "waiting" {
			t.Error("asking did it")
		}
		if a := b.request("POST", "/runs/"+id+"/wake", none); a.to != "/runs/"+id+"?did=wake" {
			t.Errorf("POST: %d to %q", a.status, a.to)
		}
		b.until(id, "succeeded")
		has(t, "the run", b.page("/runs/"+id+"?did=wake"), "The wait was ended;", "ended early by", "alice")
	})
	t.Run("cancel", func(t *testing.T) {
		id := b.start("slow", job{Hold: true})
		if a := b.request("POST", "/runs/"+id+"/cancel", none); a.status != http.StatusSeeOther {
			t.Errorf("POST: %d", a.status)
		}
		b.until(id, "canceled")
		has(t, "the run", b.page("/runs/"+id), "canceled", "alice", "Retry from a step")
		if a := b.request("POST", "/runs/"+id+"/cancel", none); a.status != http.StatusConflict {
			t.Errorf("a second time: %d, want 409", a.status)
		}
	})
	t.Run("a dialog stays on its page", func(t *testing.T) {
		id := b.dead(1, job{})[0]
		a := b.request("GET", "/runs/"+id+"/retry", nil, htmx...)
		has(t, "the question", a.body, `hx-post="/runs/`+id+`/retry"`)
		hasNot(t, "the question", a.body, "<html")
		a = b.request("POST", "/runs/"+id+"/retry", none, htmx...)
		if a.status != http.StatusOK || a.head.Get("HX-Trigger") != "done" {
			t.Errorf("POST: %d, HX-Trigger %q", a.status, a.head.Get("HX-Trigger"))
		}
		has(t, "the answer", a.body, `<hx-partial hx-target="#flash"`, "Retried.")
		b.until(id, "succeeded")
		a = b.request("POST", "/runs/"+id+"/retry", none, htmx...)
		if a.status != http.StatusConflict {
			t.Errorf("a run that succeeded: %d, want 409", a.status)
		}
		hasNot(t, "the refusal", a.body, "<html")
	})
	t.Run("rerun from a step", func(t *testing.T) {
		id := b.start("order", job{})
		b.until(id, "succeeded")
		has(t, "the question", b.page("/runs/"+id+"/rerun"), `<option value="0" selected>charge`, `<option value="2">label`)
		a := b.request("POST", "/runs/"+id+"/rerun", url.Values{"step": {"2"}}, htmx...)
		to := a.head.Get("HX-Redirect")
		next := strings.TrimSuffix(strings.TrimPrefix(to, "/runs/"), "?did=rerun")
		i := b.until(next, "succeeded")
		if i.ReplayOf != id || len(i.Steps[0].Attempts) != 0 || len(i.Steps[2].Attempts) != 1 {
			t.Errorf("the new run: %+v", i)
		}
		has(t, "the new run", b.page(to), "This is the new run.", "<dt>replaces</dt>", "/runs/"+id)
		for _, step := range []string{"", "3", "-1", "x"} {
			if a := b.request("POST", "/runs/"+id+"/rerun", url.Values{"step": {step}}); a.status != http.StatusUnprocessableEntity {
				t.Errorf("step %q: %d, want 422", step, a.status)
			}
		}
	})
	t.Run("retry with the current definition", func(t *testing.T) {
		w := must(engine.NewWorkflow("fix", engine.Step("pay", do), engine.Step("ship", func(context.Context, job) (string, error) {
			return "", retry.Permanent(errors.New("a mistake"))
		}, engine.After("pay"))))
		id := must(b.e.Start(t.Context(), w, job{})).ID
		other := must(b.e.Start(t.Context(), w, job{})).ID
		b.until(id, "dead")
		b.until(other, "dead")
		repaired := engine.Step("ship", do, engine.After("charge"), engine.Version("2"))
		if err := b.e.Register(must(engine.NewWorkflow("fix", engine.Step("charge", do), repaired))); err != nil {
			t.Fatal(err)
		}
		has(t, "the run", b.page("/runs/"+id), "Retry with the current definition")
		has(t, "the question", b.page("/runs/"+id+"/latest"), `<option value="" selected>keep the results`, `<option value="0">start at charge</option>`)
		a := b.request("POST", "/runs/"+id+"/latest", url.Values{"step": {""}})
		if a.status != http.StatusUnprocessableEntity {
			t.Errorf("a step that was renamed: %d, want 422", a.status)
		}
		has(t, "the question again", a.body, "step pay of run "+id+" succeeded", `<option value="1">start at ship</option>`)
		for _, step := range []string{"2", "-1", "x"} {
			if a := b.request("POST", "/runs/"+id+"/latest", url.Values{"step": {step}}); a.status != http.StatusUnprocessableEntity {
				t.Errorf("step %q: %d, want 422", step, a.status)
			}
		}
		a = b.request("POST", "/runs/"+id+"/latest", url.Values{"step": {"0"}})
		next := strings.TrimSuffix(strings.TrimPrefix(a.to, "/runs/"), "?did=latest")
		if i := b.until(next, "succeeded"); i.ReplayOf != id || len(i.Steps[0].Attempts) != 1 {
			t.Errorf("the new run: %+v", i)
		}
		has(t, "the new run", b.page(a.to), "This is the new run.")

		repaired = engine.Step("ship", do, engine.After("pay"), engine.Version("2"))
		if err := b.e.Register(must(engine.NewWorkflow("fix", engine.Step("pay", do), repaired))); err != nil {
			t.Fatal(err)
		}
		has(t, "the dead letters", b.page("/dead"), "/bulk/latest?")
		question := b.page("/bulk/latest?workflow=fix")
		has(t, "the question", question, "Retry 1 run with the current definition?", "Retry 1</button>")
		if a = b.request("POST", "/bulk/latest", form(question)); !strings.Contains(a.to, "did=latest-all&left=0&n=1") {
			t.Errorf("POST: %d to %q %s", a.status, a.to, a.body)
		}
		has(t, "the page after it", b.page(a.to), "1 replaced by new runs.")
		if i := b.until(b.until(other, "replaced").ReplacedBy, "succeeded"); len(i.Steps[0].Attempts) != 0 {
			t.Errorf("the result was not kept: %+v", i)
		}
	})
	t.Run("edit and replay", func(t *testing.T) {
		id := b.dead(1, job{Name: "a\u202eb"})[0]
		has(t, "the question", b.page("/runs/"+id+"/replay"), `a\u202eb`, "<textarea")
		a := b.request("POST", "/runs/"+id+"/replay", url.Values{"input": {"{\r\n  \"name\": \"c\",\r\n  \"fail\": }"}})
		if a.status != http.StatusUnprocessableEntity {
			t.Errorf("no JSON: %d, want 422", a.status)
		}
		has(t, "the question again", a.body, "line 3, column 11", "&#34;c&#34;")
		a = b.request("POST", "/runs/"+id+"/replay", url.Values{"input": {`{"name": "c", "list": [{"x": 1, "x": 2}]}`}})
		if a.status != http.StatusUnprocessableEntity {
			t.Errorf("a name twice: %d, want 422", a.status)
		}
		has(t, "the question again", a.body, "the input gives &#34;list.x&#34; twice", "<textarea")
		if a := b.request("POST", "/runs/"+id+"/replay", url.Values{"input": {"{\"name\": \"\xff\"}"}}); a.status != http.StatusUnprocessableEntity {
			t.Errorf("bytes that are no text: %d, want 422", a.status)
		}
		if a := b.request("POST", "/runs/"+id+"/replay", url.Values{"input": {`{"name": 7}`}}); a.status != http.StatusUnprocessableEntity {
			t.Errorf("a number instead of a name: %d, want 422", a.status)
		}
		a = b.request("POST", "/runs/"+id+"/replay", url.Values{"input": {`{"name": "c"}`}})
		next := strings.TrimSuffix(strings.TrimPrefix(a.to, "/runs/"), "?did=replay")
		if i := b.until(next, "succeeded"); string(i.Input) != `{"name":"c"}` {
			t.Errorf("input of the new run: %s", i.Input)
		}
		has(t, "the old run", b.page("/runs/"+id), "replaced by", next)
		b.until(id, "replaced")
		has(t, "the list of those that were replaced", b.page("/runs?state=replaced"), id)
		if a := b.request("POST", "/runs/"+id+"/replay", url.Values{"input": {strings.Repeat("x", pages.MaxBody)}}); a.status != http.StatusRequestEntityTooLarge {
			t.Errorf("too much: %d, want 413", a.status)
		}
		if a := b.request("POST", "/runs/"+next+"/replay", url.Values{"input": {`"` + strings.Repeat("x", 300<<10) + `"`}}); a.status != http.StatusRequestEntityTooLarge {
			t.Errorf("more than the engine takes: %d, want 413", a.status)
		}
	})
	t.Run("what there is not", func(t *testing.T) {
		id := b.start("slow", job{})
		for path, want := range map[string]int{
			"/runs/" + id + "/explode": 404, "/runs/missing/cancel": 404, "/runs/00000000000000000000000000/retry": 404, "/dead/retry": 404,
		} {
			for _, method := range []string{"GET", "POST"} {
				if a := b.request(method, path, none); a.status != want {
					t.Errorf("%s %s: %d, want %d", method, path, a.status, want)
				}
			}
		}
	})
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	has(t, "the empty page", b.page("/dead"), "No run has given up")
	refused := b.dead(3, job{Error: "dial 10.0.0.1:443: refused after 31ms"})
	teapot := b.dead(1, job{Error: "418 teapot"})[0]

	body := b.page("/dead")
	has(t, "/dead", body, "4 runs have given up", "Retry all 3", "Retry it", ">dial 10.0.0.1:443: refused after 31ms</a>", "Retry with another input", "Cancel", teapot)
	has(t, "the overview", b.page("/overview"), ">dial 10.0.0.1:443: refused after 31ms</a>")
	groups, err := b.h.Groups(t.Context(), false)
	if err != nil || len(groups) != 2 || groups[0].Count != 3 {
		t.Fatalf("groups: %+v %v", groups, err)
	}
	one := b.page(groups[0].URL)
	has(t, "the group", one, refused[0], refused[1], refused[2], "Runs of this group")
	hasNot(t, "the group", one, teapot)
	has(t, "the question", b.page(offered(groups[0].Offers, "retry")), "Retry 3 dead letters?", "with an error like this: dial 10.0.0.1:443: refused after 31ms", groups[0].Key)

	a := b.request("POST", "/dead/retry", url.Values{"group": {groups[0].Key}})
	if a.to != "/dead?did=retry-all&left=0&n=3" {
		t.Errorf("POST: %d to %q", a.status, a.to)
	}
	has(t, "the page after it", b.page(a.to), "3 retried.")
	for _, id := range refused {
		b.until(id, "succeeded")
	}
	has(t, "the page later", b.page("/dead"), "1 run has given up", teapot)
	b.act(teapot, "cancel")
	b.until(teapot, "canceled")
	has(t, "the page in the end", b.page("/dead"), "No run has given up")
	has(t, "a group that is gone", b.page(groups[0].URL), "No runs are left in this group")
	if a := b.request("POST", "/dead/retry", url.Values{"group": {groups[0].Key}}); a.status != http.StatusNotFound {
		t.Errorf("POST for a group that is gone: %d, want 404", a.status)
	}
}

func TestManyDeadLettersAreRetriedOnce(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	ids := b.dead(12, job{Fail: 1000})
	groups := must(b.h.Groups(t.Context(), false))
	a := b.request("POST", "/dead/retry", url.Values{"group": {groups[0].Key}}, htmx...)
	has(t, "the answer", a.body, "12 retried.")
	for _, id := range ids {
		testwait.Until(t, "it has died again", func() bool { i := must(b.e.Get(t.Context(), id)); return i.State == "dead" && i.Attempts == 6 })
	}
}
