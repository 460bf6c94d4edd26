//go:build unix

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/testwait"
)

// asks is a workflow that waits for the signal "paid" and then asks two people.
var asks = engine.MustFlow("asks", func(f *engine.Flow, _ job) (string, error) {
	paid, err := engine.Await[json.RawMessage](f, "paid")
	if err != nil {
		return "", err
	}
	a, err := engine.Ask(f, "ship", engine.Question{Text: "Ship it?", Who: []string{"ada", "bob"}, Default: "reject"}, engine.Within(time.Hour))
	return fmt.Sprintf("%s: %s by %s: %s", paid, a.Choice, a.By, a.Words), err
})

// open is a workflow that asks everyone.
var open = engine.MustFlow("open", func(f *engine.Flow, _ job) (string, error) {
	a, err := engine.Ask(f, "go", engine.Question{Text: "Go?", Choices: []string{"left", "right"}})
	return a.Choice + " by " + a.By, err
})

func serveFlows(t *testing.T) *fixture {
	t.Helper()
	return serve(t, func(_ *fixture, c *engine.Config) { c.Workflows = append(c.Workflows, asks, open) })
}

// as sends a POST request with the token of a user; "" means the token of the server.
func (f *fixture) as(user, path, body string, header ...string) *answered {
	f.t.Helper()
	sent := token
	if user != "" {
		sent += "-of-" + user
	}
	return f.ask(true, "POST", Prefix+path, body, append(header, "Authorization", "Bearer "+sent)...)
}

// asking waits until a run asks a question.
func (f *fixture) asking(id string) *engine.Info {
	f.t.Helper()
	var info *engine.Info
	testwait.Until(f.t, "run "+id+" asks", func() bool {
		var err error
		info, err = f.engine.Get(f.t.Context(), id)
		return err == nil && info.Asking
	})
	return info
}

