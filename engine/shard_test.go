package engine

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// noPeers are those of the only shard.
type noPeers struct{ peers }

func (noPeers) checkFormat(int) error { return nil }

// openShard runs a shard with a view, and a workflow of one step, until the test ends. The function starts runs.
func openShard(t *testing.T) (sh *shard, start func(in time.Duration) string) {
	t.Helper()
	p := &process{peers: noPeers{}}
	p.init(settings{
		Concurrency: 16, Retention: time.Hour, DeadRetention: time.Hour, MaxPayload: 1 << 10, Grace: time.Second, Logger: slog.New(slog.DiscardHandler),
		Redact: func(s string) string { return s }, snapshotAfter: 64 << 20, maxFunctions: 16,
		wall: func(t time.Time) int64 { return t.UnixNano() }, uptime: func() (time.Duration, string) { return 0, "" },
	}, nil)
	w := new(workflow.Workflow)
	b := workflow.NewBuilder(w, "w")
	b.CallHandler(workflow.NewStep("first"), "h", nil)
	if err := b.Finish(); err != nil {
		t.Fatal(err)
	}
	handler := workflow.Handler{Do: func(context.Context, *Task) ([]byte, error) { return []byte("1"), nil }}
	if err := p.handlers.Add([]*workflow.Workflow{w}, map[string]workflow.Handler{"h": handler}, nil); err != nil {
		t.Fatal(err)
	}
	sh = newShard(p, 0, 1, t.TempDir())
	if err := sh.open(t.Context(), new(memlog.Store).Open()); err != nil {
		t.Fatal(err)
	}
	go sh.run()
	t.Cleanup(func() { sh.close(context.Background(), false) })
	return sh, func(in time.Duration) string {
		return must(sh.start(t.Context(), w.Def, &machine.Start{In: in, Input: []byte("1")})).ID
	}
}
