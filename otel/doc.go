// Package otel makes OpenTelemetry spans of the calls of retry runners: one for each
// call, one below it for each attempt, and an event of the call's span for each wait.
// It is a module of its own, so that the library has no dependencies.
//
// The context of the operation carries the span of its attempt, so that whatever it
// calls is below it. Names and attributes are only added to; docs/metrics.md has
// them.
//
// A loop over Runner.Attempts and a Hedger have no place for a span of an attempt:
// there [Tracer.Waits] alone notes the waits, on the span that the context of the
// call has.
package otel
