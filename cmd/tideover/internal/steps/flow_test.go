package steps_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/internal/secret"
)

// api is a provider that records the requests of steps, and answers them at once.
type api struct {
	mu    sync.Mutex
	paths []string       // METHOD path, in the order of the requests
	keys  map[string]int // requests by idempotency key
	fails map[string]int // how often a path fails, for good if it is negative
	now   int
	most  int           // most requests at the same time
	takes time.Duration // how long a request takes
	large int           // bytes of the response of /large
	made  string        // path that answers 201
}

// created makes a path answer 201.
func (a *api) created(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.made = path
}

func (a *api) RoundTrip(req *http.Request) (*http.Response, error) {
	what := req.Method + " " + req.URL.RequestURI()
	a.mu.Lock()
	a.paths = append(a.paths, what)
	if a.keys == nil {
		a.keys = map[string]int{}
	}
	a.keys[req.Header.Get("Idempotency-Key")]++
	a.now++
	a.most = max(a.most, a.now)
	fail := a.fails[req.URL.Path] != 0
	if a.fails[req.URL.Path] > 0 {
		a.fails[req.URL.Path]--
	}
	a.mu.Unlock()
	// real clock: it runs in the bubble of enginetest
	time.Sleep(a.takes)
	a.mu.Lock()
	a.now--
	a.mu.Unlock()
	status, body := 200, fmt.Sprintf(`{"path": %q, "list": ["x", {"host": "y"}]}`, req.URL.Path)
	if req.URL.Path == "/large" {
		body = strings.Repeat("x", a.large)
	}
	if a.isMade(req.URL.Path) {
		status = 201
	}
	if fail {
		status, body = 503, "busy"
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

func (a *api) isMade(path string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.made == path
}

func (a *api) said() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.paths, ", ")
}

