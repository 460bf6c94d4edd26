package web

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/testwait"
)

// own starts a run of an internal workflow.
func (b *testSite) own(name string, j job) string {
	b.Helper()
	w, err := engine.NewWorkflow(name, engine.Step("call", do, engine.Policy("fixed(1ms) attempts=1")))
	if err != nil {
		b.Fatal(err)
	}
	text := must(json.Marshal(j))
	run, err := b.e.Start(b.Context(), w, json.RawMessage(text))
	if err != nil {
		b.Fatal(err)
	}
	must(b.e.Wait(b.Context(), run.ID))
	return run.ID
}

func TestInternalRunsAreNotListed(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	bad := job{Fail: 9, Error: "exit code 4"}
	session, message := b.own("session.night", bad), b.own("notify.phone", bad)
	alarm, user := b.own("quick.on-give-up", job{}), b.own("user", bad)
	testwait.Until(t, "lists have them", func() bool {
		return len(must(b.e.List(t.Context(), engine.Filter{})).Runs) == 4 && len(must(b.e.DeadGroups(t.Context(), 9)).Groups) == 3
	})
	body := b.page("/runs")
	has(t, "/runs", body, "r-"+user, "1 message could not be sent", `href="/notifications"`, `href="/runs?internal=1"`, `dead <span class="count">1</span>`,
		`id="chip-all"`, ">"+user[:14]+"<")
	hasNot(t, "/runs", body, `id="chip-succeeded"`, `id="chip-needs-handler"`, `id="chip-asking"`, session, message, alarm, "<option>session.night", "<option>notify.phone")
	has(t, "on request", b.page("/runs?internal=1"), session, message, alarm, user, "<option>session.night", `dead <span class="count">3</span>`,
		`<input type="hidden" name="internal" value="1">`)
	has(t, "by name", b.page("/runs?workflow=notify.phone"), message)

	body = b.page("/dead")
	has(t, "/dead", body, user, "1 run has given up", "1 message could not be sent", "exit code 4")
	hasNot(t, "/dead", body, session, message)
	body = b.page("/dead?internal=1")
	has(t, "on request", body, session, message, "3 runs have given up")
	hasNot(t, "what is not possible with them", body, "/runs/"+message+"/replay")
	has(t, "retry of a message's group", b.page(groupRetry(t, b, "notify.phone")), "Retry 1 dead letter?")

	for _, id := range []string{session, message, alarm} {
		hasNot(t, "a run of our own", b.page("/runs/"+id), "Retry from a step", "Retry with another input")
		for _, action := range []string{"rerun", "replay", "latest"} {
			for method, form := range map[string]url.Values{"GET": nil, "POST": {"step": {"0"}, "input": {"{}"}}} {
				if a := b.request(method, "/runs/"+id+"/"+action, form); a.status != http.StatusConflict {
					t.Errorf("%s %s: %d %s", method, action, a.status, a.body)
				}
			}
		}
	}
	has(t, "a dead message", b.page("/runs/"+message), "/runs/"+message+"/retry")
}

// groupRetry returns the URL of the confirmation question for retrying all runs of a group.
func groupRetry(t *testing.T, b *testSite, workflow string) string {
	t.Helper()
	for _, g := range must(b.h.Groups(t.Context(), true)) {
		if g.Workflow == workflow {
			return offered(g.Offers, "retry")
		}
	}
	t.Fatalf("no group of %s", workflow)
	return ""
}

func TestARunThatWasReplacedOffersNothing(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	id := b.own("user", job{Fail: 9})
	next := must(b.e.Replay(t.Context(), id, nil, "me"))
	must(b.e.Wait(t.Context(), next.ID))
	hasNot(t, "a replaced run", b.page("/runs/"+id), "Retry from a step", "Retry with another input")
	if a := b.request("GET", "/runs/"+id+"/rerun", nil); a.status != http.StatusConflict || !strings.Contains(a.body, "was replaced by "+next.ID) {
		t.Errorf("rerun: %d %s", a.status, a.body)
	}
}

func TestTheVersionIsNamedOnce(t *testing.T) {
	t.Parallel()
	b := newTestSite(t, func(o *setup) { o.Version = "tideover v1.2.3" })
	has(t, "the foot", b.page("/runs"), "<span>tideover v1.2.3</span>")
}

// A caller who may only look gets no links to questions about actions, on no page of the server.
func TestAReaderIsOfferedNothing(t *testing.T) {
	t.Parallel()
	g := newFullSite(t)
	dead := g.dead(1, job{})
	g.h.caller = func(*http.Request) pages.Caller { return pages.Caller{Name: "wall", IsUser: true, ReadOnly: true} }
	dialog := regexp.MustCompile(`<a [^>]*data-dialog`)
	for _, entry := range g.h.server.menu() {
		if entry.Name == "docs" {
			continue
		}
		if list := dialog.FindAllString(g.page(entry.URL), -1); len(list) != 1 { // the list of keys
			t.Errorf("%s offers %q", entry.URL, list)
		}
	}
	for _, path := range []string{"/runs/" + dead[0] + "/retry", "/providers/anthropic/open", "/workflows/quick/start"} {
		if a := g.request("GET", path, nil); a.status != http.StatusForbidden {
			t.Errorf("GET %s: %d, want 403", path, a.status)
		}
	}
}
