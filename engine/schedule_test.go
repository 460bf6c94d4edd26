package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/journal/memlog"
)

func TestSchedules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		var mu sync.Mutex
		var times []string
		w := must(NewWorkflow("report",
			PrepareInput(func(_ json.RawMessage, at time.Time) (json.RawMessage, error) {
				return json.Marshal(at.UTC().Format(time.DateTime))
			}),
			Step("do", func(_ context.Context, at string) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				times = append(times, at)
				return at, nil
			})))
		seen := func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			s := strings.Join(times, " ")
			times = nil
			return s
		}
		open := func() *Engine {
			return must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet()}))
		}
		daily := Schedule{Name: "daily", Workflow: "report", Cron: "0 3 * * *"}
		e := open()
		if err := e.SetSchedules(t.Context(), []Schedule{daily}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(48 * time.Hour)
		if got, want := seen(), "2000-01-01 03:00:00 2000-01-02 03:00:00"; got != want {
			t.Errorf("two days: %s, want %s", got, want)
		}
		// The same schedule again changes nothing; the server may set it at each start.
		if err := e.SetSchedules(t.Context(), []Schedule{daily}); err != nil {
			t.Fatal(err)
		}
		if list := must(e.Schedules(t.Context())); len(list) != 1 || !list[0].Next.Equal(time.Date(2000, 1, 3, 3, 0, 0, 0, time.UTC)) {
			t.Errorf("Schedules() = %+v", list)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(72 * time.Hour)
		e = open()
		if got, want := seen(), "2000-01-03 03:00:00"; got != want {
			t.Errorf("three starts were missed, and made up for once: %s, want %s", got, want)
		}
		skipping := daily
		skipping.Skip = true
		if err := e.SetSchedules(t.Context(), []Schedule{skipping}); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(72 * time.Hour)
		e = open()
		if got := seen(); got != "" {
			t.Errorf("missed starts that are skipped were made: %s", got)
		}
		time.Sleep(24 * time.Hour)
		if got := seen(); !strings.HasSuffix(got, "03:00:00") {
			t.Errorf("the next one was not: %q", got)
		}
		if err := e.SetSchedules(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(48 * time.Hour)
		if got := seen(); got != "" {
			t.Errorf("a schedule that is gone started %s", got)
		}
		page := must(e.List(t.Context(), Filter{}))
		for _, r := range page.Runs {
			if !strings.HasPrefix(r.Key, "schedule/daily/2000-01-") {
				t.Errorf("key %q", r.Key)
			}
		}
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSchedulesThatAreWrong(t *testing.T) {
	t.Parallel()
	e := opened(t, Config{})
	err := e.SetSchedules(t.Context(), []Schedule{
		{Name: "a", Cron: "whenever"}, {Name: "b", Cron: "0 0 30 2 *"}, {Name: "", Cron: "@daily"},
		{Name: "c", Cron: "@daily"}, {Name: "c", Cron: "@daily"},
	})
	for _, want := range []string{`"a": cron "whenever"`, `"b": cron "0 0 30 2 *": it is never due`, `"": needs a name`, `"c": needs a name that no other schedule has`} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("nothing about %s in %v", want, err)
		}
	}
}

func TestScheduleThatIsPaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		w := must(NewWorkflow("report", Step("do", func(context.Context, any) (any, error) { return nil, nil })))
		open := func() *Engine {
			return must(Open(t.Context(), Config{Log: store.Open(), Workflows: []*Workflow{w}, Logger: quiet()}))
		}
		daily := Schedule{Name: "daily", Workflow: "report", Cron: "0 3 * * *"}
		e := open()
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		state := func() Schedule { return must(e.Schedules(t.Context()))[0] }
		check(e.SetSchedules(t.Context(), []Schedule{daily}))
		check(e.PauseSchedule(t.Context(), "daily", "ann"))
		check(e.PauseSchedule(t.Context(), "daily", "bob")) // changes nothing
		if s := state(); s.Paused == nil || s.Paused.By != "ann" || !s.Next.IsZero() {
			t.Errorf("paused: %+v", s)
		}
		if err := e.PauseSchedule(t.Context(), "weekly", ""); !errors.Is(err, ErrNoSchedule) {
			t.Errorf("PauseSchedule(weekly) = %v", err)
		}
		check(e.Close(t.Context()))
		time.Sleep(48 * time.Hour)
		e = open()
		check(e.SetSchedules(t.Context(), []Schedule{daily})) // as a server does when it starts
		changed := daily
		changed.Cron = "0 4 * * *"
		check(e.SetSchedules(t.Context(), []Schedule{changed}))
		time.Sleep(48 * time.Hour)
		if page := must(e.List(t.Context(), Filter{Fresh: true})); len(page.Runs) != 0 || state().Paused == nil {
			t.Errorf("%d runs while it is paused: %+v", len(page.Runs), state())
		}
		check(e.ResumeSchedule(t.Context(), "daily", "ann"))
		if s := state(); s.Paused != nil || !s.Next.Equal(time.Date(2000, 1, 5, 4, 0, 0, 0, time.UTC)) {
			t.Errorf("resumed: %+v", s)
		}
		time.Sleep(24 * time.Hour)
		if page := must(e.List(t.Context(), Filter{Fresh: true})); len(page.Runs) != 1 {
			t.Errorf("%d runs on the day after", len(page.Runs))
		}
		check(e.Close(t.Context()))
	})
}
