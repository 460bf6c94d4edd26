package web

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"
)

// form returns the hidden fields of the form in a question.
func form(body string) url.Values {
	v := url.Values{}
	for part := range strings.SplitSeq(body, `<input type="hidden" name="`) {
		name, rest, ok := strings.Cut(part, `" value="`)
		value, _, ok2 := strings.Cut(rest, `"`)
		if ok && ok2 && !strings.Contains(name, "<") {
			v.Add(name, strings.NewReplacer("&amp;", "&", "&#43;", "+").Replace(value))
		}
	}
	return v
}

func TestManyRunsAreCanceled(t *testing.T) {
	t.Parallel()
	b := newTestSite(t, func(o *setup) { o.actor = "alice" })
	var ids []string
	for range 5 {
		id := b.start("slow", job{Fail: 1})
		b.until(id, "waiting")
		ids = append(ids, id)
	}
	other, dead := b.start("soon", job{Fail: 1}), b.dead(1, job{})[0]
	b.until(other, "waiting")
	hasNot(t, "all runs", b.page("/runs"), "All matching runs")
	body := b.page("/runs?workflow=slow")
	has(t, "a filter", body, "All matching runs", `href="/bulk/cancel?workflow=slow"`)
	hasNot(t, "a filter that no dead run matches", body, "/bulk/retry")
	has(t, "a filter that a dead run matches", b.page("/runs?workflow=quick"), `href="/bulk/retry?workflow=quick"`)
	hasNot(t, "runs that are over", b.page("/runs?state=succeeded"), "/bulk/")
	hasNot(t, "runs that wait", b.page("/runs?state=waiting"), "/bulk/retry")

	question := b.page("/bulk/cancel?workflow=slow")
	has(t, "the question", question, "Cancel 5 runs?", "workflow slow", "Cancel 5</button>", `class="danger"`)
	later := b.start("slow", job{Fail: 1})
	b.until(later, "waiting")
	a := b.request("POST", "/bulk/cancel", form(question))
	if a.to != "/runs?workflow=slow&did=cancel-all&left=0&n=5" {
		t.Fatalf("POST: %d to %q %s", a.status, a.to, a.body)
	}
	has(t, "the page after it", b.page(a.to), "5 canceled.")
	for _, id := range ids {
		if i := b.until(id, "canceled"); len(i.Notes) == 0 || !strings.Contains(fmt.Sprint(i.Notes), "alice") {
			t.Errorf("the history does not say who: %+v", i.Notes)
		}
	}
	for id, state := range map[string]string{other: "waiting", later: "waiting", dead: "dead"} {
		if i := must(b.e.Get(t.Context(), id)); i.State != state {
			t.Errorf("%s is %s, want %s", i.Workflow, i.State, state)
		}
	}
}

func TestManyRunsAreRetried(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	ids := b.dead(3, job{})
	question := b.page("/bulk/retry?attempts=2&state=dead")
	has(t, "the question", question, "Retry 3 runs?", "at least 2 attempts")
	a := b.request("POST", "/bulk/retry", form(question), htmx...)
	has(t, "the answer", a.body, "3 retried.")
	for _, id := range ids {
		b.until(id, "succeeded")
	}
}

func TestAGroupIsDiscarded(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	ids := b.dead(2, job{Error: "418"})
	other := b.dead(1, job{Error: "parse error"})[0]
	g := must(b.h.Groups(t.Context(), false))[0]
	question := b.page(offered(g.Offers, "cancel"))
	has(t, "the question", question, "Cancel 2 runs?", "error like", "They will not be retried")
	if a := b.request("POST", "/bulk/cancel", form(question)); a.to != "/dead?did=cancel-all&left=0&n=2" {
		t.Errorf("POST: %d to %q", a.status, a.to)
	}
	for _, id := range ids {
		b.until(id, "canceled")
	}
	b.until(other, "dead")
}

func TestBulkRefuses(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	id := b.start("slow", job{Fail: 1})
	b.until(id, "waiting")
	until := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	for _, c := range []struct {
		name, path string
		form       url.Values
		want       int
	}{
		{"all runs", "/bulk/cancel", url.Values{"query": {""}, "until": {until}}, 409},
		{"a query that says nothing", "/bulk/cancel", url.Values{"query": {"state=nonsense&workflow="}, "until": {until}}, 409},
		{"states that it can't be done with", "/bulk/cancel", url.Values{"query": {"state=succeeded"}, "until": {until}}, 409},
		{"an action that there is not", "/bulk/explode", url.Values{"query": {"workflow=slow"}, "until": {until}}, 404},
		{"no time", "/bulk/cancel", url.Values{"query": {"workflow=slow"}}, 400},
		{"no query", "/bulk/cancel", url.Values{"query": {"%zz"}, "until": {until}}, 400},
		{"a group that is gone", "/bulk/cancel", url.Values{"query": {"group=x"}, "until": {until}}, 404},
	} {
		if a := b.request("POST", c.path, c.form); a.status != c.want {
			t.Errorf("%s: %d, want %d", c.name, a.status, c.want)
		}
	}
	for _, path := range []string{"/bulk/cancel", "/bulk/explode?workflow=slow", "/bulk/cancel?group=x"} {
		if a := b.request("GET", path, nil); a.status < 400 {
			t.Errorf("GET %s: %d", path, a.status)
		}
	}
	if i := must(b.e.Get(t.Context(), id)); i.State != "waiting" {
		t.Errorf("the run is %s", i.State)
	}
}

func TestMomentsInAddresses(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	id := b.start("slow", job{Fail: 1})
	b.until(id, "waiting")
	for path, want := range map[string]string{
		"/runs?since=2026-01-02":                      "/runs?since=2026-01-02T00%3A00%3A00Z",
		"/runs?until=2026-01-02T03:04:05%2B01:00":     "/runs?until=2026-01-02T02%3A04%3A05Z",
		"/runs?since=yesterday":                       "/runs",
		"/runs?since=9999-99-99&until=0001-01-01&q=x": "/runs?q=x",
	} {
		if a := b.request("GET", path, nil); a.to != want {
			t.Errorf("GET %s: %d to %q, want %q", path, a.status, a.to, want)
		}
	}
	a := b.request("GET", "/runs?since=2h", nil)
	if !strings.HasPrefix(a.to, "/runs?since=2") {
		t.Fatalf("GET: %d to %q", a.status, a.to)
	}
	has(t, "those of the last hours", b.page(a.to), "r-"+id, `name="since" class="moment" value="2`)
	hasNot(t, "those before", b.page(strings.Replace(a.to, "since", "until", 1)), "r-"+id)
}
