package metrics

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/storm"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/testwait"
)

// One run is running, and two wait because of the concurrency limit.
func TestWhereRunsAre(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	flow, err := engine.NewWorkflow("order", engine.Step("wait", func(ctx context.Context, _ *engine.Task) (any, error) {
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return 1, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), engine.Config{Dir: t.TempDir(), Workflows: []*engine.Workflow{flow}, Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(context.Background())
	defer close(gate)
	for range 3 {
		if _, err := e.Start(t.Context(), flow, nil); err != nil {
			t.Fatal(err)
		}
	}
	tally := NewTally()
	tally.Know("order", "idle")
	src := &Source{Engine: e, Clustered: true, Tally: tally, Sessions: func(context.Context) ([]session.Status, error) {
		return []session.Status{{State: "waiting"}, {State: "waiting"}, {State: "running"}}, nil
	}}
	var got map[string]float64
	testwait.Until(t, "one run is attempted, and two are queued", func() bool {
		got = samples(t, src)
		return got["attempts_running{}"] == 1 && got["queue_depth{}"] == 2 && got["queue_oldest_seconds{}"] > 0
	})
	wants(t, got, map[string]float64{
		`runs{layer="workflow",name="order",state="running"}`: 1, `runs{layer="workflow",name="order",state="queued"}`: 2,
		`runs{layer="workflow",name="idle",state="dead"}`: 0, "queue_depth{}": 2, "attempts_running{}": 1, "cluster_shards_owned{}": 1,
		"troubles{}": 0, "warnings{}": 0, "handlers_stuck{}": 0, `sessions{state="waiting"}`: 2, `sessions{state="running"}`: 1, `sessions{state="paused"}`: 0,
	})
	if got["queue_oldest_seconds{}"] <= 0 || got[`disk_bytes{part="log"}`] <= 0 {
		t.Errorf("oldest %v, disk %v", got["queue_oldest_seconds{}"], got[`disk_bytes{part="log"}`])
	}
	if err := e.PauseWorkflow(t.Context(), "order", "ann"); err != nil {
		t.Fatal(err)
	}
	wants(t, samples(t, src), map[string]float64{
		`workflow_paused{layer="workflow",name="order"}`: 1, `workflow_paused{layer="workflow",name="idle"}`: 0,
		"queue_depth{}": 0, "queue_oldest_seconds{}": 0, `runs{layer="workflow",name="order",state="queued"}`: 2,
	})
}

func TestAStormIsAMetric(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		subject := storm.Subject{Layer: Provider, Name: "openai"}
		var n uint64
		ctx, cancel := context.WithCancel(t.Context())
		a := storm.New(storm.Rule{Amplification: 2, For: time.Minute, MinAttempts: 1}, func() map[storm.Subject]storm.Count {
			n++
			return map[storm.Subject]storm.Count{subject: {Attempts: n * 5, First: n}}
		}, func(storm.Change) { cancel() })
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
		wants(t, samples(t, Storms(a)), map[string]float64{
			`retry_storm{layer="provider",name="openai"}`: 1, `retry_storms_total{layer="provider",name="openai"}`: 1,
			`amplification{layer="provider",name="openai"}`: 5,
		})
	})
}
