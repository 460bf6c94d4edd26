package otel

import (
	"context"

	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
)

// Propagator stores the trace context of a start with a run of package engine, so that spans
// that attempts of the run make belong to the trace of the starter, even after days and in another
// process. Set it as Config.Propagator of the engine.
type Propagator struct{ p propagation.TextMapPropagator }

// NewPropagator returns a propagator for an engine. nil means the W3C trace context, without
// baggage: a run keeps what is stored with it for as long as it exists.
func NewPropagator(p propagation.TextMapPropagator) Propagator {
	if p == nil {
		p = propagation.TraceContext{}
	}
	return Propagator{p}
}

// GlobalPropagator returns a propagator for an engine that uses the global propagator of
// OpenTelemetry.
func GlobalPropagator() Propagator { return Propagator{global.GetTextMapPropagator()} }

// Inject returns the trace context of ctx; nil if there is none.
func (p Propagator) Inject(ctx context.Context) map[string]string {
	carrier := propagation.MapCarrier{}
	p.p.Inject(ctx, carrier)
	if len(carrier) == 0 {
		return nil
	}
	return carrier
}

// Extract returns a copy of ctx with the trace context that Inject has returned.
func (p Propagator) Extract(ctx context.Context, trace map[string]string) context.Context {
	return p.p.Extract(ctx, propagation.MapCarrier(trace))
}
