package web

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/cmd/tideover/internal/browsertest"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/pages"
	"github.com/tideover/tideover/internal/console/pagetest"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// askSite is a test site behind a guard with users, whose engine has a workflow that asks.
type askSite struct {
	*testSite
	deploy *engine.Workflow
}

const askToken = "the-token-of-"

func newAskSite(t *testing.T) *askSite {
	t.Helper()
	s := &askSite{testSite: &testSite{T: t}}
	s.deploy = engine.MustFlow("deploy", func(f *engine.Flow, who []string) (string, error) {
		q := engine.Question{Text: "Deploy <b>1.2</b> to production?\nhunter2 is the password", Choices: []string{"approve", "reject", "wait for a day or two, until the others are back"}, Who: who, Default: "reject"}
		a, err := engine.Ask(f, "roll-out", q, engine.Within(48*time.Hour))
		return a.Choice + " by " + a.By + ": " + a.Words, err
	})
	e, err := engine.Open(t.Context(), engine.Config{Dir: t.TempDir(), Durability: engine.OS, Workflows: []*engine.Workflow{s.deploy}})
	if err != nil {
		t.Fatal(err)
	}
	s.serve(e, func(o *setup) {
		o.Redact = func(text string) string { return strings.ReplaceAll(text, "hunter2", "***") }
	})
	plain := s.srv
	s.srv = httptest.NewServer(httpserver.Guard(httpserver.GuardOptions{Token: secret.New(askToken + "server"), Users: []httpserver.User{
		{Name: "ada", Token: secret.New(askToken + "ada")}, {Name: "eve", Token: secret.New(askToken + "eve")},
		{Name: "wall", Token: secret.New(askToken + "wall"), ReadOnly: true},
	}}, plain.Config.Handler))
	guarded := s.srv
	t.Cleanup(func() {
		guarded.CloseClientConnections()
		guarded.Close()
	})
	return s
}

// ask starts a run, and waits until it asks the users. nil means everyone.
func (s *askSite) ask(who ...string) string {
	s.Helper()
	run, err := s.e.Start(s.Context(), s.deploy, who)
	if err != nil {
		s.Fatal(err)
	}
	testwait.Until(s, "the run asks", func() bool {
		i, err := s.e.Get(s.Context(), run.ID)
		return err == nil && i.Asking
	})
	return run.ID
}

// as sends a request with the token of a user, and returns the status and the body.
func (s *askSite) as(user, method, path string, form url.Values) (status int, body string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.srv.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+askToken+user)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// The index of a choice, as in a form.
func choose(n string) url.Values { return url.Values{"question": {"roll-out"}, "choice": {n}} }

func TestQuestionsOnPages(t *testing.T) {
	t.Parallel()
	s := newAskSite(t)
	id, other := s.ask("ada"), s.ask()
	page := func(user, path string) string {
		t.Helper()
		status, body := s.as(user, "GET", path, nil)
		if status != http.StatusOK {
			t.Fatalf("%s as %s: %d %s", path, user, status, body)
		}
		return body
	}
	body := page("ada", pages.RunURL(id))
	has(t, "the page", body, "Deploy &lt;b&gt;1.2&lt;/b&gt; to production?", "*** is the password", "for <span class=\"text\">ada</span>", "then the answer is <strong>reject</strong>",
		`href="/runs/`+id+`/answer?choice=0&amp;question=roll-out"`, "The time for an answer to roll-out ends")
	hasNot(t, "the page", body, "hunter2", "You can't answer", ">Wake<")
	pagetest.Audit(t, "the page", body)
	has(t, "the page for another", page("eve", pages.RunURL(id)), "You can't answer: you are eve, and the question is for ada.", "<button type=\"button\" disabled>approve</button>")
	has(t, "the page for the server's token", page("server", pages.RunURL(id)), "you are api, and the question is for ada")
	wall := page("wall", pages.RunURL(other))
	has(t, "the page for a reader", wall, "You can't answer: you may only look.", "<button type=\"button\" disabled>approve</button>")
	hasNot(t, "the page for a reader", wall, "/cancel")
	testwait.Until(t, "the list has both runs", func() bool {
		list, err := s.e.List(t.Context(), engine.Filter{Asking: true})
		return err == nil && len(list.Runs) == 2
	})
	list := page("eve", "/runs?asking=1")
	has(t, "the list", list, "r-"+id, "r-"+other, `class="state asking"`, `name="asking" value="1"`, `id="chip-asking" href="/runs" aria-current="true"`)
	all := page("eve", "/runs")
	if before, _, found := strings.Cut(all, `id="chip-asking"`); !found || strings.Count(before, `id="chip-`) != 1 || !strings.Contains(all, `asks <span class="count">2</span>`) {
		t.Error("the runs that ask are not the first, with their number")
	}
	overview := page("eve", "/overview")
	has(t, "the overview", overview, `<li class="asking"><a href="/runs/`+id+`">deploy asks: Deploy &lt;b&gt;1.2`, `<dt>ask a question</dt><dd><a href="/runs?asking=1">2</a>`,
		`<dt>waiting for a retry</dt><dd><a href="/runs?order=next&amp;state=waiting">0</a>`)
	hasNot(t, "the overview", overview, "waiting for a signal", "hunter2")
	has(t, "the page of the workflow", page("eve", "/workflows/deploy"), `class="state asking"`)
	has(t, "the question", page("ada", pages.RunURL(id)+"/answer?"+choose("0").Encode()), "Answer “approve”?", `name="words"`, "*** is the password")

	with := func(n, words string) url.Values {
		v := choose(n)
		v.Set("words", words)
		return v
	}
	for _, c := range []struct {
		name, user, method, run string
		form                    url.Values
		status                  int
		text                    string
	}{
		{"the form, for another", "eve", "GET", id, choose("0"), 403, "you are eve, and the question is for ada"},
		{"another user", "eve", "POST", id, with("0", ""), 403, "may not answer this question: it is for ada"},
		{"a reader", "wall", "POST", other, with("0", ""), 403, "may only read"},
		{"no such choice", "ada", "POST", id, with("7", ""), 400, "no such choice"},
		{"no such question", "ada", "POST", id, url.Values{"question": {"x"}, "choice": {"0"}}, 409, "this question is not open"},
		{"many words", "ada", "POST", id, with("0", strings.Repeat("x", 5000)), 422, "words"},
		{"the answer", "ada", "POST", id, with("2", "after lunch <i>"), 303, ""},
		{"a second answer", "ada", "POST", id, with("0", ""), 409, "ada has answered this question already: wait for a day"},
	} {
		path, form := pages.RunURL(c.run)+"/answer", c.form
		if c.method == "GET" {
			path, form = path+"?"+form.Encode(), nil
		}
		if c.name == "a second answer" {
			s.until(id, "succeeded")
		}
		if status, body := s.as(c.user, c.method, path, form); status != c.status || !strings.Contains(body, c.text) {
			t.Errorf("%s: %d %s, want %d with %q", c.name, status, body, c.status, c.text)
		}
	}
	body = page("eve", pages.RunURL(id))
	has(t, "the page after the answer", body, "<strong>wait for a day or two, until the others are back</strong> by <span class=\"text\">ada</span>", "after lunch &lt;i&gt;",
		`<span class="text">roll-out</span> <strong>answered</strong> <span class="text">wait for a day or two, until the others are back, by ada: after lunch`)
	hasNot(t, "the page after the answer", body, "hunter2", `class="ask"`)
}

