package otel_test

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tideover/tideover/otel"
	"github.com/tideover/tideover/retry"
)

func Example() {
	spans := tracetest.NewInMemoryExporter() // or one that sends them somewhere
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	tracer := otel.New(provider)
	api := retry.Must("fixed(1ms) attempts=3", retry.WithName("billing"), tracer.Waits())

	left := 1
	_ = otel.Do(context.Background(), tracer, api, func(context.Context) error {
		if left--; left >= 0 {
			return errors.New("busy")
		}
		return nil
	})

	for _, s := range spans.GetSpans() {
		fmt.Println(s.Name, s.Status.Code)
	}
	// Output:
	// attempt Error
	// attempt Unset
	// billing Unset
}
