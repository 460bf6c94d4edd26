package nip90

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
	"github.com/tideover/tideover/retry"
)

const (
	ourKey      = "0000000000000000000000000000000000000000000000000000000000000001"
	customerKey = "0000000000000000000000000000000000000000000000000000000000000002"
)

// spec returns a configuration with one kind of jobs.
func spec(t *testing.T) *Spec {
	t.Helper()
	key := must(template.Parse("${env:NOSTR_KEY}", template.WithRefs, template.Fields{}))
	agent := must(template.Parse("agent", template.WithoutRefs, steps.StepFields))
	step := &steps.Step{ID: "job", Policy: must(retry.Parse("task")), OutputLimit: 64 << 10, MaxLost: 3, Texts: steps.Texts{Run: []*template.Text{agent}}}
	return &Spec{
		Key: template.NewSecretText(key, "/"), Relays: []string{"ws://127.0.0.1:1"}, Announce: true,
		Kinds:     []*JobKind{{Kind: 5900, Step: step, Timeout: 30 * time.Second, MaxTimeout: 10 * time.Minute, MaxTotal: time.Hour}},
		PerMinute: 10, Burst: 5, Workers: 4, Queue: 64, MaxAge: 10 * time.Minute,
	}
}

// policy returns a change that sets the policy of the jobs.
func policy(text string) func(*Spec) {
	return func(s *Spec) { s.Kinds[0].Step.Policy = must(retry.Parse(text)) }
}

// bench is a service with an engine in memory. It records the answers.
type bench struct {
	*Service
	engine  *engine.Engine
	began   time.Time
	answers chan []*nostr.Event
}