// TestQuestionsInABrowser answers questions on a screen and on a phone, from the link in a message.
func TestQuestionsInABrowser(t *testing.T) {
	t.Parallel()
	s := newAskSite(t)
	x := &tab{s.testSite, browsertest.Open(t)}
	dir := os.Getenv("TIDEOVER_PICTURES")
	x.visit("/runs?token=" + askToken + "ada")
	for n, width := range []int64{1280, 390} {
		id := s.ask("ada")
		m, ok := notify.Compose(retry.Event{Kind: retry.Asked, Name: "deploy", Run: id, Step: "roll-out", Note: "Deploy?"}, notify.Place{Page: s.srv.URL + "/"})
		if !ok {
			t.Fatal("there is no message")
		}
		x.Resize(width, 844)
		x.live("/runs")
		x.seen("#r-"+id+" .asking", "asks")
		x.click("#chip-asking")
		x.Wait("the list is filtered", `location.search === "?asking=1"`)
		x.seen("#rows", "asks")
		x.live(strings.TrimPrefix(m.URL, s.srv.URL))
		x.seen(".ask", "Deploy <b>1.2</b> to production?")
		for _, text := range x.TooWide() {
			t.Errorf("on a screen of %d: %s", width, text)
		}
		x.Screenshot(dir, fmt.Sprint("question-", width))
		x.click(fmt.Sprintf(`.ask a:nth-child(%d)`, n+1)) // approve, then reject
		x.seen("#dialog[open]", "Answer")
		x.Do(chromedp.SetValue(chromedp.CSS("#dialog textarea"), "seen on "+fmt.Sprint(width)))
		x.Screenshot(dir, fmt.Sprint("question-dialog-", width))
		for _, text := range x.TooWide() {
			t.Errorf("the dialog on a screen of %d: %s", width, text)
		}
		x.click("#dialog form button")
		x.seen("#flash", "Answered.")
		x.seen("#said", "succeeded")
		x.seen("#notes", fmt.Sprint("seen on ", width))
		x.seen("#operations", "by ada")
		x.Wait("the question is gone", `!document.querySelector(".ask")`)
	}
	x.quiet()

	// A person who may not answer sees why, and has no button.
	id := s.ask("ada")
	x.visit("/runs?token=" + askToken + "eve")
	x.live(pages.RunURL(id))
	x.seen(".ask .refused", "you are eve, and the question is for ada")
	if n := eval[int](x, `document.querySelectorAll(".ask a").length + document.querySelectorAll(".ask button:not(:disabled)").length`); n != 0 {
		t.Errorf("there are %d buttons", n)
	}

	// Without scripts.
	x.visit("/runs?token=" + askToken + "ada")
	x.EnableScripts(false)
	x.visit(pages.RunURL(id))
	x.click(".ask a:nth-child(3)")
	x.seen("form.question", "wait for a day or two")
	x.click("form.question button")
	x.seen("#flash", "Answered.")
	s.until(id, "succeeded")
	x.EnableScripts(true)
	x.quiet()
}
