package shard

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// noPeers are those of the only shard.
type noPeers struct{ Peers }

func (noPeers) CheckFormat(int) error { return nil }

// openShard runs a shard with a view, and a workflow of one step, until the test ends. The function starts runs.
func openShard(t *testing.T) (sh *Shard, start func(in time.Duration) string) {
	t.Helper()
	p := &Process{Peers: noPeers{}}
	p.Init(Settings{
		Concurrency: 16, Retention: time.Hour, DeadRetention: time.Hour, MaxPayload: 1 << 10, Grace: time.Second, Logger: slog.New(slog.DiscardHandler),
		Redact: func(s string) string { return s }, SnapshotAfter: 64 << 20, MaxFunctions: 16,
		Wall: func(t time.Time) int64 { return t.UnixNano() }, Uptime: func() (time.Duration, string) { return 0, "" },
	}, nil)
	w := new(workflow.Workflow)
	b := workflow.NewBuilder(w, "w")
	b.CallHandler(workflow.NewStep("first"), "h", nil)
	if err := b.Finish(); err != nil {
		t.Fatal(err)
	}
	handler := workflow.Handler{Do: func(context.Context, *info.Task) ([]byte, error) { return []byte("1"), nil }}
	if err := p.Handlers.Add([]*workflow.Workflow{w}, map[string]workflow.Handler{"h": handler}, nil); err != nil {
		t.Fatal(err)
	}
	sh = New(p, 0, 1, t.TempDir())
	if err := sh.Open(t.Context(), new(memlog.Store).Open()); err != nil {
		t.Fatal(err)
	}
	go sh.Run()
	t.Cleanup(func() { sh.Close(context.Background(), false) })
	return sh, func(in time.Duration) string {
		return must(sh.Start(t.Context(), w.Def, &machine.Start{In: in, Input: []byte("1")})).ID
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
