package web

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/timeseries"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
	"github.com/tideover/tideover/retry"
)

// count sends the events of runs of a workflow that succeed at once to the store.
func count(s *timeseries.Store, workflow string, runs int) {
	for n := range runs {
		id := fmt.Sprintf("01k9v3q0h2%016d", n)
		for _, kind := range []retry.EventKind{retry.RunStarted, retry.AttemptStarted, retry.Succeeded} {
			s.Observe(retry.Event{Kind: kind, Name: workflow, Run: id, Time: time.Now()})
		}
	}
}

func TestTrendsOnPages(t *testing.T) {
	t.Parallel()
	store := timeseries.Open(filepath.Join(t.TempDir(), "charts"), slog.New(slog.DiscardHandler))
	b := newTestSite(t, func(o *setup) { o.Charts = store })
	has(t, "without runs", b.page("/overview"), "Runs over time", "No run started or ended in the last hour.", "loses the counts of at most the last minute")
	count(store, "quick", 3)
	count(store, "slow", 4)
	has(t, "the overview", b.page("/overview"), `aria-label="the last hour: 7 runs started, 7 succeeded, 0 gave up, 0 canceled"`, "7 succeeded", "peak: 7 in", `class="swatch p99"`, "Wait for the first attempt", "60 min ago")
	body := b.page("/workflows/quick?range=day")
	has(t, "the page of a workflow", body, `aria-label="the last day: 3 runs started, 3 succeeded, 0 gave up, 0 canceled"`, "24 h ago")
	hasNot(t, "a process alone", body, "members of the cluster")
	for n := range timeseries.MaxWorkflows {
		count(store, fmt.Sprint("w", n), 1)
	}
	has(t, "a workflow beyond the limit", b.page("/workflows/order"), "no charts of its own")
	hasNot(t, "a server without charts", newTestSite(t).page("/overview"), "Runs over time")
	clustered := newTestSite(t, func(o *setup) { o.Charts, o.Clustered = store, true })
	has(t, "a member of a cluster", clustered.page("/overview"), "only runs in this process")
}

// The URL of a page has the range of the charts, also for the stream that updates the page.
func TestRangeOfTrends(t *testing.T) {
	t.Parallel()
	store := timeseries.Open(filepath.Join(t.TempDir(), "charts"), slog.New(slog.DiscardHandler))
	b := newTestSite(t, func(o *setup) { o.Charts = store })
	count(store, "quick", 3)
	for _, path := range []string{"/overview", "/workflows/quick"} {
		for query, want := range map[string]string{"": "hour", "?range=hour": "hour", "?range=day": "day", "?range=two-weeks": "two-weeks", "?range=year": "hour", "?range=": "hour"} {
			on := `<a href="` + path + `?range=` + want + `#trends" aria-current="true">`
			stream := "/live" + path
			if strings.Contains(query, want) {
				stream += query
			}
			body := b.page(path + query)
			has(t, path+query, body, on, `hx-sse:connect="`+stream+`"`)
			if n := strings.Count(body, `href="`+path+`?range=`); n != 3 {
				t.Errorf("%s has %d links to ranges, want 3", path+query, n)
			}
			has(t, "the update of "+path+query, b.message(stream), on)
		}
	}
}

// Without a choice, the charts show the shortest range with runs.
func TestDefaultRange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := timeseries.Open(filepath.Join(t.TempDir(), "charts"), slog.New(slog.DiscardHandler))
		charts := admin.New(admin.Config{Charts: store}).Charts
		count(store, "report", 1)
		for _, c := range []struct {
			after  time.Duration
			chosen string
			want   string
			shown  bool
		}{
			{0, "", "hour", true},
			{2 * time.Hour, "", "day", true},
			{2 * time.Hour, "hour", "hour", false},
			{48 * time.Hour, "", "two-weeks", true},
			{15 * 24 * time.Hour, "", "hour", false},
		} {
			time.Sleep(c.after)
			got, err := loadTrends(charts, "", c.chosen, "/overview")
			if err != nil || got.Chart.Title != rangeTexts[c.want][0] || got.Chart.HasRuns() != c.shown {
				t.Errorf("%v later, chosen %q: %+v, %v, want %s", c.after, c.chosen, got, err, c.want)
			}
		}
	})
}