// newBench returns a bench. It must be called in a synctest bubble.
func newBench(t *testing.T, change func(*Spec), attempt engine.Handler) *bench {
	t.Helper()
	offered := spec(t)
	if change != nil {
		change(offered)
	}
	secrets := secret.Resolver{LookupEnv: func(string) (string, bool) { return ourKey, true }, Redactor: new(secret.Redactor)}
	offer, err := Plan(Config{Spec: offered, Secrets: secrets}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Service: New(slog.New(slog.DiscardHandler), false), began: time.Now(), answers: make(chan []*nostr.Event, 8)}
	handlers := b.Handlers(attempt)
	handlers[handlerPublish] = func(_ context.Context, task *engine.Task) ([]byte, error) {
		var a answer
		text, err := task.Output(stepSign)
		if err == nil {
			err = json.Unmarshal(text, &a)
		}
		b.answers <- a.Events
		return nil, err
	}
	var store memlog.Store
	b.engine, err = engine.Open(t.Context(), engine.Config{
		Log: store.Open(), Workflows: offer.Workflows(), Handlers: handlers, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Offer(offer, b.engine)
	return b
}

// ask starts a job.
func (b *bench) ask(t *testing.T, task string, tags ...nostr.Tag) *dvm.Request {
	t.Helper()
	key, err := nostr.ParseSecretKey(customerKey)
	if err != nil {
		t.Fatal(err)
	}
	e := &nostr.Event{Kind: 5900, CreatedAt: time.Now().Unix(), Content: task, Tags: tags}
	if err := e.Sign(key); err != nil {
		t.Fatal(err)
	}
	r, err := dvm.Parse(e, dvm.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	if err := (jobs{b.Service}).Start(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// close ends the engine, so that the bubble can end.
func (b *bench) close(t *testing.T) {
	t.Helper()
	if err := b.engine.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// told returns the events of an answer as text: the time since the start, the kind, the
// content and the tags.
func (b *bench) told(t *testing.T, list []*nostr.Event) string {
	t.Helper()
	var out strings.Builder
	for _, e := range list {
		if err := e.Verify(); err != nil {
			t.Errorf("event %s: %v", e.ID, err)
		}
		fmt.Fprintf(&out, "t=%d kind %d %s\n", e.CreatedAt-b.began.Unix(), e.Kind, e.Content)
		for _, tag := range e.Tags {
			if tag.Name() == "request" {
				tag = nostr.Tag{"request", "…"}
			}
			text, _ := json.Marshal(tag)
			fmt.Fprintf(&out, "    %s\n", bytes.ReplaceAll(text, []byte(`\u003c`), []byte("<")))
		}
	}
	return out.String()
}

// hang waits until its context ends.
func hang(ctx context.Context, _ *engine.Task) ([]byte, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func said(text string) ([]byte, error) { return json.Marshal(map[string]string{"stdout": text + "\n"}) }

func TestWhatACustomerIsTold(t *testing.T) {
	t.Parallel()
	canceled := func(after time.Duration) func(*testing.T, *bench, *dvm.Request) {
		return func(t *testing.T, b *bench, r *dvm.Request) {
			t.Helper()
			time.Sleep(after) // real clock: it runs in a bubble
			if err := (jobs{b.Service}).Cancel(t.Context(), r.ID, "customer"); err != nil {
				t.Error(err)
			}
		}
	}
	for _, c := range []struct {
		name    string
		change  func(*Spec)
		tags    []nostr.Tag
		attempt engine.Handler
		then    func(*testing.T, *bench, *dvm.Request)
	}{
		{name: "success", attempt: func(context.Context, *engine.Task) ([]byte, error) { return said("done <it>") }},
		{name: "hangs", tags: []nostr.Tag{{"timeout", "2"}}, attempt: hang},
		{name: "retry then success", attempt: func(_ context.Context, t *engine.Task) ([]byte, error) {
			if t.Attempt < 3 {
				return nil, errors.New("read https://user:secret@example.com/path?key=1: refused")
			}
			return said("in the end")
		}},
		{name: "fails always", change: policy("task attempts=2"),
			attempt: func(context.Context, *engine.Task) ([]byte, error) { return nil, errors.New("no") }},
		{name: "permanent", attempt: func(context.Context, *engine.Task) ([]byte, error) {
			return nil, retry.Permanent(errors.New("there is no such thing"))
		}},
		{name: "panic", change: policy("task attempts=1"),
			attempt: func(context.Context, *engine.Task) ([]byte, error) { panic("oops") }},
		{name: "ignores cancellation", change: policy("task attempts=2"), tags: []nostr.Tag{{"timeout", "2"}},
			// real clock: it runs in a bubble
			attempt: func(context.Context, *engine.Task) ([]byte, error) { time.Sleep(4 * time.Second); return said("late") }},
		{name: "canceled while running", attempt: hang, then: canceled(3 * time.Second)},
		{name: "canceled while waiting", then: canceled(500 * time.Millisecond),
			attempt: func(context.Context, *engine.Task) ([]byte, error) { return nil, errors.New("no") }},
		{name: "total timeout", change: func(s *Spec) { s.Kinds[0].Total, s.Kinds[0].MaxTotal = true, s.Kinds[0].MaxTimeout }, tags: []nostr.Tag{{"timeout", "5"}}, attempt: hang},
		{name: "timeout above the maximum", tags: []nostr.Tag{{"timeout", "100000"}}, attempt: func(context.Context, *engine.Task) ([]byte, error) { return said("ok") }},
		{name: "too much output", attempt: func(context.Context, *engine.Task) ([]byte, error) {
			return json.Marshal(map[string]any{"stdout": "the beginning", "truncated": true})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, c.change, c.attempt)
				defer b.close(t)
				r := b.ask(t, "do it", append(c.tags, nostr.Tag{"i", "some text", "text"})...)
				if c.then != nil {
					c.then(t, b, r)
				}
				testfile.Golden(t, goldenPath(c.name), b.told(t, <-b.answers))
			})
		})
	}
}

func TestAJobIsCanceledInTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(s *Spec) { s.Workers = 1 }, hang)
		defer b.close(t)
		first, second := b.ask(t, "first"), b.ask(t, "second")
		time.Sleep(2 * time.Second)
		for _, r := range []*dvm.Request{second, first} {
			if err := (jobs{b.Service}).Cancel(t.Context(), r.ID, "customer"); err != nil {
				t.Fatal(err)
			}
			testfile.Golden(t, goldenPath("canceled "+r.Task), b.told(t, <-b.answers))
		}
	})
}

func TestALateResultIsDroppedAndCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		running := 0
		b := newBench(t, nil, func(context.Context, *engine.Task) ([]byte, error) {
			if running++; running > 1 {
				t.Error("two attempts at once")
			}
			time.Sleep(time.Minute)
			running--
			return said("late")
		})
		defer b.close(t)
		b.ask(t, "slow", nostr.Tag{"timeout", "2"})
		list := <-b.answers
		if got := b.late.Load(); got != 4 {
			t.Errorf("%d late results, want 4", got)
		}
		if text := list[len(list)-1].Content; !strings.Contains(text, dvm.CodeTimeout) {
			t.Errorf("result: %s", text)
		}
	})
}

func TestAJobIsStartedOnceAndOnlyAsManyAsThereIsRoomFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(s *Spec) { s.Workers, s.Queue = 1, 1 }, hang)
		defer b.close(t)
		b.ask(t, "first")
		r := b.ask(t, "second")
		if err := (jobs{b.Service}).Start(t.Context(), r); err != nil {
			t.Errorf("the same again: %v", err)
		}
		other := *r
		other.ID = strings.Repeat("ab", 32)
		if err := (jobs{b.Service}).Start(t.Context(), &other); !errors.Is(err, dvm.ErrOverloaded) {
			t.Errorf("a third job: %v, want %v", err, dvm.ErrOverloaded)
		}
	})
}

func TestAJobThatIsRetriedByHandBeforeItsAnswerIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, policy("task attempts=1"), func(_ context.Context, task *engine.Task) ([]byte, error) {
			if task.Total == 1 {
				return nil, errors.New("no")
			}
			time.Sleep(5 * time.Second)
			return said("after all")
		})
		defer b.close(t)
		key := b.keys
		b.keys = nil // without a key, the job can't be answered yet
		b.ask(t, "do it")
		time.Sleep(100 * time.Millisecond)
		dead := must(b.engine.List(t.Context(), engine.Filter{States: []string{"dead"}})).Runs
		if len(dead) != 1 {
			t.Fatalf("%d runs are dead, want 1", len(dead))
		}
		if err := b.engine.Retry(t.Context(), dead[0].ID, "me"); err != nil {
			t.Fatal(err)
		}
		b.mu.Lock()
		b.keys = key
		b.mu.Unlock()
		list := <-b.answers
		if last := list[len(list)-1]; last.Kind != 6900 || last.Content != "after all" {
			t.Errorf("the last event is %d %s, want the result", last.Kind, last.Content)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestWhenAnAnswerIsGiven(t *testing.T) {
	t.Parallel()
	has, away := nostr.Receipt{Relay: "a", State: nostr.Acknowledged}, nostr.Receipt{Relay: "b", State: nostr.Pending}
	no := nostr.Receipt{Relay: "c", State: nostr.Refused, Err: errors.New("blocked")}
	for _, c := range []struct {
		name     string
		receipts []nostr.Receipt
		age      time.Duration
		given    bool
		final    bool
	}{
		{"every relay has it", []nostr.Receipt{has, has}, 0, true, false},
		{"one does not want it", []nostr.Receipt{has, no}, 0, true, false},
		{"one is away", []nostr.Receipt{has, away}, time.Minute, false, false},
		{"one is away for long", []nostr.Receipt{has, away}, enough, true, false},
		{"all are away for long", []nostr.Receipt{away, away}, enough, false, false},
		{"one does not want it and the other is away", []nostr.Receipt{no, away}, enough, false, false},
		{"all relays reject it", []nostr.Receipt{no, no}, 0, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := judge(c.receipts, c.age)
			if given := err == nil; given != c.given {
				t.Errorf("judge: %v, want given: %v", err, c.given)
			}
			if final := err != nil && retry.OutcomeOf(err).Class == retry.ClassPermanent; final != c.final {
				t.Errorf("judge: %v, want final: %v", err, c.final)
			}
		})
	}
}

// goldenPath returns the path of the golden file of a case.
func goldenPath(name string) string { return "testdata/" + strings.ReplaceAll(name, " ", "-") + ".txt" }
