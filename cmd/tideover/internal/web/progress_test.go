package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/testwait"
)

func TestProgressPage(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	at := b.h.Progress(new(control.BulkJob), control.BulkRetry, 7, "/dead")
	has(t, "a job that runs", b.page(at), "0 of 7 runs.", `<progress class="progress-bar" aria-label="runs" max="7" value="0">`, `<noscript><meta http-equiv="refresh" content="2"></noscript>`, `href="/dead"`)
	has(t, "the live part", b.message("/live"+at), "0 of 7 runs.")
	at = b.h.Progress(new(control.BulkJob), control.BulkRetry, 0, "/dead")
	has(t, "without a number", b.page(at), "0 runs so far.", `aria-label="runs"></progress>`)

	job := b.h.server.control.Runs.StartBulk(t.Context(), control.BulkCancel, append(b.dead(2, job{}), "01k9v3q0h2f8"), control.Filter{}, "alice")
	<-job.Done()
	over := b.page(b.h.Progress(job, control.BulkCancel, 3, "/runs"))
	has(t, "a job that has ended", over, "2 canceled. 1 skipped", `href="/runs"`)
	hasNot(t, "a job that has ended", over, "<progress", "http-equiv")
	for range pages.KeptJobs {
		b.h.Progress(job, control.BulkCancel, 0, "/runs")
	}
	if a := b.request("GET", at, nil); a.status != http.StatusNotFound {
		t.Errorf("an old job: %d", a.status)
	}
}

// The answer to a form does not wait for the end of a long action.
func TestALongActionHasAPage(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	b.h.BulkWait(0)
	ids := b.dead(3, job{})
	a := b.request("POST", "/bulk/cancel", form(b.page("/bulk/cancel?workflow=quick&state=dead")))
	if !strings.HasPrefix(a.to, "/progress/") && !strings.HasPrefix(a.to, "/runs?") { // it may end at once
		t.Fatalf("POST: %d to %q", a.status, a.to)
	}
	testwait.Until(t, "the page says so", func() bool { return strings.Contains(b.page(a.to), "3 canceled.") })
	for _, id := range ids {
		b.until(id, "canceled")
	}
}

func TestChosenRuns(t *testing.T) {
	t.Parallel()
	b := newTestSite(t, func(o *setup) { o.actor = "alice" })
	ids := b.dead(3, job{})
	for path, from := range map[string]string{"/runs": "runs", "/dead": "dead"} {
		has(t, path, b.page(path), `action="/bulk/chosen"`, `<input type="hidden" name="from" value="`+from+`">`, `name="id" value="`+ids[0]+`" form="chosen" aria-label="choose `)
	}
	question := b.page("/bulk/chosen?action=cancel&from=dead&id=" + ids[0] + "&id=" + ids[1])
	has(t, "the question", question, "Cancel 2 runs?", ids[0], ids[1])
	if a := b.request("POST", "/bulk/chosen", form(question)); a.to != "/dead?did=cancel-all&left=0&n=2" {
		t.Fatalf("POST: %d to %q\n%s", a.status, a.to, a.body)
	}
	for _, id := range ids[:2] {
		b.until(id, "canceled")
	}
	b.until(ids[2], "dead")
	if a := b.request("POST", "/bulk/chosen", url.Values{"action": {"retry"}, "id": ids}); a.to != "/runs?did=retry-all&left=2&n=1" {
		t.Errorf("retry: %d to %q", a.status, a.to)
	}
	none := b.page("/bulk/chosen?action=retry&from=dead")
	has(t, "nothing is chosen", none, "No run was chosen", `href="/dead" data-close>Back</a>`)
	hasNot(t, "nothing is chosen", none, "<button class=")
	one := b.page("/bulk/chosen?action=retry&id=" + ids[2])
	has(t, "one is chosen", one, "Retry 1 run?", `quick <code class="id">`+ids[2])
	for path, status := range map[string]int{
		"/bulk/chosen?action=retry&id=": http.StatusBadRequest, "/bulk/chosen?action=eat&id=1": http.StatusNotFound,
	} {
		if a := b.request("GET", path, nil); a.status != status {
			t.Errorf("GET %s: %d, want %d", path, a.status, status)
		}
	}
}

func TestDisplay(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	body := b.page("/runs?workflow=quick")
	has(t, "the links", body, `href="/display?back=%2Fruns%3Fworkflow%3Dquick&amp;theme=dark"`, `theme=auto" aria-current="true"`)
	hasNot(t, "the default", body, "data-theme", "data-clock")
	for _, tt := range []struct{ query, to, cookie string }{
		{"theme=dark&back=%2Fruns%3Fworkflow%3Dquick", "/runs?workflow=quick", "tideover-theme=dark; Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax"},
		{"theme=auto", "/overview", "tideover-theme=auto; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"},
		{"clock=24h&back=//evil.example/", "/overview", "tideover-clock=24h; Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax"},
		{"theme=light&back=https://evil.example/", "/overview", "tideover-theme=light; Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax"},
		{`theme=light&back=/\evil.example/`, "/overview", "tideover-theme=light; Path=/; Max-Age=31536000; HttpOnly; SameSite=Lax"},
	} {
		a := b.request("GET", "/display?"+tt.query, nil)
		if a.to != tt.to || !slices.Equal(a.head["Set-Cookie"], []string{tt.cookie}) {
			t.Errorf("%s: to %q, %q", tt.query, a.to, a.head["Set-Cookie"])
		}
	}
	if a := b.request("GET", "/display?theme=pink", nil); a.status != http.StatusBadRequest || a.head["Set-Cookie"] != nil {
		t.Errorf("an unknown theme: %d", a.status)
	}
	a := b.request("GET", "/runs", nil, "Cookie", "tideover-theme=dark; tideover-clock=24h")
	has(t, "with cookies", a.body, `<html lang="en" data-theme="dark" data-clock="24h">`, `theme=dark" aria-current="true"`)
	a = b.request("GET", "/runs", nil, "Cookie", `tideover-theme="><script>`)
	hasNot(t, "a wrong cookie", a.body, "data-theme")
}
