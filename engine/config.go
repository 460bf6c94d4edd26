package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/sqlitelog"
	"github.com/tideover/tideover/internal/boottime"
	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/retry"
)

// Config has the settings of an engine. Set either Dir or Log; with a Log that is a
// [journal.Cluster], Dir may be set too.
type Config struct {
	// Dir is the folder in which the engine stores all data. It is created if it does
	// not exist. Only one process at a time can use it.
	Dir string

	// Log stores the log instead of a folder. A Log that is a [journal.Cluster] is
	// shared with other processes. With a cluster, Dir has only the views of this
	// process, for lists and searches: the engine rebuilds them if the folder is lost.
	// Without Dir there are no views, and lists come from memory.
	Log journal.Log

	// Durability says when data counts as stored. The zero value, [Full], means when it
	// is on disk.
	Durability Durability

	// AcceptLoss opens a log that ends before what was acknowledged, for example because a file
	// of [Config.Dir] is damaged. Without it, Open fails with a [journal.LossError]. The loss is
	// recorded in the log, and [Engine.Warnings] shows it.
	AcceptLoss bool

	// Workflows are the workflows whose runs this process can execute. [Engine.Start]
	// adds the workflow that it is called with.
	Workflows []*Workflow

	// Handlers are the functions, by name, that execute the steps made by [Call].
	Handlers map[string]Handler

	// Functions are the functions, by name, of the flows made by [CallFunction].
	Functions map[string]FlowFunc

	// Concurrency limits how many attempts run at the same time. 0 means 256. An
	// attempt whose handler waits for another run counts: see [Engine.Wait].
	Concurrency int

	// Retention is how long runs that succeeded, were canceled or were replaced are
	// kept. 0 means 14 days.
	Retention time.Duration

	// DeadRetention is how long dead runs are kept. 0 means 90 days.
	DeadRetention time.Duration

	// MaxPayload is the largest size of an input or output, in bytes. 0 means 256 KiB.
	// Open fails if it is more than 512 KiB.
	MaxPayload int

	// Grace is how long a handler may take to return after its context has ended. After
	// that the attempt fails as stuck. 0 means 10 seconds.
	Grace time.Duration

	// Logger gets messages for operators. nil means slog.Default.
	Logger *slog.Logger

	// Observer is called with each event, in order. It must not block for long: when it
	// is too far behind, events are dropped, and the log says how many.
	Observer func(retry.Event)

	// Redact is applied to the texts of errors, progress and memos before they are
	// stored or shown. nil means no change.
	Redact func(string) string

	// Propagator continues traces: the trace of the context with which [Engine.Start] was
	// called is stored with the run, and the contexts of its attempts belong to that trace.
	// nil means that traces end at the start. Package otel of tideover has a propagator for
	// OpenTelemetry.
	Propagator Propagator

	// AnswerMember answers the requests that other members of the cluster send by
	// [Operator.AskMembers]. Request and answer are JSON. nil means that they are refused.
	AnswerMember func(ctx context.Context, request json.RawMessage) (json.RawMessage, error)

	// Rand returns random numbers for waits and ids. nil means a random seed. Tests set
	// it to get the same numbers every time. Calls never overlap.
	Rand func() uint64

	snapshotAfter int64                          // least number of bytes of log between snapshots; tests set it to get many snapshots
	maxFunctions  int                            // limit of calls of functions of flows at once; tests set it low
	maxCalls      int                            // limit of requests of other processes that are handled at once; tests set it low
	wall          func(time.Time) int64          // returns the Unix nanoseconds that the wall clock shows at a time; nil means those of the time
	uptime        func() (time.Duration, string) // returns the time since boot and the id of the boot; nil reads those of the machine; tests with virtual time return 0 and ""
}

// Durability says when data counts as stored.
type Durability int

// The values of Durability.
const (
	Full = Durability(sqlitelog.Full) // written and synced to disk: survives a power failure
	OS   = Durability(sqlitelog.OS)   // written to the operating system: survives the end of the process
)

const maxPayload = 512 << 10

