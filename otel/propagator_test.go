package otel_test

import (
	"context"
	"encoding/json"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tideover/tideover/otel"
)

func TestPropagatorContinuesATrace(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracer := trace.NewTracerProvider(trace.WithSyncer(spans)).Tracer("test")
	p := otel.NewPropagator(nil)

	ctx, starter := tracer.Start(context.Background(), "starter")
	stored, err := json.Marshal(p.Inject(ctx)) // as an engine stores it
	if err != nil {
		t.Fatal(err)
	}
	starter.End()

	var read map[string]string
	if err := json.Unmarshal(stored, &read); err != nil {
		t.Fatal(err)
	}
	_, attempt := tracer.Start(p.Extract(context.Background(), read), "attempt")
	attempt.End()

	list := spans.GetSpans()
	if len(list) != 2 || list[1].Parent.SpanID() != list[0].SpanContext.SpanID() || list[1].SpanContext.TraceID() != list[0].SpanContext.TraceID() {
		t.Errorf("the span of the attempt is no child of the starter's: %s, %+v", stored, list)
	}
	if got := p.Inject(context.Background()); got != nil {
		t.Errorf("a context without a trace has %v", got)
	}
}
