package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

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
