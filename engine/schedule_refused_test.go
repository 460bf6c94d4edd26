package engine

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/retry"
)

// eventLog notes the events of refused starts.
type eventLog struct {
	mu   sync.Mutex
	list []retry.Event
}

func (l *eventLog) observe(ev retry.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ev.Kind == retry.StartRefused {
		l.list = append(l.list, ev)
	}
}

func (l *eventLog) take() []retry.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list
}

// checkRefused checks that the only schedule is shown as refused everywhere, or
// nowhere if want is empty.
func checkRefused(t *testing.T, e *Engine, count int, want string) {
	t.Helper()
	synctest.Wait()
	list, warnings := must(e.Schedules(t.Context())), e.Warnings()
	stats := must(e.Stats(t.Context())).Warnings
	if want == "" {
		if len(list) != 1 || list[0].Refused != nil || len(warnings)+len(stats) > 0 {
			t.Errorf("schedules %+v, warnings %v, stats %v; want no refused start", list, warnings, stats)
		}
		return
	}
	if len(list) != 1 || list[0].Refused == nil || list[0].Refused.Count != count || !strings.Contains(list[0].Refused.Error, want) {
		t.Fatalf("schedules %+v; want one with %d refused starts: %s", list, count, want)
	}
	for _, w := range [][]Trouble{warnings, stats} {
		if len(w) != 1 || !strings.Contains(w[0].What, "daily") || !strings.Contains(w[0].Error, want) || !w[0].Since.Equal(list[0].Refused.Since) {
			t.Errorf("warnings %+v; want one of schedule daily since %v: %s", w, list[0].Refused.Since, want)
		}
	}
	if len(e.Troubles()) > 0 {
		t.Errorf("troubles %v: a refused start does not keep the engine from working", e.Troubles())
	}
}

func TestARefusedScheduledStartIsVisible(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var broken atomic.Bool
		var events eventLog
		broken.Store(true)
		w := must(NewWorkflow("report",
			PrepareInput(func(json.RawMessage, time.Time) (json.RawMessage, error) {
				if broken.Load() {
					return nil, errors.New("template: no key SECRET")
				}
				return json.RawMessage(`"x"`), nil
			}),
			Step("do", func(context.Context, string) (string, error) { return "", nil })))
		open := func() *Engine {
			return must(Open(t.Context(), Config{
				Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet(), Observer: events.observe,
				Redact: func(s string) string { return strings.ReplaceAll(s, "SECRET", "***") },
			}))
		}
		daily := []Schedule{{Name: "daily", Workflow: "report", Cron: "0 3 * * *"}}
		e := open()
		if err := e.SetSchedules(t.Context(), daily); err != nil {
			t.Fatal(err)
		}
		checkRefused(t, e, 0, "")
		time.Sleep(48 * time.Hour)
		checkRefused(t, e, 2, "template: no key ***")
		if list := events.take(); len(list) != 2 || list[0].Name != "report" || list[0].Note != "schedule daily" || list[0].Err == nil {
			t.Errorf("events %v; want one of each refused start", list)
		}
		// It is still known after a restart, and when the same schedules are set again.
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e = open()
		checkRefused(t, e, 2, "template: no key ***")
		if err := e.SetSchedules(t.Context(), daily); err != nil {
			t.Fatal(err)
		}
		checkRefused(t, e, 2, "template: no key ***")
		next := must(e.Schedules(t.Context()))[0].Next
		// It is over when the schedules are set and the next start would succeed.
		broken.Store(false)
		if err := e.SetSchedules(t.Context(), daily); err != nil {
			t.Fatal(err)
		}
		checkRefused(t, e, 0, "")
		if got := must(e.Schedules(t.Context()))[0].Next; !got.Equal(next) {
			t.Errorf("the next start moved from %v to %v", next, got)
		}
		// Or when a start has succeeded.
		broken.Store(true)
		time.Sleep(24 * time.Hour)
		checkRefused(t, e, 1, "template: no key ***")
		broken.Store(false)
		time.Sleep(24 * time.Hour)
		checkRefused(t, e, 0, "")
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAScheduleNeedsAWorkflowThatIsRegistered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var events eventLog
		var runs atomic.Int32
		w := must(NewWorkflow("report", Step("do", func(context.Context, any) (string, error) { runs.Add(1); return "", nil })))
		open := func(workflows ...*Workflow) *Engine {
			return must(Open(t.Context(), Config{Log: store.Open(), Workflows: workflows, Logger: quiet(), Observer: events.observe}))
		}
		e := open(w)
		daily := Schedule{Name: "daily", Workflow: "report", Cron: "0 3 * * *"}
		if err := e.SetSchedules(t.Context(), []Schedule{daily}); err != nil {
			t.Fatal(err)
		}
		err := e.SetSchedules(t.Context(), []Schedule{{Name: "nightly", Workflow: "repotr", Cron: "0 4 * * *"}})
		if !errors.Is(err, ErrUnknownWorkflow) || !strings.Contains(err.Error(), `schedule "nightly": workflow "repotr"`) {
			t.Errorf("SetSchedules = %v; want ErrUnknownWorkflow that names both", err)
		}
		checkRefused(t, e, 0, "") // the other one is still there
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		// A process without the workflow has the schedule, and can't start it.
		e = open()
		checkRefused(t, e, 0, "")
		time.Sleep(24 * time.Hour)
		checkRefused(t, e, 1, `workflow "report"`)
		if list := events.take(); len(list) != 1 {
			t.Errorf("events %v; want one", list)
		}
		if err := e.Register(w); err != nil {
			t.Fatal(err)
		}
		checkRefused(t, e, 0, "")
		if n := runs.Load(); n != 1 {
			t.Errorf("%d runs after the workflow was registered, want the one that was due", n)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestClusterScheduleNeedsAWorkflowThatIsKnown(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		w := must(NewWorkflow("report", PrepareInput(func(json.RawMessage, time.Time) (json.RawMessage, error) {
			return nil, errors.New("template: no key")
		}), nothing()))
		a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
		b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
		settled(t, a, b)
		if err := a.SetSchedules(t.Context(), []Schedule{{Name: "daily", Workflow: "unknown", Cron: "@daily"}}); !errors.Is(err, ErrUnknownWorkflow) {
			t.Errorf("SetSchedules = %v; want ErrUnknownWorkflow", err)
		}
		daily := []Schedule{{Name: "daily", Workflow: "report", Cron: "0 3 * * *", Input: []byte("1")}}
		if err := a.SetSchedules(t.Context(), daily); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		for _, m := range []*member{a, b} { // whichever has the schedule, both show it
			list, stats := must(m.Schedules(t.Context())), must(m.Stats(t.Context()))
			if len(list) != 1 || list[0].Refused == nil || len(stats.Warnings) != 1 {
				t.Errorf("schedules %+v, warnings %v; want one refused start", list, stats.Warnings)
			}
		}
		a.kill()
		time.Sleep(time.Hour)
		if list := must(b.Schedules(t.Context())); len(list) != 1 || list[0].Refused == nil || len(b.Warnings()) != 1 {
			t.Errorf("after a takeover: schedules %+v, warnings %v", list, b.Warnings())
		}
	})
}
