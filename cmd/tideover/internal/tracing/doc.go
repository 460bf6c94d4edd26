// Package tracing converts the events of the engine and the gateway to OpenTelemetry spans.
// A [Fold] converts events without any I/O; an [Exporter] sends the spans as OTLP over HTTP,
// in its JSON form, which needs no dependency.
//
// A run is a trace: the run is the root span, each attempt is a child span, and each wait is
// an event of the root span. The ids of a trace are derived from the id of the run, so that a
// trace continues after a restart and in another process. A request to the gateway is a trace
// only if it needed more than one attempt: the gateway sends no events about a request that
// succeeds at once.
package tracing
