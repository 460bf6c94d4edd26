package bench_test

import (
	"context"
	"time"

	"github.com/avast/retry-go/v5"
	"github.com/cenkalti/backoff/v7"
	"github.com/eapache/go-resiliency/retrier"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/googleapis/gax-go/v2"
	goretry "github.com/sethvargo/go-retry"
	"github.com/sony/gobreaker/v2"
	"k8s.io/apimachinery/pkg/util/wait"
)

// The peers, configured alike.

// avastOptions has the context among the options: one retrier serves one
// request, or all requests share one context.
func avastOptions(ctx context.Context) []retry.Option {
	return []retry.Option{
		retry.Attempts(attempts), retry.Delay(baseDelay), retry.MaxDelay(capDelay),
		retry.DelayType(retry.FullJitterBackoffDelay), retry.Context(ctx),
	}
}

// avastNow retries without delay.
func avastNow(ctx context.Context) *retry.Retrier {
	return retry.New(retry.Attempts(attempts), retry.Delay(0), retry.DelayType(retry.FixedDelay), retry.Context(ctx))
}

// cenkaltiBackOff has state and can't be shared: one for each call.
func cenkaltiBackOff() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: baseDelay, RandomizationFactor: 0.5, Multiplier: factor, MaxInterval: capDelay,
	}
}

func cenkaltiDo(ctx context.Context, op func() error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, op() },
		backoff.WithBackOff(cenkaltiBackOff()), backoff.WithMaxTries(attempts))
	return err
}

func cenkaltiNow(ctx context.Context, op func() error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, op() },
		backoff.WithBackOff(&backoff.ZeroBackOff{}), backoff.WithMaxTries(attempts))
	return err
}

func eapacheRetrier() *retrier.Retrier {
	r := retrier.New(retrier.LimitedExponentialBackoff(attempts-1, baseDelay, capDelay), nil)
	r.SetJitter(0.25)
	return r
}

func eapacheNow() *retrier.Retrier { return retrier.New(make([]time.Duration, attempts-1), nil) }

func failsafeRetry[R any]() retrypolicy.RetryPolicy[R] {
	return retrypolicy.NewBuilder[R]().WithMaxAttempts(attempts).
		WithBackoff(baseDelay, capDelay).WithJitterFactor(0.25).Build()
}

func failsafeNow() retrypolicy.RetryPolicy[any] {
	return retrypolicy.NewBuilder[any]().WithMaxAttempts(attempts).Build()
}

func failsafeCount() circuitbreaker.CircuitBreaker[any] {
	return circuitbreaker.NewBuilder[any]().WithFailureThresholdRatio(50, 100).Build()
}

func failsafeRate() circuitbreaker.CircuitBreaker[any] {
	return circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(0.5, 100, 10*time.Second).Build()
}

func gaxBackoff() gax.Backoff {
	return gax.Backoff{Initial: baseDelay, Max: capDelay, Multiplier: factor}
}

func gaxRetry(b gax.Backoff) gax.CallOption {
	return gax.WithRetry(func() gax.Retryer {
		return gax.OnErrorFunc(b, func(error) bool { return true })
	})
}

// sethvargoBackoff has state: one for each call.
func sethvargoBackoff() goretry.Backoff { return goretry.WithMaxRetries(attempts-1, sethvargoDelays()) }

func sethvargoDelays() goretry.Backoff {
	return goretry.WithCappedDuration(capDelay, goretry.WithJitterPercent(25, goretry.NewExponential(baseDelay)))
}

// sethvargoSoon has the smallest delay that is accepted.
func sethvargoSoon() goretry.Backoff {
	return goretry.WithMaxRetries(attempts-1, goretry.NewConstant(1))
}

func gobreakerNew(bucket time.Duration) *gobreaker.CircuitBreaker[struct{}] {
	return gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{Interval: 10 * time.Second, BucketPeriod: bucket})
}

func k8sBackoff() wait.Backoff {
	return wait.Backoff{Duration: baseDelay, Factor: factor, Jitter: 0.25, Steps: attempts, Cap: capDelay}
}