// withDefaults returns the config with its zero values replaced by defaults, and all
// errors in it.
func (c Config) withDefaults() (Config, error) {
	var found validate.Problems
	validate.NotNegative(&found, "Concurrency", c.Concurrency)
	validate.NotNegative(&found, "Retention", c.Retention)
	validate.NotNegative(&found, "DeadRetention", c.DeadRetention)
	validate.NotNegative(&found, "MaxPayload", c.MaxPayload)
	validate.NotNegative(&found, "Grace", c.Grace)
	found.Check(c.MaxPayload <= maxPayload, "MaxPayload: %d is more than %d", c.MaxPayload, maxPayload)
	_, isCluster := c.Log.(journal.Cluster)
	found.Check(isCluster || (c.Dir == "") != (c.Log == nil), "set either Dir or Log")
	c.Concurrency = cmp.Or(c.Concurrency, 256)
	c.Retention = cmp.Or(c.Retention, 14*24*time.Hour)
	c.DeadRetention = cmp.Or(c.DeadRetention, 90*24*time.Hour)
	c.MaxPayload = cmp.Or(c.MaxPayload, 256<<10)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	c.maxFunctions = cmp.Or(c.maxFunctions, max(shard.MinFunctions, 4*c.Concurrency))
	c.maxCalls = cmp.Or(c.maxCalls, 4096)
	c.snapshotAfter = cmp.Or(c.snapshotAfter, 64<<20)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.wall == nil {
		c.wall = boottime.Wall
	}
	if c.uptime == nil {
		c.uptime = boottime.Elapsed
	}
	if c.Redact == nil {
		c.Redact = func(s string) string { return s }
	}
	return c, errors.Join(found...)
}

// settings returns the settings of the shards and the cluster.
func (c *Config) settings() shard.Settings {
	s := shard.Settings{
		Dir: c.Dir, Log: c.Log, AcceptLoss: c.AcceptLoss, Concurrency: c.Concurrency, Retention: c.Retention, DeadRetention: c.DeadRetention,
		MaxPayload: c.MaxPayload, Grace: c.Grace, Logger: c.Logger, Redact: c.Redact, AnswerMember: c.AnswerMember, Rand: c.Rand,
		SnapshotAfter: c.snapshotAfter, MaxFunctions: c.maxFunctions, MaxCalls: c.maxCalls, Wall: c.wall, Uptime: c.uptime,
	}
	if c.Propagator != nil {
		s.Extract = func(ctx context.Context, trace string) context.Context { return extract(ctx, c.Propagator, trace) }
	}
	return s
}

// register adds what the program has registered by its configuration.
func register(r *workflow.Registry, cfg *Config) error {
	handlers, functions := map[string]workflow.Handler{}, map[string]any{}
	for name, h := range cfg.Handlers {
		handlers[name] = workflow.Handler{Do: h}
	}
	for name, f := range cfg.Functions {
		if functions[name] = f.core(); f == nil {
			return fmt.Errorf("function %q: nil", name)
		}
	}
	return r.Add(coresOf(cfg.Workflows), handlers, functions)
}

// Propagator reads and writes the trace context of a context.Context, as a propagator of
// OpenTelemetry does. Its methods may be called at the same time.
type Propagator interface {
	// Inject returns the trace context of ctx, for example as the key "traceparent" with
	// its value; nil if there is none.
	Inject(ctx context.Context) map[string]string

	// Extract returns a copy of ctx with the trace context that Inject has returned.
	Extract(ctx context.Context, trace map[string]string) context.Context
}

// maxTrace limits the size of a stored trace context, in bytes.
const maxTrace = 2048

// inject returns the trace context of ctx as it is stored; "" if there is none. If it is too
// large, inject leaves out the longest values, which are no ids of spans: a trace must not keep a
// run from starting. A panic of the propagator means no trace.
func inject(ctx context.Context, p Propagator, log *slog.Logger) (text string) {
	if p == nil {
		return ""
	}
	defer func() {
		if r := recover(); r != nil {
			log.Error("can't store the trace of a start", "error", fmt.Sprint(r))
			text = ""
		}
	}()
	trace := maps.Clone(p.Inject(ctx))
	for len(trace) > 0 {
		encoded, _ := json.Marshal(trace) // can't fail: strings
		if len(encoded) <= maxTrace {
			return string(encoded)
		}
		keys := slices.Sorted(maps.Keys(trace))
		delete(trace, slices.MaxFunc(keys, func(a, b string) int { return len(trace[a]) - len(trace[b]) }))
	}
	return ""
}

// extract returns ctx with a stored trace context.
func extract(ctx context.Context, p Propagator, text string) context.Context {
	var trace map[string]string
	if text == "" || json.Unmarshal([]byte(text), &trace) != nil {
		return ctx
	}
	return p.Extract(ctx, trace)
}