// file returns the workflows of a file.
func file(t *testing.T, text string) []*engine.Workflow {
	t.Helper()
	cfg, err := config.Load(config.Source{Path: "x.yaml", Data: []byte("version: 1\nserver: {data: /nowhere}\nproviders: {api: {base-url: 'https://api.example', auth: none}}\n" + text), Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := steps.Workflows(cfg.OrderedWorkflows(), cfg.Secrets(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// flows calls f with an engine in virtual time that has the workflows of a file.
func flows(t *testing.T, text string, f func(t *testing.T, e *enginetest.Engine, a *api)) {
	t.Helper()
	a := &api{fails: map[string]int{}}
	r := &steps.Runner{
		Secrets: func() secret.Resolver { return secret.Resolver{} }, Redactor: new(secret.Redactor),
		Provider: func(string) http.RoundTripper { return a },
	}
	cfg := engine.Config{Workflows: file(t, text), Handlers: r.Handlers(), Functions: r.Functions(), MaxPayload: steps.MaxPayload}
	enginetest.TestConfig(t, cfg, func(t *testing.T, e *enginetest.Engine) { f(t, e, a) })
}

func start(t *testing.T, e *enginetest.Engine, workflow, input string) string {
	t.Helper()
	w, ok := e.Workflow(workflow)
	if !ok {
		t.Fatalf("there is no workflow %q", workflow)
	}
	s, err := e.Start(t.Context(), w, json.RawMessage(input), engine.Key(workflow))
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// settled returns the run when nothing happens any more without time passing.
func settled(t *testing.T, e *enginetest.Engine, id string) *engine.Info {
	t.Helper()
	synctest.Wait()
	run, err := e.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func ended(t *testing.T, e *enginetest.Engine, id, state, want string) *engine.Info {
	t.Helper()
	run, err := e.Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	got := run.Error
	if run.State == engine.StateSucceeded {
		got = string(run.Output)
	}
	if run.State != state || !strings.Contains(got, want) {
		t.Fatalf("the run is %s: %s; want %s with %q", run.State, got, state, want)
	}
	return run
}

func wantCalls(t *testing.T, a *api, want string) {
	t.Helper()
	if got := a.said(); got != want {
		t.Errorf("the steps called\n%s, want\n%s", got, want)
	}
}

func get(path string) string { return "http: {provider: api, get: '" + path + "'}" }

// A step is skipped if its condition is false. It counts as succeeded, and its output is null.
func TestWhen(t *testing.T) {
	for condition, want := range map[string]bool{
		"{{ .input.yes }}": true, "{{ .input.no }}": false, "{{ .input.zero }}": false, "{{ .input.one }}": true,
		"{{ .input.word }}": true, "{{ .input.empty }}": false, "{{ .input.false }}": false, "{{ .input.null }}": false,
		"{{ .input.list }}": true, "{{ .input.none }}": false, "{{ eq .input.word \"w\" }}": true, "{{ not .input.yes }}": false,
		" {{ .input.zero }}{{ .input.empty }} ": false, "{{ .input.zero }}{{ .input.one }}": true,
		"{{ and .input.yes (gt .input.one 0) }}": true, "{{ index .input \"missing\" }}": false, "{{ .steps.a.output.list }}": true,
	} {
		flows(t, `
workflows:
  w:
    steps:
      - {id: a, `+get("/a")+`}
      - {id: b, needs: [a], when: '`+condition+`', `+get("/b")+`}
      - {id: c, needs: [b], `+get("/c?{{ .steps.b.skipped }}{{ .steps.b.output }}{{ .steps.b.stdout | len }}")+`}
`, func(t *testing.T, e *enginetest.Engine, a *api) {
			id := start(t, e, "w", `{"yes": true, "no": false, "zero": 0, "one": 1, "word": "w", "empty": "", "false": "false", "null": null, "list": [0], "none": []}`)
			if want {
				run, err := e.Wait(t.Context(), id)
				if err != nil || !strings.HasPrefix(a.said(), "GET /a, GET /b") {
					t.Errorf("%s: %v %v: %s", condition, run, err, a.said())
				}
				return
			}
			run, err := e.Wait(t.Context(), id)
			if err != nil || run.State != engine.StateDead || !strings.Contains(run.Error, ".steps.b.output is null") || a.said() != "GET /a" {
				t.Errorf("%s: %v %v: %s", condition, run, err, a.said())
			}
		})
	}
}

const forEachFile = `
workflows:
  w:
    concurrency: 10
    steps:
      - {id: list, ` + `http: {provider: api, get: /list}}
      - id: each
        needs: [list]
        for-each: "{{ .steps.list.output.list }}"
        parallel: 2
        concurrency: 3
        http: {provider: api, post: "/each/{{ .index }}/{{ json .item | urlquery }}"}
        policy: fixed(1m) attempts=3
      - {id: end, needs: [each], http: {provider: api, get: "/end?{{ len .steps.each }}{{ range .steps.each }},{{ .status }}{{ end }}"}}
`

func TestForEach(t *testing.T) {
	flows(t, forEachFile, func(t *testing.T, e *enginetest.Engine, a *api) {
		a.fails[`/each/0/"x"`] = 1
		a.takes = time.Second
		ended(t, e, start(t, e, "w", `{}`), engine.StateSucceeded, "/end")
		got := a.said()
		if !strings.HasSuffix(got, "GET /end?2,200,200") || strings.Count(got, "POST /each/0/%22x%22") != 2 || strings.Count(got, "POST") != 3 || a.most != 2 {
			t.Errorf("%s, %d at once", got, a.most)
		}
		if len(a.keys) != 3 { // none, each#0 and each#1
			t.Errorf("idempotency keys: %v", a.keys)
		}
	})
}

// The limit of a step counts in all runs together.
func TestConcurrencyOfAStepInAFlow(t *testing.T) {
	flows(t, forEachFile, func(t *testing.T, e *enginetest.Engine, a *api) {
		a.takes = time.Minute
		w, _ := e.Workflow("w")
		var runs []string
		for range 4 {
			s, err := e.Start(t.Context(), w, json.RawMessage(`{}`))
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, s.ID)
		}
		// real clock: it runs in the bubble of enginetest
		time.Sleep(90 * time.Second) // all lists are there, and the items are being sent
		synctest.Wait()
		a.mu.Lock()
		if a.now != 3 {
			t.Errorf("%d requests at once, want 3", a.now)
		}
		a.mu.Unlock()
		for _, id := range runs {
			ended(t, e, id, engine.StateSucceeded, "/end")
		}
	})
}

func TestForEachOfWhatIsNoList(t *testing.T) {
	flows(t, forEachFile+`
  text: {steps: [{id: a, for-each: "{{ .input.a }}", `+get("/a")+`}]}
`, func(t *testing.T, e *enginetest.Engine, a *api) {
		for input, want := range map[string]string{
			`{"a": "x"}`: `step "a": for-each: the value is not a list, but a text; if a step printed it as JSON, use .output instead of .stdout`,
			`{"a": {}}`:  "the value is not a list, but a map",
			`{"a": 5}`:   "the value is not a list, but a single value",
			`{}`:         `map has no entry for key "a"`,
			`{"a": [` + strings.Repeat("1,", 20_000) + `1]}`: `step "a": a run can have at most 20000 operations`,
		} {
			w, _ := e.Workflow("text")
			s, err := e.Start(t.Context(), w, json.RawMessage(input))
			if err != nil {
				t.Fatal(err)
			}
			ended(t, e, s.ID, engine.StateDead, want)
		}
		for _, input := range []string{`{"a": null}`, `{"a": []}`} {
			w, _ := e.Workflow("text")
			s, err := e.Start(t.Context(), w, json.RawMessage(input))
			if err != nil {
				t.Fatal(err)
			}
			ended(t, e, s.ID, engine.StateSucceeded, "[]")
		}
		wantCalls(t, a, "")
	})
}

const waitsFile = `
workflows:
  w:
    steps:
      - {id: before, ` + `http: {provider: api, get: /before}}
      - {id: pause, needs: [before], sleep: "{{ .input.pause }}"}
      - {id: paid, needs: [pause], wait-for: {event: payment, timeout: 3d}}
      - {id: ask, needs: [paid], approve: {question: "{{ .steps.paid.output.eur }} EUR?", timeout: 1d}}
      - {id: child, needs: [ask], workflow: child, input: {eur: "{{ .steps.paid.output.eur }}", all: "{{ .steps.paid.output }}"}}
      - {id: after, needs: [child, ask], http: {provider: api, get: "/after?{{ .steps.ask.by }}-{{ .steps.ask.words }}-{{ .steps.child.output.status }}"}}
  child:
    input: {more: yes}
    steps:
      - {id: nap, sleep: 2h}
      - {id: book, needs: [nap], http: {provider: api, get: "/book?{{ json .input | urlquery }}"}}
`

// Every kind of wait survives the death of the server, and goes on with the steps that the run
// began with: if the file has changed, too.
func TestEachWaitSurvivesACrashAndAChangedFile(t *testing.T) {
	const changed = "\nworkflows: {other: {steps: [{id: x, http: {provider: api, get: /x}}]}, child: {steps: [{id: other, http: {provider: api, get: /other}}]}}\n"
	for name, after := range map[string]string{"same file": waitsFile, "changed file": changed} {
		t.Run(name, func(t *testing.T) {
			flows(t, waitsFile, func(t *testing.T, e *enginetest.Engine, a *api) {
				id := start(t, e, "w", `{"pause": "1h30m"}`)
				settled(t, e, id)
				crash := func(wait string) {
					t.Helper()
					e.Crash(file(t, after)...)
					if run := settled(t, e, id); run.Finished() || run.State == engine.StateNeedsHandler {
						t.Fatalf("%s: the run is %s: %s", wait, run.State, run.Error)
					}
				}
				crash("sleep")
				// real clock: it runs in the bubble of enginetest
				time.Sleep(2 * time.Hour)
				crash("wait-for")
				if err := e.Signal(t.Context(), id, "payment", map[string]int{"eur": 5}); err != nil {
					t.Fatal(err)
				}
				if run := settled(t, e, id); !run.Asking {
					t.Fatalf("the run asks nothing: %s %s", run.State, run.Error)
				}
				crash("approve")
				if err := e.Answer(t.Context(), id, "ask", engine.Answer{Choice: "approve", By: "ada", Words: "yes"}); err != nil {
					t.Fatal(err)
				}
				settled(t, e, id)
				child := "GET /other" // it is started from the file that the server has then
				if after == waitsFile {
					crash("child")
					child = "GET /book?%7B%22all%22%3A%7B%22eur%22%3A5%7D%2C%22eur%22%3A5%2C%22more%22%3A%22yes%22%7D"
				}
				ended(t, e, id, engine.StateSucceeded, "/after")
				wantCalls(t, a, "GET /before, "+child+", GET /after?ada-yes-200")
			})
		})
	}
}

func TestTimeoutsAndAnswers(t *testing.T) {
	const text = `
workflows:
  wait: {steps: [{id: a, wait-for: {event: x, timeout: 1h}}]}
  go-on: {steps: [{id: a, wait-for: {event: x, timeout: 1h, on-timeout: continue}}, {id: b, needs: [a], http: {provider: api, get: "/{{ .steps.a.timed_out }}"}}]}
  ask: {steps: [{id: a, approve: {question: Go?, timeout: 1h}}]}
  default: {steps: [{id: a, approve: {question: Go?, timeout: 1h, default: approve}}, {id: b, needs: [a], http: {provider: api, get: "/{{ .steps.a.choice }}{{ .steps.a.timed_out }}"}}]}
  rejected: {steps: [{id: a, approve: Go?}, {id: b, needs: [a], http: {provider: api, get: /never}}]}
  by-default: {steps: [{id: a, approve: {question: Go?, timeout: 1h, default: reject}}]}
  choose:
    steps:
      - {id: a, approve: {question: Where to?, choices: [paris, rome, reject], on-reject: continue}}
      - {id: b, needs: [a], when: '{{ ne .steps.a.choice "reject" }}', http: {provider: api, get: "/{{ .steps.a.choice }}"}}
`
	flows(t, text, func(t *testing.T, e *enginetest.Engine, a *api) {
		ended(t, e, start(t, e, "wait", `{}`), engine.StateDead, `step "a": no signal "x" came in time`)
		ended(t, e, start(t, e, "go-on", `{}`), engine.StateSucceeded, "/true")
		ended(t, e, start(t, e, "ask", `{}`), engine.StateDead, `step "a": no answer in time`)
		ended(t, e, start(t, e, "default", `{}`), engine.StateSucceeded, "/approvetrue")
		ended(t, e, start(t, e, "by-default", `{}`), engine.StateDead, `step "a": rejected, because there was no answer in time`)
		answer := func(workflow, choice, words string) string {
			t.Helper()
			id := start(t, e, workflow, `{}`)
			settled(t, e, id)
			if err := e.Answer(t.Context(), id, "a", engine.Answer{Choice: choice, By: "ada", Words: words}); err != nil {
				t.Fatal(err)
			}
			return id
		}
		ended(t, e, answer("rejected", "reject", "too late"), engine.StateDead, `step "a": rejected by ada: too late`)
		ended(t, e, answer("choose", "rome", ""), engine.StateSucceeded, "/rome")
		w, _ := e.Workflow("choose")
		s, err := e.Start(t.Context(), w, nil)
		if err != nil {
			t.Fatal(err)
		}
		settled(t, e, s.ID)
		if err := e.Answer(t.Context(), s.ID, "a", engine.Answer{Choice: "reject", By: "ada"}); err != nil {
			t.Fatal(err)
		}
		ended(t, e, s.ID, engine.StateSucceeded, "null")
		wantCalls(t, a, "GET /true, GET /approvetrue, GET /rome")
	})
}

const undoFile = `
workflows:
  w:
    steps:
      - id: order
        http: {provider: api, post: /order}
        undo: {http: {provider: api, delete: "/order?{{ .result.output.path }}&{{ .result.status }}"}, policy: fixed(1m) attempts=5}
      - id: each
        needs: [order]
        for-each: [a, b]
        parallel: 1
        http: {provider: api, post: "/each/{{ .item }}"}
        undo: {http: {provider: api, delete: "/each/{{ .item }}/{{ .index }}?{{ .result.exit }}"}}
      - {id: last, needs: [each], http: {provider: api, post: /last}, policy: fixed(1s) attempts=2}
    on-give-up: {http: {provider: api, post: "/alarm?{{ .steps.order.status }}&{{ len .steps.each }}&{{ .steps.last.exit }}"}}
`

// The undos of a run that fails are executed, the last step first, with their own policy and their
// own idempotency key.
func TestUndo(t *testing.T) {
	flows(t, undoFile, func(t *testing.T, e *enginetest.Engine, a *api) {
		a.fails["/last"] = -1
		a.fails["/order"] = 0
		id := start(t, e, "w", `{}`)
		ended(t, e, id, engine.StateDead, `step "last": status 503`)
		synctest.Wait()
		wantCalls(t, a, "POST /order, POST /each/a, POST /each/b, POST /last, POST /last, DELETE /each/a/0?0, DELETE /each/b/1?0, DELETE /order?%2Forder&200, POST /alarm?200&2&-1")
		for key, n := range a.keys {
			if key == "" || n > 1 && !strings.HasSuffix(key, "/last") {
				t.Errorf("%d requests have the idempotency key %q", n, key)
			}
		}
		// A retry does the work again that was undone.
		a.fails["/last"] = 0
		a.paths = nil
		if err := e.Retry(t.Context(), id, "ada"); err != nil {
			t.Fatal(err)
		}
		ended(t, e, id, engine.StateSucceeded, "/last")
		wantCalls(t, a, "POST /order, POST /each/a, POST /each/b, POST /last")
	})
}

const alarmFile = `
workflows:
  w:
    steps:
      - {id: list, http: {provider: api, get: /list}}
      - {id: never, needs: [list], when: "{{ .input.no }}", http: {provider: api, get: /never}}
      - {id: signal, needs: [list], wait-for: {event: x, timeout: 1h, on-timeout: continue}}
      - {id: ask, needs: [list], approve: {question: Go?, timeout: 1h, default: "go on", choices: ["go on", stop]}}
      - {id: nap, needs: [ask, signal], when: "{{ .input.yes }}", sleep: 1s}
      - id: each
        needs: [nap]
        for-each: [a, b, c, d]
        parallel: 4
        http: {provider: api, post: "/each/{{ .item }}"}
        policy: fixed(1s) attempts=1
      - {id: bad, needs: [each], when: "{{ .input.bad }}", sleep: "{{ .input.sleep }}"}
      - {id: after, needs: [bad], when: "{{ .input.yes }}", http: {provider: api, get: /after}}
    on-give-up:
      http:
        provider: api
        post: "/alarm?{{ .run.step }}&list={{ .steps.list.status }}&never={{ .steps.never.skipped }}&signal={{ .steps.signal.timed_out }}&ask={{ .steps.ask.choice | urlquery }},{{ .steps.ask.timed_out }}&nap={{ .steps.nap.skipped }}\
          &each={{ range .steps.each }}{{ .exit }}{{ .status }},{{ end }}&bad={{ .steps.bad.skipped }}&after={{ .steps.after.skipped }}{{ .steps.after.exit }}"
`

// The alarm of a flow knows which step failed, which steps were skipped or had no answer in time,
// and has a value for each item, also for those that failed.
func TestAlarmOfAFlow(t *testing.T) {
	for name, test := range map[string]struct {
		input, fails, wantError, want string
	}{
		"an item": {`{"no": false, "yes": true, "bad": false}`, "/each/b", `step "each": item 1: status 503`,
			"each&list=200&never=true&signal=true&ask=go+on,true&nap=false&each=0200,-10,0200,0200,&bad=true&after=true-1"},
		"no operation": {`{"no": false, "yes": true, "bad": true, "sleep": "x"}`, "/none", `step "bad": sleep: `,
			"bad&list=200&never=true&signal=true&ask=go+on,true&nap=false&each=0200,0200,0200,0200,&bad=false&after=true-1"},
		"the first": {`{"no": false, "yes": true, "bad": false}`, "/list", `step "list": status 503`,
			"list&list=0&never=true&signal=false&ask=,false&nap=true&each=&bad=true&after=true-1"},
	} {
		t.Run(name, func(t *testing.T) {
			flows(t, alarmFile, func(t *testing.T, e *enginetest.Engine, a *api) {
				a.fails[test.fails] = -1
				a.takes = time.Second
				ended(t, e, start(t, e, "w", test.input), engine.StateDead, test.wantError)
				// real clock: it runs in the bubble of enginetest
				time.Sleep(time.Minute)
				_, alarm, _ := strings.Cut(a.said(), "POST /alarm?")
				if alarm != test.want {
					t.Errorf("the alarm is\n%s, want\n%s", alarm, test.want)
				}
			})
		})
	}
}

// A result that is too large for the alarm is cut, and the others are whole.
func TestAlarmOfAFlowWithLargeResults(t *testing.T) {
	flows(t, `
workflows:
  w:
    steps:
      - {id: small, http: {provider: api, get: /small}}
      - {id: large, needs: [small], output-limit: 192KiB, http: {provider: api, get: /large}}
      - {id: bad, needs: [large], when: "{{ .input }}", http: {provider: api, get: /bad}, policy: fixed(1s) attempts=1}
    on-give-up: {http: {provider: api, post: "/alarm?{{ .run.step }}&{{ .steps.small.output.path }}&{{ .steps.large.truncated }}&{{ .steps.large.exit }}&{{ .input }}"}}
`, func(t *testing.T, e *enginetest.Engine, a *api) {
		a.fails["/bad"] = -1
		a.large = 190 << 10
		ended(t, e, start(t, e, "w", `"in"`), engine.StateDead, `step "bad"`)
		synctest.Wait()
		if _, alarm, _ := strings.Cut(a.said(), "POST /alarm?"); alarm != "bad&%2Fsmall&true&0&in" {
			t.Errorf("the alarm is %q", alarm)
		}
	})
}

// A canceled run undoes what it has done, also after a crash and with another file. If the effect
// of a step is not known, .result has the exit code -1.
func TestUndoAfterCancel(t *testing.T) {
	flows(t, undoFile, func(t *testing.T, e *enginetest.Engine, a *api) {
		a.takes = time.Minute
		a.fails["/order"] = 0
		id := start(t, e, "w", `{}`)
		// real clock: it runs in the bubble of enginetest
		time.Sleep(90 * time.Second) // the first item is being sent
		if err := e.Cancel(t.Context(), id, "ada"); err != nil {
			t.Fatal(err)
		}
		e.Crash(file(t, "\nworkflows: {other: {steps: [{id: x, http: {provider: api, get: /x}}]}}\n")...)
		run, err := e.Wait(t.Context(), id)
		if err != nil || run.State != engine.StateCanceled {
			t.Fatalf("%+v %v", run, err)
		}
		if got := a.said(); !strings.Contains(got, "DELETE /each/a/0?-1") || !strings.HasSuffix(got, "DELETE /order?%2Forder&200") || strings.Contains(got, "/each/b") {
			t.Error(got)
		}
	})
}

// A child whose workflow the file does not have any more waits until the file has it again.
func TestChildWorkflowThatIsGone(t *testing.T) {
	const parent = `
workflows:
  w: {steps: [{id: nap, sleep: 1h}, {id: each, needs: [nap], for-each: [1, 2], workflow: leaf, input: "{{ .item }}"}]}
`
	const leaf = "  leaf: {steps: [{id: x, http: {provider: api, get: '/leaf/{{ .input }}'}}]}\n"
	flows(t, parent+leaf, func(t *testing.T, e *enginetest.Engine, a *api) {
		id := start(t, e, "w", `{}`)
		settled(t, e, id)
		other := file(t, "\nworkflows: {other: {steps: [{id: x, sleep: 1h}]}}\n")
		if err := e.Replace(other); err != nil {
			t.Fatal(err)
		}
		// real clock: it runs in the bubble of enginetest
		time.Sleep(2 * time.Hour)
		if run := settled(t, e, id); run.State != engine.StateNeedsHandler || !strings.Contains(run.Error, `there is no workflow "leaf" now`) {
			t.Fatalf("%s: %s", run.State, run.Error)
		}
		if err := e.Replace(file(t, parent+leaf)); err != nil {
			t.Fatal(err)
		}
		ended(t, e, id, engine.StateSucceeded, "/leaf/2")
	})
}

// The output of a run is that of the steps that no other needs. If it is too large, sizes replace
// it.
func TestOutputOfAFlow(t *testing.T) {
	flows(t, `
workflows:
  w: {steps: [{id: a, sleep: 1s}, {id: b, needs: [a], `+get("/b")+`}, {id: c, needs: [a], `+get("/c")+`}]}
`, func(t *testing.T, e *enginetest.Engine, _ *api) {
		run := ended(t, e, start(t, e, "w", `{}`), engine.StateSucceeded, "/c")
		var out map[string]struct{ Status int }
		if err := json.Unmarshal(run.Output, &out); err != nil || len(out) != 2 || out["b"].Status != 200 {
			t.Errorf("%s: %v", run.Output, err)
		}
	})
}

// A dead run continues with the steps of the current file, and keeps the results of steps by id. It
// waits if the file lacks a step that has a result.
func TestRetryWithTheCurrentFile(t *testing.T) {
	const before = `
workflows:
  w:
    steps:
      - {id: nap, sleep: 1s}
      - {id: a, needs: [nap], http: {provider: api, get: /a}}
      - {id: b, needs: [a], http: {provider: api, get: /broken}, policy: fixed(1s) attempts=1}
`
	after := strings.Replace(before, "/broken", "/mended", 1)
	flows(t, before, func(t *testing.T, e *enginetest.Engine, a *api) {
		a.fails["/broken"] = -1
		id := start(t, e, "w", `{}`)
		ended(t, e, id, engine.StateDead, `step "b": status 503`)
		if err := e.Replace(file(t, after)); err != nil {
			t.Fatal(err)
		}
		if _, err := e.RetryLatest(t.Context(), id, engine.Latest{}, "ada"); err != nil {
			t.Fatal(err)
		}
		ended(t, e, id, engine.StateSucceeded, "/mended")
		wantCalls(t, a, "GET /a, GET /broken, GET /mended")
	})
	flows(t, before, func(t *testing.T, e *enginetest.Engine, a *api) {
		a.fails["/broken"] = -1
		id := start(t, e, "w", `{}`)
		ended(t, e, id, engine.StateDead, `step "b": status 503`)
		if err := e.Replace(file(t, "\nworkflows: {w: {steps: [{id: nap, sleep: 1s}, {id: b, http: {provider: api, get: /mended}}]}}\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := e.RetryLatest(t.Context(), id, engine.Latest{}, "ada"); err != nil {
			t.Fatal(err)
		}
		if run := settled(t, e, id); run.State != engine.StateNeedsHandler || !strings.Contains(run.Error, `a stored operation "a"`) {
			t.Errorf("%s: %s", run.State, run.Error)
		}
		wantCalls(t, a, "GET /a, GET /broken") // nothing is executed by steps that do not fit
	})
}

// Steps that the current file has before others with results are executed: the file says what comes
// after them.
func TestRetryWithStepsAddedToTheFile(t *testing.T) {
	const before = `
workflows:
  w:
    steps:
      - {id: go, wait-for: {event: ready}}
      - {id: a, needs: [go], for-each: [1, 2], http: {provider: api, get: /a}}
      - {id: b, needs: [a], http: {provider: api, get: /broken}, policy: fixed(1s) attempts=1}
`
	after := strings.NewReplacer("/broken", "/mended", "{id: go,", "{id: first, http: {provider: api, get: /first}}\n      - {id: go, needs: [first],").Replace(before)
	flows(t, before, func(t *testing.T, e *enginetest.Engine, a *api) {
		a.fails["/broken"] = -1
		id := start(t, e, "w", `{}`)
		if err := e.Signal(t.Context(), id, "ready", nil); err != nil {
			t.Fatal(err)
		}
		ended(t, e, id, engine.StateDead, `step "b": status 503`)
		if err := e.Replace(file(t, after)); err != nil {
			t.Fatal(err)
		}
		if _, err := e.RetryLatest(t.Context(), id, engine.Latest{}, "ada"); err != nil {
			t.Fatal(err)
		}
		ended(t, e, id, engine.StateSucceeded, "/mended")
		wantCalls(t, a, "GET /a, GET /a, GET /broken, GET /first, GET /mended")
	})
}

// A step of a workflow of plain steps is stored as releases before the forms store it, so that they
// can read it.
func TestPlainStepsAreStoredAsBefore(t *testing.T) {
	cfg, err := config.Load(config.Source{Path: "/x.yaml", Environ: []string{}, Data: []byte(`version: 1
server: {data: /nowhere}
workflows: {w: {steps: [{id: a, run: [x, "{{ .input }}"]}, {id: b, needs: [a], http: {get: "https://a.example"}}], on-give-up: {run: [x]}}}
`)})
	if err != nil {
		t.Fatal(err)
	}
	w := cfg.OrderedWorkflows()[0]
	if w.IsFlow() {
		t.Error("the workflow is a flow")
	}
	for s, want := range map[*steps.Step]string{
		w.Steps[0]: `{"id":"a","policy":"fixed(1s..5m) attempts=3","base":"/","dir":"/","run":["x","{{ .input }}"],"env_inherit":[],"output_limit":65536}`,
		w.Steps[1]: `{"id":"b","needs":["a"],"after":["a"],"policy":"POLICY","base":"/","output_limit":65536,"method":"GET","url":"https://a.example"}`,
		w.OnGiveUp: `{"id":"on-give-up","after":["a","b"],"give_up":true,"policy":"fixed(1s..5m) attempts=3","base":"/","dir":"/","run":["x"],"env_inherit":[],"output_limit":65536}`,
	} {
		want = strings.Replace(want, "POLICY", w.Steps[1].Policy.String(), 1)
		if text, err := json.Marshal(s); err != nil || string(text) != want {
			t.Errorf("%s, %v, want\n%s", text, err, want)
		}
	}
}
