package server

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/metrics"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/cmd/tideover/internal/outbox"
	"github.com/tideover/tideover/cmd/tideover/internal/timeseries"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testwait"
)

// The runs of an engine are counted for the charts, except those of internal workflows, and the counts
// survive a restart of the server.
func TestRunsAreCountedForCharts(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "charts.json.gz")
	messages, err := outbox.New(outbox.Config{Place: func() notify.Place { return notify.Place{} }})
	if err != nil {
		t.Fatal(err)
	}
	b := &observer{log: log, tally: metrics.NewTally(), outbox: messages, charts: timeseries.Open(path, log), stopTracing: func() {}}
	step := func(name string) *engine.Workflow {
		w, err := engine.NewWorkflow(name, engine.Step("call", func(context.Context, int) (int, error) { return 1, nil }))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	report, internal := step("report"), step("report.on-give-up")
	e, err := engine.Open(t.Context(), engine.Config{Dir: t.TempDir(), Durability: engine.OS, Workflows: []*engine.Workflow{report, internal}, Observer: b.observe, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []*engine.Workflow{report, internal, report} {
		run, err := e.Start(t.Context(), w, 1)
		if err == nil {
			_, err = run.Wait(testwait.Context(t))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	again := timeseries.Open(path, log)
	for workflow, want := range map[string]uint64{"": 2, "report": 2, "report.on-give-up": 0} {
		c, ok := again.Chart(workflow, "day")
		if p := c.Total; !ok || p.Started != want || p.Succeeded != want || p.Took.Count != want || p.Wait.Count != want {
			t.Errorf("%q: %+v, want %d", workflow, p, want)
		}
	}
}
