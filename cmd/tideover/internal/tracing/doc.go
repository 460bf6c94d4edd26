// Package tracing makes OpenTelemetry spans of the one event stream and sends them as
// OTLP over HTTP, in its JSON form, which needs no dependency. [Fold] is pure;
// [Exporter] sends.
//
// A run is a trace: its span is the root, each attempt is below it, each wait is an
// event of the root. The ids follow from that of the run, so that a trace goes on
// across restarts and processes. A request at the gateway is a trace when it needed
// more than one attempt: of what goes right at once there are no events.
package tracing
