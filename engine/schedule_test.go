package engine

import (
	"context"
	"encoding/json"
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
	for _, want := range []string{`"a": cron "whenever"`, `"b": cron "0 0 30 2 *": is never due`, `"": needs a name`, `"c": needs a name that no other schedule has`} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("nothing about %s in %v", want, err)
		}
	}
}
