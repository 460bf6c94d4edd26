package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/internal/goroutine"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/textfmt"
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

// Settings is what the shards and the cluster of an engine read of its engine.Config, with the same names.
type Settings struct {
	Dir           string
	Log           journal.Log
	AcceptLoss    bool
	Concurrency   int
	Retention     time.Duration
	DeadRetention time.Duration
	MaxPayload    int
	Grace         time.Duration
	Logger        *slog.Logger
	Redact        func(string) string
	Extract       func(ctx context.Context, trace string) context.Context // adds a stored trace context; nil if there are no traces
	AnswerMember  func(ctx context.Context, request json.RawMessage) (json.RawMessage, error)
	Rand          func() uint64

	SnapshotAfter int64
	MaxFunctions  int
	MaxCalls      int
	Wall          func(time.Time) int64
	Uptime        func() (time.Duration, string)
}

const maxError = 4 << 10

// errorText returns the text of an error as it is stored: redacted, shortened to a limit,
// and as valid UTF-8.
func (s *Settings) errorText(text string) string {
	text = s.Redact(text)
	if len(text) > maxError {
		kept := textfmt.Truncate(text, maxError)
		text = fmt.Sprintf("%s… (%d bytes more)", kept, len(text)-len(kept))
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// encodeNote returns the progress or the memo of an attempt as it is stored: redacted JSON.
func (s *Settings) encodeNote(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(text) > maxError {
		return nil, fmt.Errorf("%d bytes, at most %d", len(text), maxError)
	}
	if text = []byte(s.Redact(string(text))); !json.Valid(text) {
		text, _ = json.Marshal(string(text)) // Redact broke the JSON: store it as a string
	}
	return text, nil
}
