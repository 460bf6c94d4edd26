package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// inbox is a server that records messages. It answers with the given statuses, then with 200.
type inbox struct {
	*httptest.Server
	mu       sync.Mutex
	messages []notify.Message
	tries    int
	status   []int
}

func newInbox(t *testing.T, status ...int) *inbox {
	t.Helper()
	b := &inbox{status: status}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		var m notify.Message
		_ = json.Unmarshal(text, &m)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.tries++; b.tries <= len(b.status) {
			w.WriteHeader(b.status[b.tries-1])
			return
		}
		b.messages = append(b.messages, m)
	}))
	t.Cleanup(b.Close)
	return b
}

// events returns the events of the messages.
func (b *inbox) events() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var words []string
	for _, m := range b.messages {
		words = append(words, string(m.Event)+" "+m.Subject)
	}
	return strings.Join(words, ", ")
}

func here() notify.Place { return notify.Place{} }

func settings(cfg *config.Config) Config {
	return Config{Notifiers: cfg.OrderedNotifiers(), Env: cfg.NotifyEnv(), Place: here, Retention: cfg.Server.Retention}
}

func load(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Source{Data: []byte("version: 1\n" + text), Environ: []string{"HOME=/", "KEY=PLANTED"}, Redactor: new(secret.Redactor)})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// opened opens an engine with an outbox.
func opened(t *testing.T, store *memlog.Store, o *Outbox, handlers map[string]engine.Handler, flows ...*engine.Workflow) *engine.Engine {
	t.Helper()
	all := o.Handlers()
	maps.Copy(all, handlers)
	e, err := engine.Open(t.Context(), engine.Config{
		Log: store.Open(), Workflows: append(flows, o.Workflows()...), Handlers: all, Logger: slog.New(slog.DiscardHandler), Observer: o.Observe,
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Attach(e)
	return e
}

func TestGivingUpIsToldThoughTheReceiverIsAway(t *testing.T) {
	t.Parallel()
	in := newInbox(t, 503, 503)
	cfg := load(t, `notify: {hook: {webhook: "`+in.URL+`", timeout: 1h, policy: fixed(10ms) attempts=5}}`)
	o, err := New(settings(cfg))
	if err != nil {
		t.Fatal(err)
	}
	alarm, err := o.Alarm("work", []string{"hook"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := engine.NewWorkflow("work", engine.Step("do", func(context.Context, any) (any, error) { return nil, errors.New("oops") },
		engine.Policy("fixed(1ms) attempts=2")), engine.OnGiveUp(alarm))
	if err != nil {
		t.Fatal(err)
	}
	var store memlog.Store
	e := opened(t, &store, o, nil, w)
	defer e.Close(context.Background())
	run, err := e.Start(t.Context(), w, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the inbox has a message", func() bool { return in.events() != "" })
	// Only one message, although hook wants dead letters, too.
	if got := in.events(); got != "gave-up work" || in.tries != 3 {
		t.Errorf("the inbox has %q after %d attempts", got, in.tries)
	}
	if m := in.messages[0]; m.Reason != "attempts" || m.Line != "oops" || m.Run != run.ID {
		t.Errorf("the message is %+v", m)
	}
}

// The events of a session, with virtual time.
func TestASessionIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Commands instead of webhooks, because virtual time does not pass while a connection is open.
		file := filepath.Join(t.TempDir(), "messages")
		told := func(on string) string {
			return `{run: [sh, -c, 'echo "$TIDEOVER_EVENT $TIDEOVER_SUBJECT" >> "$0"', ` + file + `], on: ` + on + `, dedupe: 0}`
		}
		cfg := load(t, "notify:\n  all: "+told("[gave-up, waiting>30m, resumed]")+"\n  none: "+told("[breaker-open]")+"\n  deaf: "+told("[gave-up, waiting, resumed]")+"\n")
		o, err := New(settings(cfg))
		if err != nil {
			t.Fatal(err)
		}
		policy, err := retry.Parse("fixed(10s) attempts=2 server-wait=1d")
		if err != nil {
			t.Fatal(err)
		}
		spec := &session.Spec{Name: "night", Start: []string{"x"}, Pack: "generic", Policy: policy}
		alarm, err := o.Listen(spec, []string{"all", "none"})
		if err != nil {
			t.Fatal(err)
		}
		flow, err := spec.Workflow(alarm)
		if err != nil {
			t.Fatal(err)
		}
		answers := []error{engine.LimitedFor(time.Hour, "limit"), errors.New("oops"), errors.New("oops")}
		n := 0
		var store memlog.Store
		e := opened(t, &store, o, map[string]engine.Handler{session.Handler: func(ctx context.Context, _ *engine.Task) ([]byte, error) {
			n++
			_ = engine.Progress(ctx, n) // as the real handler does when a command starts
			return nil, answers[n-1]
		}}, flow)
		run, err := e.Start(t.Context(), flow, nil)
		if err != nil {
			t.Fatal(err)
		}
		if i, err := run.Wait(t.Context()); err != nil || i.State != "dead" {
			t.Fatalf("session is %+v, %v", i, err)
		}
		time.Sleep(time.Minute)
		want := "waiting night\nresumed night\ngave-up night\n"
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("the messages are %q, %v, want %q", got, err, want)
		}
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// A process is killed after it stored the wait of a session, and before it stored the message. The
// next process reads the wait from the run and sends the same message.
func TestAWaitIsToldByTheNextProcess(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{
		"a limit":   engine.LimitedFor(time.Hour, "limit"),
		"a failure": errors.New("oops"),
		"a snooze":  engine.Snooze(time.Hour, "held"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cfg := load(t, `notify: {hook: {run: ["true"], on: [waiting], dedupe: 0}}`)
				policy, err := retry.Parse("fixed(1h) attempts=2 server-wait=1d")
				if err != nil {
					t.Fatal(err)
				}
				spec := &session.Spec{Name: "night", Start: []string{"x"}, Pack: "generic", Policy: policy}
				flow, err := spec.Workflow(nil)
				if err != nil {
					t.Fatal(err)
				}
				var store memlog.Store
				open := func() (*Outbox, *engine.Engine) {
					o, err := New(settings(cfg))
					if err == nil {
						_, err = o.Listen(spec, []string{"hook"})
					}
					if err != nil {
						t.Fatal(err)
					}
					return o, opened(t, &store, o, map[string]engine.Handler{session.Handler: func(context.Context, *engine.Task) ([]byte, error) { return nil, failure }}, flow)
				}
				messages := func(e *engine.Engine) []engine.Info {
					synctest.Wait()
					page, err := e.List(t.Context(), engine.Filter{Workflow: prefix + "hook"})
					if err != nil {
						t.Fatal(err)
					}
					return page.Runs
				}
				start := func(e *engine.Engine) *engine.Info {
					started, err := e.Start(t.Context(), flow, nil)
					if err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					i, err := e.Get(t.Context(), started.ID)
					if err != nil || i.State != engine.StateWaiting {
						t.Fatalf("the session is %+v, %v", i, err)
					}
					return i
				}
				o, e := open()
				told := start(e)
				o.Attach(nil) // as if the process were killed before it stored a message
				untold := start(e)
				if list := messages(e); len(list) != 1 {
					t.Fatalf("the messages are %+v, want that of the first session", list)
				}
				if err := e.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					o, e = open()
					o.Recover(told)
					o.Recover(untold)
					if list := messages(e); len(list) != 2 {
						t.Errorf("the messages are %+v, want one of each session", list)
					}
					if err := e.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// The receiver is away for an hour. Afterwards the messages arrive in the order of their events, also
// if another process sends them.
func TestMessagesKeepTheirOrderAfterAnOutage(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"the same process": false, "another process": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				cfg := load(t, `notify: {hook: {run: [sh, -c, 'test -e "$0/up" && echo "$TIDEOVER_TITLE" >> "$0/sent"', "`+dir+`"], dedupe: 0}}`)
				var store memlog.Store
				open := func() (*Outbox, *engine.Engine) {
					o, err := New(settings(cfg))
					if err != nil {
						t.Fatal(err)
					}
					return o, opened(t, &store, o, nil)
				}
				o, e := open()
				want := ""
				for i := range 8 {
					m := notify.Message{ID: strconv.Itoa(i), Event: notify.GaveUp, Title: "message " + strconv.Itoa(i), Time: time.Now()}
					if _, err := e.StartRegistered(t.Context(), o.notifiers["hook"].flow, m); err != nil {
						t.Fatal(err)
					}
					want += m.Title + "\n"
					time.Sleep(time.Duration(1+i*i) * 13 * time.Second)
				}
				time.Sleep(time.Hour)
				if restart {
					if err := e.Close(t.Context()); err != nil {
						t.Fatal(err)
					}
					_, e = open()
				}
				if err := os.WriteFile(filepath.Join(dir, "up"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				time.Sleep(7 * time.Minute) // the policy retries after at most 5
				if got, err := os.ReadFile(filepath.Join(dir, "sent")); err != nil || string(got) != want {
					t.Errorf("the messages are %q, %v, want %q", got, err, want)
				}
				if err := e.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The process that ran a session was killed before it observed the end. The next one stores the
// message, once.
func TestASuccessIsToldByTheNextProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := load(t, `notify: {hook: {run: ["true"], on: [succeeded], dedupe: 0}}`)
		policy, err := retry.Parse("fixed(1h) attempts=2 server-wait=1d")
		if err != nil {
			t.Fatal(err)
		}
		spec := &session.Spec{Name: "night", Start: []string{"x"}, Pack: "generic", Policy: policy}
		flow, err := spec.Workflow(nil)
		if err != nil {
			t.Fatal(err)
		}
		o, err := New(settings(cfg))
		if err == nil {
			_, err = o.Listen(spec, []string{"hook"})
		}
		if err != nil {
			t.Fatal(err)
		}
		var store memlog.Store
		e := opened(t, &store, o, map[string]engine.Handler{session.Handler: func(_ context.Context, task *engine.Task) ([]byte, error) {
			if task.Attempt == 1 {
				return nil, errors.New("oops")
			}
			return []byte("{}"), nil
		}}, flow)
		defer e.Close(context.Background())
		for _, told := range []bool{true, false} {
			if !told {
				o.Attach(nil) // as if the process were killed before it stored the message
			}
			run, err := e.Start(t.Context(), flow, nil)
			if err != nil {
				t.Fatal(err)
			}
			i, err := run.Wait(t.Context())
			if err != nil || i.State != engine.StateSucceeded {
				t.Fatalf("the session is %+v, %v", i, err)
			}
			synctest.Wait()
			o.Attach(e)
			for range 2 {
				o.Recover(i)
			}
		}
		synctest.Wait()
		if page, err := e.List(t.Context(), engine.Filter{Workflow: prefix + "hook"}); err != nil || len(page.Runs) != 2 {
			t.Errorf("the messages are %+v, %v, want one of each session", page.Runs, err)
		}
	})
}

// An engine that stores messages for an hour no longer knows that it sent one; it must not be sent
// again.
func TestAWaitIsNotToldAgainWhenItsMessageIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := load(t, "server: {retention: 1h}\nnotify: {hook: {run: ['true'], on: [waiting], dedupe: 0}}")
		policy, err := retry.Parse("fixed(1h) attempts=2 server-wait=1d")
		if err != nil {
			t.Fatal(err)
		}
		spec := &session.Spec{Name: "night", Start: []string{"x"}, Pack: "generic", Policy: policy}
		flow, err := spec.Workflow(nil)
		if err != nil {
			t.Fatal(err)
		}
		var store memlog.Store
		sent := 0
		open := func() (*Outbox, *engine.Engine) {
			o, err := New(settings(cfg))
			if err == nil {
				_, err = o.Listen(spec, []string{"hook"})
			}
			if err != nil {
				t.Fatal(err)
			}
			handlers := o.Handlers()
			handlers[handlerSend] = func(context.Context, *engine.Task) ([]byte, error) { sent++; return nil, nil }
			handlers[session.Handler] = func(context.Context, *engine.Task) ([]byte, error) {
				return nil, engine.LimitedFor(5*time.Hour, "limit")
			}
			e, err := engine.Open(t.Context(), engine.Config{
				Log: store.Open(), Retention: cfg.Server.Retention, Workflows: append([]*engine.Workflow{flow}, o.Workflows()...), Handlers: handlers,
				Logger: slog.New(slog.DiscardHandler), Observer: o.Observe,
			})
			if err != nil {
				t.Fatal(err)
			}
			o.Attach(e)
			return o, e
		}
		_, e := open()
		run, err := e.Start(t.Context(), flow, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			time.Sleep(90 * time.Minute)
			if err := e.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			var o *Outbox
			o, e = open()
			i, err := e.Get(t.Context(), run.ID)
			if err != nil || i.State != engine.StateWaiting {
				t.Fatalf("the session is %+v, %v", i, err)
			}
			o.Recover(i)
			synctest.Wait()
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if sent != 1 {
			t.Errorf("%d messages were sent, want 1", sent)
		}
	})
}

// The attempts of a run are those of all its steps; the message names one step.
func TestAGiveUpCountsTheAttemptsOfItsStep(t *testing.T) {
	t.Parallel()
	o, err := New(settings(load(t, `notify: {hook: {webhook: "http://127.0.0.1:1"}}`)))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		made int
		want string
	}{{"of this release", 3, "step pay: 3 attempts"}, {"of an earlier release", 0, "step pay: 5 attempts"}} {
		input, err := json.Marshal(engine.GaveUp{Run: "r", Workflow: "work", Step: "pay", Attempts: 5, StepAttempts: test.made, Reason: "attempts", Error: "oops"})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := o.giveUp(&engine.Task{Input: input}); err != nil || !strings.HasPrefix(m.Text, test.want) {
			t.Errorf("a run %s: %q, %v; want %q", test.name, m.Text, err, test.want)
		}
	}
}

func TestAMessageSurvivesARestart(t *testing.T) {
	t.Parallel()
	in := newInbox(t)
	cfg := load(t, `notify: {hook: {webhook: "`+in.URL+`", timeout: 1h, policy: fixed(10ms) attempts=unlimited}}`)
	bad := load(t, `notify: {hook: {webhook: "http://127.0.0.1:1", policy: fixed(10ms) attempts=unlimited}}`)
	o, err := New(settings(bad))
	if err != nil {
		t.Fatal(err)
	}
	var store memlog.Store
	e := opened(t, &store, o, nil)
	o.Observe(retry.Event{Kind: retry.GaveUp, Name: "work", Run: "r", Time: time.Now(), Err: errors.New("oops")})
	o.Observe(retry.Event{Kind: retry.GaveUp, Name: "notify.hook", Run: "r", Time: time.Now()}) // about a message itself: never sent
	testwait.Until(t, "an attempt to send has failed", func() bool {
		stats, err := e.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(stats.Workflows, func(w engine.WorkflowStats) bool { return w.Totals.Failures > 0 })
	})
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o, err = New(settings(cfg)); err != nil {
		t.Fatal(err)
	}
	e = opened(t, &store, o, nil)
	defer e.Close(context.Background())
	testwait.Until(t, "the inbox has a message", func() bool { return in.events() != "" })
	if got := in.events(); got != "dead-letter work" {
		t.Errorf("the inbox has %q", got)
	}
}

func TestANotifierThatIsGone(t *testing.T) {
	t.Parallel()
	cfg := load(t, `notify: {hook: {webhook: "http://127.0.0.1:1"}}`)
	o, err := New(settings(cfg))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Alarm("work", []string{"fone"}); err == nil {
		t.Error("an alarm by a notifier that is not there")
	}
	none, err := New(settings(load(t, "")))
	if err != nil {
		t.Fatal(err)
	}
	o.Become(none)
	_, err = o.Handlers()[handlerSend](t.Context(), &engine.Task{Args: []byte(`{"notifier":"hook"}`)})
	if err == nil || retry.OutcomeOf(err).Class != retry.ClassPermanent || !strings.Contains(err.Error(), "no longer configured") {
		t.Errorf("sending by it: %v", err)
	}
}

// A message about a wait contains its reason, also after a crash, and there is no message that a
// session continues while it waits.
func TestWhatASessionWaitsForIsTold(t *testing.T) {
	t.Parallel()
	o, err := New(settings(load(t, "")))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ev := retry.Event{Time: now, Name: "session.odd", Run: "r", Step: "session"}
	ev.Kind, ev.Err = retry.AttemptFailed, errors.New("exit code 3: oops")
	_, _ = o.compose(ev)
	ev.Kind, ev.Err, ev.Delay, ev.Until, ev.By = retry.Waiting, nil, 40*time.Second, now.Add(40*time.Second), retry.ByPolicy
	if m, ok := o.compose(ev); !ok || !strings.Contains(m.Text, "exit code 3: oops") {
		t.Errorf("the message is %+v, %v", m, ok)
	}
	resumed := retry.Event{Kind: retry.Resumed, Time: now.Add(time.Second), Name: "session.odd", Run: "r", Note: "cli:me"}
	if m, ok := o.compose(resumed); ok {
		t.Errorf("it waits on, and told was %+v", m)
	}
	resumed.Time = now.Add(time.Minute)
	if m, ok := o.compose(resumed); !ok || m.Event != notify.Resumed {
		t.Errorf("it continues, and the message was %+v, %v", m, ok)
	}
}

// There is one message about a handover, although several events report it, and one about its end.
func TestAHandOverIsTold(t *testing.T) {
	t.Parallel()
	o, err := New(settings(load(t, "")))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 7, 9, 12, 0, 0, 0, time.UTC)
	memo := session.Memo{
		Last:     &session.Stop{Reason: "rate-limit", Line: "usage limit reached"},
		Handover: &session.Handover{Number: 1, Assistant: "codex", Until: now.Add(5 * time.Hour), Back: now.Add(5 * time.Hour)},
		Turns:    []session.Turn{{Assistant: "claude", From: now.Add(-time.Hour), To: now, Ended: "rate-limit"}, {Assistant: "codex", Fallback: true, From: now}},
	}
	tell := func(kind retry.EventKind, note any, change func(*retry.Event)) (notify.Message, bool) {
		t.Helper()
		text, err := json.Marshal(note)
		if err != nil {
			t.Fatal(err)
		}
		ev := retry.Event{Kind: kind, Time: now.Add(time.Minute), Name: "session.shop", Run: "r", Step: "session", Attempt: 2, Note: string(text)}
		if change != nil {
			change(&ev)
		}
		return o.compose(ev)
	}
	if m, ok := tell(retry.Waiting, "handed over to codex", func(ev *retry.Event) { ev.By = retry.ByServer }); ok {
		t.Errorf("a message that something follows at once: %+v", m)
	}
	first, ok := tell(retry.Progressed, memo, nil)
	again, _ := tell(retry.Progressed, memo, func(ev *retry.Event) { ev.Time, ev.Attempt = now.Add(time.Hour), 3 })
	if !ok || first.Event != notify.Waiting || first.Wait != 5*time.Hour || first.Title != "shop was handed over to codex" || !strings.Contains(first.Text, ", as the assistant stated\nlast: usage limit reached") || first.ID != again.ID {
		t.Errorf("the message is %+v, %v, and then %+v", first, ok, again)
	}
	memo.Handover.Over = true
	memo.Turns[1].To = now.Add(2 * time.Hour)
	memo.Turns = append(memo.Turns, session.Turn{Assistant: "claude", From: now.Add(5 * time.Hour)})
	back, ok := tell(retry.Progressed, memo, nil)
	again, _ = tell(retry.Progressed, memo, func(ev *retry.Event) { ev.Time = now.Add(9 * time.Hour) })
	if !ok || back.Event != notify.Resumed || back.Text != "claude continues after its limit; meanwhile codex worked" || back.ID != again.ID || back.ID == first.ID {
		t.Errorf("the message is %+v, %v, and then %+v", back, ok, again)
	}
	memo.Turns[2].To = now.Add(6 * time.Hour)
	memo.Turns = append(memo.Turns, session.Turn{Assistant: "claude", From: now.Add(7 * time.Hour)})
	if m, ok := tell(retry.Progressed, memo, nil); ok {
		t.Errorf("a message about the next command of the session: %+v", m)
	}
}
