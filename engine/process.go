package engine

import (
	"sync"

	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/internal/goroutine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// process has the data that the engine and all its shards share.
type process struct {
	cfg         settings
	hub         hub
	handlers    workflow.Registry
	admission   *admission.Shared
	replay      *replay.Log      // not nil: the engine only judges how code would continue one run: see replay.go
	viewWriters chan struct{}    // semaphore: limits how many views are written at the same time
	encoders    sync.Pool        // encoders of snapshots, which garbage collections remove from it
	watch       *goroutine.Watch // not nil: a test, which finds all goroutines that must not use a flow
	peers       peers
}
