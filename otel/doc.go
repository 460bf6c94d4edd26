// Package otel makes OpenTelemetry spans for the calls of retry runners: one for
// each call, a child span for each attempt, and an event in the call's span for
// each wait. It is a separate module, so that the library has no dependencies.
//
// The context of the operation carries the span of its attempt, so that spans
// that the operation starts are children of it. Names and attributes are never removed;
// docs/metrics.md lists them.
//
// Loops over Runner.Attempts and Hedgers get no spans for attempts. For
// those, use only [Tracer.Waits]: it adds the waits to the span in the context
// of the call.
package otel
