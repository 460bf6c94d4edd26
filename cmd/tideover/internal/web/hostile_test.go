package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/console/pagetest"
	"github.com/tideover/tideover/internal/testwait"
)

// hostile are texts that an attacker might plant. Each contains a marker, by which the test finds the
// text in a page.
var hostile = []struct{ name, text, shown string }{
	{"a script", "m1<script>alert(1)</script>", "m1&lt;script&gt;"},
	{"an image with a handler", "m2<img src=x onerror=alert(1)>", "m2&lt;img"},
	{"the end of an attribute", `m3" onmouseover="alert(1)" x='`, "m3&#34; onmouseover"},
	{"the end of an attribute in single quotes", `m4' onfocus='alert(1)' autofocus '`, "m4&#39; onfocus"},
	{"an address that is a script", "javascript:alert('m5')", "javascript:alert(&#39;m5"},
	{"the end of the text area", "m6</textarea></pre></title><script>alert(1)</script>", "m6&lt;/textarea"},
	{"a part of a page", `m7</hx-partial><hx-partial hx-target="body">x</hx-partial>`, "m7&lt;/hx-partial"},
	{"a template", "m8{{.Engine}}${alert(1)}", "m8{{.Engine}}"},
	{"a comment", "m9<!-- --><!--", "m9&lt;!--"},
	{"escapes of a terminal", "m10\x1b]0;title\x07\x1b[31m", "m10␛]0;title␇␛[31m"},
	{"the other way around", "m11\u202egnp.exe\u2066", "m11[U+202E]gnp.exe[U+2066]"},
	{"NUL", "m12\x00x", "m12"},
	{"no UTF-8", "m13\xff\xfe", "m13"},
	{"lines of a stream", "m14\r\n\r\nevent: gone\rdata: x\n\ndata: y", "m14"},
	{"an entity", "m15&lt;b&gt;&#x3c;b", "m15&amp;lt;b"},
}

// hostileTogether returns all hostile texts as two texts: one with HTML, and one with invisible
// characters.
func hostileTogether() []string {
	var html, hidden strings.Builder
	for _, x := range hostile {
		if strings.ContainsFunc(x.text, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
			hidden.WriteString(x.text)
		} else {
			html.WriteString(x.text)
		}
	}
	return []string{html.String(), hidden.String()}
}

func TestHostileText(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	for _, x := range hostile {
		t.Run(x.name, func(t *testing.T) {
			b.h.caller = func(*http.Request) pages.Caller { return pages.Caller{Name: x.text, IsUser: true} }
			b.with(t).hostileRun(x.text, x.shown)
		})
	}
	for _, text := range hostileTogether() {
		b.hostileRequests(text)
	}
	for _, path := range []string{"/overview", "/notifications", "/health", "/runs", "/dead", "/runs?state=waiting", "/runs?state=dead"} {
		b.page(path)
		b.message("/live" + path)
	}
	b.page("/policies")
	groups, err := b.h.Groups(t.Context(), false)
	if err != nil || len(groups) < len(hostile) {
		t.Errorf("%d groups of dead letters, %v", len(groups), err)
	}
	for i, g := range groups {
		b.page(offered(g.Offers, "cancel"))
		if i < 3 {
			b.page(g.URL)
			b.page(offered(g.Offers, "retry"))
		}
	}
}

// hostileRun plants the text in all fields of a run: key, source, input, output, error, progress and
// the actors of its history.
func (b *testSite) hostileRun(text, shown string) {
	b.Helper()
	j := job{Name: text, Error: text, Progress: text, Out: text}
	good := b.start("quick", j, engine.Key(strings.ToValidUTF8(text, ""))) // a key that is not UTF-8 would be rejected
	wait := b.start("slow", job{Name: text, Fail: 2, Error: text, Progress: text})
	dead := b.dead(1, j, engine.Source(text))[0]
	b.until(wait, "waiting")
	b.act(wait, "wake") // adds the name of the actor to the history
	testwait.Until(b, "the second attempt", func() bool { return must(b.e.Get(b.Context(), wait)).Attempts == 2 })
	b.until(wait, "waiting")
	b.until(good, "succeeded")
	for _, id := range []string{good, wait, dead} {
		has(b, "the run", b.page("/runs/"+id), shown)
	}
	b.message("/live/runs/" + dead)
	has(b, "the list", b.page("/runs?q="+dead), shown)
	b.page("/runs/" + dead + "/replay") // this page shows the input
}

// act applies an action to a run.
func (b *testSite) act(id, action string) {
	b.Helper()
	if a := b.request("POST", "/runs/"+id+"/"+action, url.Values{}); a.status != http.StatusSeeOther {
		b.Fatalf("%s: %d %s", action, a.status, a.body)
	}
}

// hostileRequests plants the text in all parts of a request.
func (b *testSite) hostileRequests(text string) {
	b.Helper()
	e := url.QueryEscape(text)
	for _, path := range []string{
		"/runs?q=" + e, "/runs?workflow=" + e, "/runs?state=" + e, "/runs?after=" + e, "/runs?order=" + e,
		"/runs/" + url.PathEscape(text), "/runs/x/" + url.PathEscape(text), "/" + url.PathEscape(text),
		"/runs?since=" + e, "/runs?until=" + e, "/bulk/cancel?q=" + e, "/bulk/retry?workflow=" + e, "/bulk/cancel?group=" + e, "/bulk/" + url.PathEscape(text) + "?q=x",
		"/notifications/" + url.PathEscape(text) + "/test", "/notifications?did=" + e, "/overview?x=" + e,
		"/dead?group=" + e, "/dead/retry?group=" + e, "/dead?after=" + e, "/dead?did=" + e, "/static/" + url.PathEscape(text),
	} {
		a := b.request("GET", path, nil)
		if a.status == http.StatusSeeOther {
			if !strings.HasPrefix(a.to, "/") || strings.HasPrefix(a.to, "//") {
				b.Errorf("GET %s leads to %q", path, a.to)
			}
			a = b.request("GET", a.to, nil)
		}
		pagetest.Audit(b, path, a.body)
		if a := b.request("GET", path, nil, "HX-Request", "true"); a.status != http.StatusSeeOther {
			pagetest.Audit(b, path, a.body)
		}
	}
	id := b.dead(1, job{Name: text, Error: text})[0]
	for _, action := range []string{"cancel", "retry", "wake", "rerun", "latest"} {
		b.page("/runs/" + id + "/" + action)
	}
	for _, form := range []url.Values{{"input": {text}}, {"input": {fmt.Sprintf(`{"a": %s`, text)}}} {
		for _, head := range [][]string{nil, {"HX-Request", "true"}} {
			a := b.request("POST", "/runs/"+id+"/replay", form, head...)
			if a.status != http.StatusUnprocessableEntity {
				b.Errorf("replay with %q: %d, want 422", form, a.status)
			}
			pagetest.Audit(b, "a refused replay", a.body)
		}
	}
	pagetest.Audit(b, "a refused rerun", b.request("POST", "/runs/"+id+"/rerun", url.Values{"step": {text}}).body)
	pagetest.Audit(b, "a refused group", b.request("POST", "/dead/retry", url.Values{"group": {text}}).body)
	pagetest.Audit(b, "a refused bulk", b.request("POST", "/bulk/cancel", url.Values{"query": {text}, "until": {text}}).body)
	b.act(id, "cancel")
}