// A call of the function of a flow is no attempt that ends the first wait.
func TestFirstWaitOfAFlow(t *testing.T) {
	t.Parallel()
	call := func(ctx context.Context) (int, error) { return 1, nil }
	for name, c := range map[string]struct {
		function func(f *engine.Flow, _ int) (int, error)
		wait     time.Duration // 0 if there is no attempt
	}{
		"an operation": {func(f *engine.Flow, _ int) (int, error) { return engine.Do(f, "call", call) }, time.Millisecond},
		"a sleep, then an operation": {func(f *engine.Flow, _ int) (int, error) {
			if err := engine.Sleep(f, "rest", 3*time.Hour); err != nil {
				return 0, err
			}
			return engine.Do(f, "call", call)
		}, 3 * time.Hour},
		"no operation": {func(*engine.Flow, int) (int, error) { return 1, nil }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flow := engine.MustFlow("work", c.function)
			store := timeseries.Open(filepath.Join(t.TempDir(), "charts"), slog.New(slog.DiscardHandler))
			enginetest.TestConfig(t, engine.Config{Workflows: []*engine.Workflow{flow}, Observer: store.Observe}, func(t *testing.T, e *enginetest.Engine) {
				e.Run(flow, 1)
				synctest.Wait() // until the observer has the events
				chart, _ := store.Chart("work", "day")
				got := chart.Total.Wait
				if (got.Count == 0) != (c.wait == 0) || got.P50 > c.wait*126/100 || c.wait > time.Hour && got.P50 < c.wait*79/100 {
					t.Errorf("the chart has %+v, want %v", got, c.wait)
				}
			})
		})
	}
}

func TestTrend(t *testing.T) {
	t.Parallel()
	p := func(started, succeeded, failed uint64, p50, p99 float64) admin.ChartPoint {
		return admin.ChartPoint{Started: started, Succeeded: succeeded, Failed: failed, Duration: admin.Percentiles{Count: succeeded + failed, P50: p50, P95: p99, P99: p99}}
	}
	c := &admin.Chart{Range: "hour", Interval: 60, Points: []admin.ChartPoint{p(4, 2, 1, 1, 10), p(0, 0, 0, 0, 0), p(2, 2, 0, 0.1, 1), p(1, 1, 0, 1, 1)}, Total: p(7, 5, 1, 1, 10)}
	got := newTrend(c)
	want := []shape{{"succeeded", "M1 50.0h8v50.0h-8zM21 50.0h8v50.0h-8zM31 75.0h8v25.0h-8z"}, {"dead", "M1 25.0h8v25.0h-8z"}}
	if fmt.Sprint(got.Bars) != fmt.Sprint(want) || got.Most != 4 || got.Width != 40 || got.Each != "1 min" {
		t.Errorf("got %+v", got)
	}
	if got.Started != "M0 0.0h10M20 50.0h10M30 75.0h10" {
		t.Errorf("the marks of started runs: %s", got.Started)
	}
	if len(got.Times) != 1 || len(got.Times[0].Lines) != 4 || len(got.Times[0].Ticks) < 2 || got.Times[0].Said != "the last hour, took, from start to end: p50 ≈ 1.00 s, p95 ≈ 10.0 s, p99 ≈ 10.0 s" {
		t.Errorf("times: %+v", got.Times)
	}
	if got.Times[0].Numbers[2].Text != "p99 ≈ 10.0 s" {
		t.Errorf("the numbers beside the chart: %+v", got.Times[0].Numbers)
	}
	var rows []string
	for _, row := range got.Table().Rows() {
		rows = append(rows, row.Cells[0].Text+"; "+row.Cells[1].Text)
	}
	wantRows := []string{"1 started, 1 succeeded; p50 ≈ 1.00 s, p95 ≈ 1.00 s, p99 ≈ 1.00 s", "2 started, 2 succeeded; p50 ≈ 100 ms, p95 ≈ 1.00 s, p99 ≈ 1.00 s", "4 started, 2 succeeded, 1 gave up; p50 ≈ 1.00 s, p95 ≈ 10.0 s, p99 ≈ 10.0 s"}
	if !slices.Equal(rows, wantRows) {
		t.Errorf("the table: %q, want %q", rows, wantRows)
	}
	places := map[string]bool{}
	for _, line := range got.Times[0].Lines {
		if n := strings.Count(line.Path, "M"); n != 3 {
			t.Errorf("%s has %d marks, want one for each interval with a value", line.Class, n)
		}
		place, _, _ := strings.Cut(line.Path, " ")
		places[place] = true
	}
	if len(places) != len(got.Times[0].Lines) {
		t.Errorf("a percentile hides another: %v", places)
	}
}
