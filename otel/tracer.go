package otel

import (
	"context"
	"errors"

	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tideover/tideover/retry"
)

// scope is the name of the instrumentation scope.
const scope = "github.com/tideover/tideover/otel"

// The attributes of spans and events.
const (
	AttemptKey  = attribute.Key("tideover.attempt")  // number of the attempt, from 1
	AttemptsKey = attribute.Key("tideover.attempts") // number of attempts of the call
	ReasonKey   = attribute.Key("tideover.reason")   // why the call gave up, such as "attempts"
	DelayKey    = attribute.Key("tideover.delay_ms") // length of the wait
	DelayByKey  = attribute.Key("tideover.delay_by") // source of the wait: policy, server, …
)

// Tracer makes spans. All runners and goroutines of a program can share one.
type Tracer struct{ t trace.Tracer }

// New returns a tracer that uses the provider. nil means the global provider.
func New(p trace.TracerProvider) *Tracer {
	if p == nil {
		p = global.GetTracerProvider()
	}
	return &Tracer{p.Tracer(scope)}
}

// Waits returns an option for a runner that adds each wait as an event to the
// span in the context of the call. With [Do] and [Value], that is the span of
// the call.
func (t *Tracer) Waits() retry.Option {
	return retry.WithOnRetry(func(ctx context.Context, ev retry.Event) error {
		trace.SpanFromContext(ctx).AddEvent("wait", trace.WithTimestamp(ev.Time), trace.WithAttributes(
			AttemptKey.Int(ev.Attempt), DelayKey.Float64(float64(ev.Delay.Microseconds())/1000), DelayByKey.String(ev.By.String()),
		))
		return nil
	})
}

// Do is [retry.Runner.Do] with spans for the call and its attempts.
func Do(ctx context.Context, t *Tracer, r *retry.Runner, op func(context.Context) error) error {
	if op == nil {
		return r.Do(ctx, nil)
	}
	_, err := Value(ctx, t, r, func(ctx context.Context) (struct{}, error) { return struct{}{}, op(ctx) })
	return err
}

// Value is [retry.Value] with spans for the call and its attempts.
func Value[T any](ctx context.Context, t *Tracer, r *retry.Runner, op func(context.Context) (T, error)) (T, error) {
	if r == nil || op == nil {
		return retry.Value(ctx, r, op) // retry.Value returns the error
	}
	c := t.begin(ctx, r)
	defer c.span.End() // also when the operation panics
	v, err := retry.Value(c.ctx, r, func(ctx context.Context) (v T, err error) {
		ctx, span := c.attempt(ctx)
		defer span.End()
		v, err = op(ctx)
		setError(span, err)
		return v, err
	})
	c.finish(err)
	return v, err
}

// call is one call of a runner. Its attempts do not run concurrently.
type call struct {
	t        *Tracer
	ctx      context.Context //nolint:containedctx // it lives as long as the call
	span     trace.Span
	attempts int
}

func (t *Tracer) begin(ctx context.Context, r *retry.Runner) *call {
	name := r.Name()
	if name == "" {
		name = "retry"
	}
	ctx, span := t.t.Start(ctx, name)
	return &call{t: t, ctx: ctx, span: span}
}

func (c *call) attempt(ctx context.Context) (context.Context, trace.Span) {
	c.attempts++
	return c.t.t.Start(ctx, "attempt", trace.WithAttributes(AttemptKey.Int(c.attempts)))
}

func (c *call) finish(err error) {
	c.span.SetAttributes(AttemptsKey.Int(c.attempts))
	if e, ok := errors.AsType[*retry.Error](err); ok {
		c.span.SetAttributes(ReasonKey.String(e.Reason.String()))
	}
	setError(c.span, err)
}

// setError sets the status of the span, if there is an error.
func setError(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
}
