// Package otel makes OpenTelemetry spans of the calls of retry runners: one for
// each call, one below it for each attempt, and an event of the call's span for
// each wait. It is a separate module, so that the library has no dependencies.
//
// The context of the operation carries the span of its attempt, so that the
// spans of its own calls are below it. Names and attributes are never removed;
// docs/metrics.md lists them.
//
// A loop over Runner.Attempts and a Hedger have no spans for attempts. For
// those, use [Tracer.Waits] alone: it adds the waits to the span in the context
// of the call.
package otel
