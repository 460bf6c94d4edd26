package web

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/testwait"
)

func TestNotificationsPage(t *testing.T) {
	t.Parallel()
	g := newFullSite(t, func(o *setup) { o.actor = "alice" })
	has(t, "the page before", g.page("/notifications"), `id="n-phone"`, "gave-up, waiting&gt;30m", "fixed(1ms) attempts=2", "No message has failed", ">run</span>")
	has(t, "the question", g.page("/notifications/phone/test"), "Send a test message with phone?", `action="/notifications/phone/test"`)
	if n := len(must(g.e.List(t.Context(), engine.Filter{})).Runs); n != 0 {
		t.Errorf("asking has sent %d", n)
	}
	if a := g.request("POST", "/notifications/phone/test", url.Values{}); a.to != "/notifications?did=test" {
		t.Errorf("POST: %d to %q", a.status, a.to)
	}
	a := g.request("POST", "/notifications/pager/test", url.Values{}, htmx...)
	has(t, "the answer", a.body, "The test message is queued")
	var list []engine.Info
	testwait.Until(t, "both are over", func() bool {
		list = must(g.e.List(t.Context(), engine.Filter{States: []string{"succeeded", "dead"}})).Runs
		return len(list) == 2
	})
	body := g.page("/notifications?did=test")
	has(t, "the page after", body, "tideover: a test of phone", "tideover: a test of pager", "1 message could not be sent", "pager: no subscriber", "The test message is queued", "> sent</span>", "/retry")
	for i := range list {
		if info := must(g.e.Get(t.Context(), list[i].ID)); info.Source != "test by alice" {
			t.Errorf("%s was started by %q", info.Workflow, info.Source)
		}
	}
	for _, method := range []string{"GET", "POST"} {
		if a := g.request(method, "/notifications/missing/test", nil); a.status != http.StatusNotFound {
			t.Errorf("%s for a notifier that there is not: %d", method, a.status)
		}
	}
}

func TestNotificationsPageWithoutNotifiers(t *testing.T) {
	t.Parallel()
	b := newTestSite(t)
	has(t, "/notifications", b.page("/notifications"), "There are no notifiers", "{{.title}}")
}

func TestMessagesThatAreCutOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, workflow, in, out, want string }{
		{"whole", "notify.x", `{"id":"1","event":"gave-up","subject":"s","title":"t"}`, `{"sent":true}`, "x gave-up t "},
		{"cut in the text", "notify.x", `{"id":"1","event":"gave-up","attempts":{"a":[1]},"title":"t","text":"abc`, "", "x gave-up t "},
		{"cut before the title", "notify.x", `{"id":"1","ev`, "", `x  {"id":"1","ev `},
		{"held back", "notify.x", `{"title":"t"}`, `{"sent":false,"held":"too many"}`, "x  t too many"},
		{"a run that gave up", "w.on-give-up", `{"run":"1","workflow":"w","error":"503"}`, "", "x gave-up w gave up: 503 "},
		{"no object", "notify.x", `[1]`, `"x"`, "x  [1] "},
	} {
		m := newMessageRow(pages.Row{Info: engine.Info{Workflow: c.workflow, InputPreview: c.in, OutputPreview: c.out}}, "x")
		if got := strings.Join([]string{m.To, m.Event, m.Title, m.Held}, " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzTexts(f *testing.F) {
	f.Add(`{"a":"b","c":[1,{"d":"e"}],"f":"`)
	f.Add(`{"a"`)
	f.Fuzz(func(t *testing.T, s string) { texts(s) })
}

func TestHostileMessages(t *testing.T) {
	t.Parallel()
	g := newFullSite(t)
	for _, x := range hostile {
		m := notify.Message{Title: x.text, Event: notify.Event(x.text), Text: x.text}
		if _, err := g.e.Start(t.Context(), g.w["notify.phone"], m); err != nil {
			t.Fatal(err)
		}
	}
	testwait.Until(t, "all are listed", func() bool {
		return len(must(g.e.List(t.Context(), engine.Filter{States: []string{"succeeded"}})).Runs) == len(hostile)
	})
	body := g.page("/notifications")
	for _, x := range hostile {
		has(t, x.name, body, x.shown)
	}
	g.message("/live/notifications")
}
