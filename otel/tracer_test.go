package otel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tideover/tideover/otel"
	"github.com/tideover/tideover/retry"
)

// traced returns a tracer, and a function that returns its spans so far.
func traced(t testing.TB) (*otel.Tracer, func() tracetest.SpanStubs) {
	t.Helper()
	mem := tracetest.NewInMemoryExporter()
	p := trace.NewTracerProvider(trace.WithSyncer(mem))
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return otel.New(p), mem.GetSpans
}

// describe returns a span as text.
func describe(s *tracetest.SpanStub) string {
	text := s.Name
	for _, a := range s.Attributes {
		text += fmt.Sprintf(" %s=%s", a.Key, a.Value.String())
	}
	for _, e := range s.Events {
		text += " " + e.Name + "["
		for _, a := range e.Attributes {
			text += fmt.Sprintf(" %s=%s", a.Key, a.Value.String())
		}
		text += " ]"
	}
	if s.Status.Code == codes.Error {
		text += " failed: " + s.Status.Description
	}
	return text
}

func TestSpans(t *testing.T) {
	t.Parallel()
	busy := errors.New("busy")
	for name, c := range map[string]struct {
		failures int
		err      error
		want     []string
	}{
		"a call that succeeds at once has one attempt": {0, busy, []string{"attempt tideover.attempt=1", "api tideover.attempts=1"}},
		"each attempt is a span, and each wait an event": {1, busy, []string{
			"attempt tideover.attempt=1 failed: busy", "attempt tideover.attempt=2",
			"api tideover.attempts=2 wait[ tideover.attempt=1 tideover.delay_ms=1 tideover.delay_by=policy ]",
		}},
		"a call that gives up says why": {5, retry.Permanent(busy), []string{
			"attempt tideover.attempt=1 failed: busy", "api tideover.attempts=1 tideover.reason=permanent failed: api: attempt 1: permanent failure: busy",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tracer, spans := traced(t)
			r := retry.Must("fixed(1ms) attempts=3", retry.WithName("api"), tracer.Waits())
			left := c.failures
			_ = otel.Do(t.Context(), tracer, r, func(context.Context) error {
				if left--; left >= 0 {
					return c.err
				}
				return nil
			})
			var got []string
			all := spans()
			for i := range all {
				got = append(got, describe(&all[i]))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%q\nwant\n%q", got, c.want)
			}
			parent := all[len(all)-1].SpanContext
			for _, s := range all[:len(all)-1] {
				if s.Parent.SpanID() != parent.SpanID() || s.SpanContext.TraceID() != parent.TraceID() {
					t.Errorf("%s is not below its call", s.Name)
				}
			}
		})
	}
}

func TestTheValueComesBack(t *testing.T) {
	t.Parallel()
	tracer, spans := traced(t)
	got, err := otel.Value(t.Context(), tracer, retry.Must("fixed(0s) attempts=2"), func(context.Context) (int, error) { return 42, nil })
	if got != 42 || err != nil || len(spans()) != 2 || spans()[1].Name != "retry" {
		t.Errorf("Value = %d, %v; spans %v", got, err, spans())
	}
}

func TestAPanicEndsTheSpans(t *testing.T) {
	t.Parallel()
	tracer, spans := traced(t)
	func() {
		defer func() { _ = recover() }()
		_ = otel.Do(t.Context(), tracer, retry.Must("fixed(0s) attempts=2"), func(context.Context) error { panic("oops") })
	}()
	if n := len(spans()); n != 2 {
		t.Errorf("%d spans", n)
	}
}

func TestMisuseIsAnError(t *testing.T) {
	t.Parallel()
	tracer, spans := traced(t)
	r := retry.Must("fixed(0s)")
	if err := otel.Do(t.Context(), tracer, nil, func(context.Context) error { return nil }); err == nil {
		t.Error("no runner is no error")
	}
	if err := otel.Do(t.Context(), tracer, r, nil); err == nil {
		t.Error("no operation is no error")
	}
	if _, err := otel.Value[int](t.Context(), tracer, r, nil); err == nil {
		t.Error("no operation is no error")
	}
	if n := len(spans()); n != 0 {
		t.Errorf("%d spans", n)
	}
}

func TestTheGlobalProviderIsTheDefault(t *testing.T) {
	t.Parallel()
	if err := otel.Do(t.Context(), otel.New(nil), retry.Must("fixed(0s)"), func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}