// wantAnswer checks the status and the code of a response, and that its text contains words.
func wantAnswer(t *testing.T, what string, a *answered, status int, code control.Code, words string) {
	t.Helper()
	if a.status != status || !strings.Contains(a.text, words) {
		t.Errorf("%s: %d %s, want %d with %q", what, a.status, a.text, status, words)
		return
	}
	if code != "" && a.problem(t).Code != code {
		t.Errorf("%s: the code is %s, want %s", what, a.problem(t).Code, code)
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	f := serveFlows(t)
	id := f.start("asks", "{}")
	for _, c := range []struct {
		name, path, body string
		header           []string
		status           int
		code             control.Code
		words            string
	}{
		{"unknown run", "runs/0123456789/signals/paid", "1", nil, 404, control.CodeNotFound, ""},
		{"wrong name", "runs/" + id + "/signals/a%20b", "1", nil, 400, control.CodeBadRequest, `"field":"name"`},
		{"payload that is not JSON", "runs/" + id + "/signals/paid", "{", nil, 400, control.CodeBadRequest, `"field":"payload"`},
		{"half a surrogate pair", "runs/" + id + "/signals/paid", `"\ud800"`, nil, 400, control.CodeBadRequest, `"field":"payload"`},
		{"wrong id", "runs/" + id + "/signals/paid?id=" + strings.Repeat("x", 257), "1", nil, 400, control.CodeBadRequest, `"field":"id"`},
		{"two ids", "runs/" + id + "/signals/paid?id=a", "1", []string{"Idempotency-Key", "b"}, 400, control.CodeBadRequest, `"field":"id"`},
		{"unknown parameter", "runs/" + id + "/signals/paid?key=a", "1", nil, 400, control.CodeBadRequest, `"field":"key"`},
		{"other content type", "runs/" + id + "/signals/paid", "1", []string{"Content-Type", "text/plain"}, 415, control.CodeMediaType, ""},
		{"large payload", "runs/" + id + "/signals/paid", `"` + strings.Repeat("x", 300<<10) + `"`, nil, 413, control.CodeTooLarge, "at most 262144"},
		{"larger than a body", "runs/" + id + "/signals/paid", `"` + strings.Repeat("x", 2<<20) + `"`, nil, 413, control.CodeTooLarge, ""},
		{"read-only user", "runs/" + id + "/signals/paid", "1", []string{"Authorization", "Bearer " + token + "-of-wall"}, 403, control.CodeForbidden, "may only read"},
		{"unknown key", "workflows/asks/keys/k/signals/paid", "1", nil, 404, control.CodeNotFound, "has the key"},
		{"unknown workflow", "workflows/none/keys/k/signals/paid", "1", nil, 404, control.CodeNotFound, ""},
	} {
		header := append([]string{"Authorization", "Bearer " + token}, c.header...)
		wantAnswer(t, c.name, f.ask(true, "POST", Prefix+c.path, c.body, header...), c.status, c.code, c.words)
	}

	// The first signal is taken; the one with the same id is not, whichever way the id is sent. The
	// caller can't choose a name.
	wantAnswer(t, "signal", f.as("ada", "runs/"+id+"/signals/paid", `{"eur": 5}`, "Idempotency-Key", "i 1", "Tideover-By", "bob2"), 200, "", `{"name":"paid","id":"i 1"}`)
	wantAnswer(t, "again", f.as("ada", "runs/"+id+"/signals/paid?id=i+1", `{"eur": 6}`), 200, "", "")
	run := f.asking(id)
	if text := fmt.Sprint(run.Notes); strings.Count(text, "signal") != 1 || !strings.Contains(text, "paid from ada") {
		t.Errorf("the notes: %s", text)
	}
	wantAnswer(t, "claimed name", f.as("", "runs/"+id+"/signals/more", "", "Tideover-By", "ada"), 403, control.CodeForbidden, "ada is a user of this server")
	for i := range 1000 {
		if err := f.engine.Signal(t.Context(), id, "more", i); err != nil {
			t.Fatal(err)
		}
	}
	wantAnswer(t, "too many", f.as("", "runs/"+id+"/signals/more", "1"), 429, control.CodeTooMany, "too many signals")
	wantAnswer(t, "answer", f.as("ada", "runs/"+id+"/answers/ship", `{"choice": "approve"}`), 200, "", "")
	f.over(id)
	a := f.as("", "runs/"+id+"/signals/paid", "1")
	wantAnswer(t, "ended run", a, 409, control.CodeState, "succeeded, and takes no signals")
	if out := a.problem(t).Outcome; out == nil || out.State != "succeeded" || out.ID != id {
		t.Errorf("the outcome of the ended run: %s", a.text)
	}
}

func TestSignalsByKey(t *testing.T) {
	t.Parallel()
	f := serveFlows(t)
	c := f.client()
	const key = "order/4711 ü"
	s, err := c.Start(t.Context(), control.Start{Workflow: "asks", Key: key, Input: json.RawMessage("{}")})
	if err != nil {
		t.Fatal(err)
	}
	to := engine.RunKey{Workflow: "asks", Key: key}
	if got, err := c.SignalKey(t.Context(), to, control.Signal{Name: "paid", ID: "a/b", Data: json.RawMessage("7")}); err != nil || got.ID != "a/b" {
		t.Fatalf("%+v, %v", got, err)
	}
	run := f.asking(s.ID)
	if text := fmt.Sprint(run.Notes); !strings.Contains(text, "paid from "+httpserver.LocalName()) {
		t.Errorf("the notes: %s", text)
	}
	if page, err := c.List(t.Context(), control.Filter{Asking: true}); err != nil || len(page.Runs) != 1 || !page.Runs[0].Asking {
		t.Errorf("the list of runs that ask: %+v, %v", page, err)
	}
	if err := f.engine.Cancel(t.Context(), s.ID, "test"); err != nil {
		t.Fatal(err)
	}
	_, err = c.SignalKey(t.Context(), to, control.Signal{Name: "paid"})
	if p, ok := errors.AsType[*control.Error](err); !ok || p.Code != control.CodeState || p.Outcome == nil || p.Outcome.State != "canceled" {
		t.Errorf("a signal to a canceled run: %v", err)
	}
	testwait.Until(t, "the canceled run does not ask", func() bool {
		page, err := c.List(t.Context(), control.Filter{Asking: true})
		return err == nil && len(page.Runs) == 0
	})
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	f := serveFlows(t)
	id := f.start("asks", "{}")
	path := "runs/" + id + "/answers/ship"
	wantAnswer(t, "before the question", f.as("ada", path, `{"choice": "approve"}`), 409, control.CodeState, `does not ask \"ship\" now`)
	wantAnswer(t, "signal", f.as("ada", "runs/"+id+"/signals/paid", ""), 200, "", "")
	f.asking(id)
	for _, c := range []struct {
		name, user, path, body string
		status                 int
		code                   control.Code
		words                  string
	}{
		{"the server's token", "", path, `{"choice": "approve"}`, 403, control.CodeForbidden, `it is for ada, bob`},
		{"a read-only user", "wall", path, `{"choice": "approve"}`, 403, control.CodeForbidden, `may only read`},
		{"no choice", "ada", path, `{}`, 400, control.CodeBadRequest, `"field":"choice"`},
		{"a wrong choice", "ada", path, `{"choice": "perhaps"}`, 400, control.CodeBadRequest, `"field":"choice"`},
		{"an unknown field", "ada", path, `{"choice": "approve", "by": "bob"}`, 400, control.CodeBadRequest, `"field":"by"`},
		{"many words", "ada", path, `{"choice": "approve", "words": "` + strings.Repeat("x", 5000) + `"}`, 400, control.CodeBadRequest, `"field":"words"`},
		{"another question", "ada", "runs/" + id + "/answers/other", `{"choice": "approve"}`, 409, control.CodeState, `does not ask`},
		{"another run", "ada", "runs/0123/answers/ship", `{"choice": "approve"}`, 404, control.CodeNotFound, ``},
	} {
		wantAnswer(t, c.name, f.as(c.user, c.path, c.body), c.status, c.code, c.words)
	}
	// A request can't claim the name of somebody who may answer, over TCP and over the socket.
	wantAnswer(t, "a claimed name", f.as("", path, `{"choice": "approve"}`, "Tideover-By", "ada"), 403, control.CodeForbidden, "is a user of this server")
	wantAnswer(t, "a claimed name over the socket", f.ask(false, "POST", Prefix+path, `{"choice": "approve"}`, "Tideover-By", "ada"), 403, control.CodeForbidden, "is a user of this server")
	wantAnswer(t, "the socket", f.ask(false, "POST", Prefix+path, `{"choice": "approve"}`), 403, control.CodeForbidden, "it is for ada, bob")

	wantAnswer(t, "the answer", f.as("bob", path, `{"choice": "approve", "words": "in stock"}`, "Tideover-By", "x"), 200, "", id)
	if run := f.over(id); string(run.Output) != `"null: approve by bob: in stock"` {
		t.Errorf("the output is %s", run.Output)
	}
	a := f.as("ada", path, `{"choice": "reject"}`)
	wantAnswer(t, "a second answer", a, 409, control.CodeState, "run "+id) // it may be in memory or not
	if out := a.problem(t).Outcome; out == nil || out.State != "succeeded" {
		t.Errorf("the outcome: %s", a.text)
	}

	for user, want := range map[string]string{"": "left by api", "ada": "left by ada"} {
		id := f.start("open", "{}")
		f.asking(id)
		wantAnswer(t, "an open question", f.as(user, "runs/"+id+"/answers/go", `{"choice": "left"}`), 200, "", "")
		if run := f.over(id); string(run.Output) != `"`+want+`"` {
			t.Errorf("the output is %s, want %s", run.Output, want)
		}
	}
}

// callback returns a new callback URL for a run, as a path.
func (f *fixture) callback(id, name string) string {
	f.t.Helper()
	c, err := f.client().Callback(f.t.Context(), id, name, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	path, ok := strings.CutPrefix(c.URL, "http://"+f.tcp)
	if !ok || c.Expires.IsZero() {
		f.t.Fatalf("%+v", c)
	}
	return path
}

func TestCallbacks(t *testing.T) {
	t.Parallel()
	f := serveFlows(t)
	id := f.start("asks", "{}")
	for _, c := range []struct {
		name, path, body string
		status           int
		code             control.Code
		words            string
	}{
		{"unknown run", "runs/0123/callbacks/paid", "", 404, control.CodeNotFound, ""},
		{"wrong name", "runs/" + id + "/callbacks/a%20b", "", 400, control.CodeBadRequest, `"field":"name"`},
		{"too long", "runs/" + id + "/callbacks/paid", `{"expires": "31d"}`, 400, control.CodeBadRequest, `"field":"expires"`},
		{"no time", "runs/" + id + "/callbacks/paid", `{"expires": 0}`, 400, control.CodeBadRequest, `"field":"expires"`},
	} {
		wantAnswer(t, c.name, f.as("", c.path, c.body), c.status, c.code, c.words)
	}
	path, other := f.callback(id, "paid"), f.callback(id, "paid")
	if path == other {
		t.Error("two URLs are equal")
	}
	token := strings.TrimPrefix(path, httpserver.CallbackPrefix)
	text, sum, _ := strings.Cut(token, ".")
	_, otherSum, _ := strings.Cut(other, ".")
	for name, forged := range map[string]string{
		"empty signature": text + ".", "no signature": text, "signature of another": text + "." + otherSum,
		"shortened": token[:len(token)-1], "another byte": "B" + token[1:], "nothing": ".", "another run": "AQ" + text[2:len(text)-1] + "x." + sum,
	} {
		a := f.ask(true, "POST", httpserver.CallbackPrefix+url.PathEscape(forged), "1")
		wantAnswer(t, "forged: "+name, a, 403, control.CodeForbidden, "the signature of this callback URL is wrong")
		noLeak(t, a, id)
	}
	if a := f.ask(true, "GET", path, ""); a.status != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d %s", a.status, a.text)
	}
	wantAnswer(t, "unknown host", f.ask(true, "POST", path, "1", "Host", "evil.example"), 421, control.CodeHost, "")
	wantAnswer(t, "not JSON", f.ask(true, "POST", path, "paid=1", "Content-Type", "application/x-www-form-urlencoded"), 400, control.CodeBadRequest, "is not JSON")
	wantAnswer(t, "too large", f.ask(true, "POST", path, `"`+strings.Repeat("x", 300<<10)+`"`), 413, control.CodeTooLarge, "")
	wantAnswer(t, "a callback of another system", f.ask(true, "POST", path, `{"eur": 5}`, "Content-Type", "text/plain"), 200, "", `{"ok":true}`)
	a := f.ask(true, "POST", path, `{"eur": 6}`)
	wantAnswer(t, "used", a, 409, control.CodeUsed, "used already")
	noLeak(t, a, id)
	if text := fmt.Sprint(f.asking(id).Notes); strings.Count(text, "paid from callback") != 1 {
		t.Errorf("the notes: %s", text)
	}
	if err := f.engine.Cancel(t.Context(), id, "test"); err != nil {
		t.Fatal(err)
	}
	f.over(id)
	a = f.ask(true, "POST", other, "1")
	wantAnswer(t, "ended run", a, 409, control.CodeState, "nothing waits for this callback any more")
	noLeak(t, a, id)
	wantAnswer(t, "used, after the end", f.ask(true, "POST", path, "1"), 409, control.CodeUsed, "used already")
	wantAnswer(t, "new, after the end", f.as("", "runs/"+id+"/callbacks/paid", ""), 409, control.CodeState, "canceled, and takes no signals")
}

// noLeak checks that a response to a caller without a token says nothing about the run.
func noLeak(t *testing.T, a *answered, id string) {
	t.Helper()
	for _, word := range []string{id, "asks", "canceled", "ship"} {
		if strings.Contains(a.text, word) {
			t.Errorf("the response contains %q: %s", word, a.text)
		}
	}
}

// TestCallbacksExpire is in a bubble, without sockets.
func TestCallbacksExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{t: t}
		e, err := engine.Open(t.Context(), engine.Config{Dir: t.TempDir(), Durability: engine.OS, Workflows: []*engine.Workflow{asks}, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := e.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		f.engine = e
		run, err := e.Start(t.Context(), asks, job{})
		if err != nil {
			t.Fatal(err)
		}
		c := f.callbacks(callbackKey)
		late, err := c.New(t.Context(), run.ID, "paid", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.New(t.Context(), run.ID, "paid", admin.MaxExpiry); err != nil {
			t.Fatal(err)
		}
		long, err := c.New(t.Context(), run.ID, "paid", 2*time.Hour) // a day of an engine in a bubble takes seconds
		if err != nil {
			t.Fatal(err)
		}
		if !late.Expires.Equal(time.Now().Add(time.Hour)) {
			t.Errorf("it expires at %v", late.Expires)
		}
		payload := func() (json.RawMessage, error) { return json.RawMessage("1"), nil }
		use := func(c *admin.Callbacks, made admin.Callback) control.Code {
			_, token, _ := strings.Cut(made.URL, httpserver.CallbackPrefix)
			if err := c.Accept(t.Context(), token, payload); err != nil {
				return control.AsError(err).Code
			}
			return ""
		}
		time.Sleep(time.Hour)
		if code := use(c, late); code != control.CodeExpired {
			t.Errorf("after its time: %q", code)
		}
		if code := use(f.callbacks("another key"), long); code != control.CodeForbidden {
			t.Errorf("with the key of another server: %q", code)
		}
		if code := use(f.callbacks(""), long); code != control.CodeForbidden {
			t.Errorf("without a key: %q", code)
		}
		if _, err := f.callbacks("").New(t.Context(), run.ID, "paid", time.Hour); err == nil || !strings.Contains(err.Error(), "server.callback-key") {
			t.Errorf("a new one without a key: %v", err)
		}
		time.Sleep(time.Hour - 2*time.Second)
		if code := use(c, long); code != "" {
			t.Errorf("shortly before its end: %q", code)
		}
		if err := e.Cancel(t.Context(), run.ID, "test"); err != nil {
			t.Fatal(err)
		}
	})
}

// callbacks returns the callbacks of a server with this key.
func (f *fixture) callbacks(key string) *admin.Callbacks {
	f.t.Helper()
	return admin.New(admin.Config{Engine: f.engine, Logger: quiet(), CallbackKey: secret.New(key)}).Callbacks
}
