package shard

import (
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/internal/goroutine"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// Process has the data that the engine and all its shards share.
type Process struct {
	Settings    Settings
	Hub         Hub
	Handlers    workflow.Registry
	Admission   *admission.Shared
	replay      *replay.Log      // not nil: the engine only judges how code would continue one run
	viewWriters chan struct{}    // semaphore: limits how many views are written at the same time
	encoders    sync.Pool        // encoders of snapshots, which garbage collections remove from it
	watch       *goroutine.Watch // not nil: a test, which finds all goroutines that must not use a flow
	Peers       Peers
}

// Init prepares the process for its shards. watch is nil except in tests.
func (p *Process) Init(cfg Settings, watch *goroutine.Watch) {
	p.Settings, p.watch = cfg, watch
	p.replay, _ = cfg.Log.(*replay.Log)
	p.Hub.init()
	p.Admission = admission.NewShared(cfg.Concurrency, cfg.MaxFunctions)
	p.viewWriters = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))
}

// Judge reports, in a replay, whether a run of steps is parked at a step without a handler.
func (p *Process) Judge() {
	if p.replay == nil || p.replay.Run.IsFlow() {
		return
	}
	var v replay.Verdict
	var missing []string
	for n, s := range p.replay.Run.Live() {
		switch {
		case s.Status == machine.Complete:
		case p.Handlers.HasCode(p.replay.Run, n):
			v.Next = append(v.Next, p.replay.Run.StepName(n))
		default:
			missing = append(missing, missingHandler(p.replay.Run, n))
		}
	}
	v.Parked = strings.Join(missing, "; ")
	p.replay.Report(v)
}

// missingHandler returns why a step whose handler is not registered is parked.
func missingHandler(run *machine.Run, step int) string {
	return fmt.Sprintf("step %q waits for the handler %q: deploy code that has it", run.StepName(step), run.StepDef(step).Handler)
}
