package sim

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// record has the numbers of a run that the test compares between the simulator
// and a real runner.
type record struct {
	calls, attempts, good int
	last                  time.Duration
	reasons               [reasons]int64
}

// failingScenario is a client that calls a service with every kind of failure.
func failingScenario() Scenario {
	return Scenario{
		Name: "conformance", Duration: 10 * time.Minute, Drain: time.Hour,
		Clients: Clients{Count: 1, Arrivals: Closed, Think: 200 * ms},
		Services: []Service{{
			Name: "service", Latency: Latency{Distribution: Lognormal, Mean: 50 * ms, Sigma: 1},
			Limit: &RateLimit{Rate: 2, Burst: 20, RetryAfter: SayNext},
		}},
		Failures: []Failure{
			{Kind: Errors, From: 30 * second, Until: 90 * second, Share: 0.4},
			{Kind: Outage, From: 100 * second, Until: 130 * second},
			{Kind: BlackHole, From: 140 * second, Until: 200 * second, Share: 0.3},
			{Kind: Slow, From: 200 * second, Until: 300 * second, Share: 0.5, Factor: 20},
			{Kind: Errors, From: 350 * second, Until: 400 * second, Share: 1},
		},
	}
}

// TestTheSimulatorDoesWhatARunnerDoes makes the same calls with a real runner,
// in the virtual time of testing/synctest, against a service that fails in the
// same way. Every attempt must begin and end at the same nanosecond.
func TestTheSimulatorDoesWhatARunnerDoes(t *testing.T) {
	policies := []string{
		"fixed(0s) attempt-timeout=1s",
		"fixed(1s) attempts=4 attempt-timeout=700ms",
		"exponential(50ms..20s) jitter=full attempts=5 attempt-timeout=1s total-timeout=3s",
		"decorrelated(100ms..5s) attempts=6 attempt-timeout=2s",
		"default attempt-timeout=500ms",
		"exponential(100ms..2s) jitter=20% attempts=4 attempt-timeout=1s throttle-base=1s server-wait=1s server-slack=100ms",
		"linear(100ms..1s) attempts=4 attempt-timeout=1s budget=bucket(10,0.5)",
		"exponential(100ms..2s) jitter=equal attempts=4 attempt-timeout=1s budget=ratio(0.2)",
		"exponential(100ms..2s) jitter=full attempts=3 attempt-timeout=1s hedge=100ms/50%",
		"exponential(100ms..2s) jitter=full attempts=3 attempt-timeout=2s hedge=p90/20%",
	}
	configs := map[string]*breaker.Config{
		"no breaker": nil,
		"breaker":    {Window: 10 * second, FailureRate: 0.5, MinCalls: 5},
		"quick":      {ConsecutiveFailures: 3, SlowCall: 400 * ms},
	}
	for _, text := range policies {
		for what, config := range configs {
			c := contestant(t, text)
			c.Breaker = config
			for seed := range uint64(size(1, 5)) {
				got, want := simulated(t, &c, seed), live(t, &c, seed)
				if got != want {
					t.Errorf("%s, %s, seed %d:\nsimulated %+v\nlive      %+v", text, what, seed, got, want)
				}
				if want.calls < 100 || want.good == want.calls || want.last < 9*time.Minute {
					t.Errorf("%s, %s: the test shows little: %+v", text, what, want)
				}
			}
		}
	}
}

func simulated(t *testing.T, c *Contestant, seed uint64) record {
	t.Helper()
	s := failingScenario()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	r, err := runServices(t.Context(), newPlan(s), c, seed)
	if err != nil {
		t.Fatal(err)
	}
	return record{r.started, r.attempts, r.good, time.Duration(r.lastEnd), r.reasons}
}

// live runs the same client with a real runner.
func live(t *testing.T, c *Contestant, seed uint64) (r record) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := newFakeService(t, seed)
		options := []retry.Option{retry.WithRand(func() uint64 { return x.call.draw(forBackoff, x.attempt) })}
		if c.Breaker != nil {
			n, own := uint64(0), x.root.derive(forBreaker, 0)
			b := breaker.Must(*c.Breaker, breaker.WithRand(func() uint64 { n++; return own.draw(forBreaker, n) }))
			options = append(options, retry.WithBreaker(b))
		}
		do := doFunc(t, c.Policy, options)
		for ; ; r.calls++ {
			n := uint64(r.calls)
			time.Sleep(time.Duration(exponential(x.root.derive(forThinking, 0).draw(forThinking, n)) * float64(x.scenario.Clients.Think)))
			if time.Since(x.start) >= x.scenario.Duration {
				return
			}
			x.call, x.attempt = x.root.derive(forClient, 0).derive(forCall, n), 0
			err := do(t.Context(), x.operation)
			r.attempts += int(x.attempt)
			r.last = time.Since(x.start)
			if why, ok := errors.AsType[*retry.Error](err); ok {
				r.reasons[why.Reason]++
			} else {
				r.reasons[0]++
				r.good++
			}
		}
	})
	return r
}

// doFunc returns the Do method of a runner or of a hedger, whichever makes the
// calls.
func doFunc(t *testing.T, p retry.Policy, options []retry.Option) func(context.Context, func(context.Context) error) error {
	t.Helper()
	if p.Hedge == (retry.Hedge{}) {
		r, err := retry.New(p, options...)
		if err != nil {
			t.Fatal(err)
		}
		return r.Do
	}
	h, err := retry.NewHedger(p, options...)
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, op func(context.Context) error) error {
		_, err := retry.Hedged(ctx, h, func(ctx context.Context) (struct{}, error) { return struct{}{}, op(ctx) })
		return err
	}
}

// fakeService implements the service of the scenario as an operation for a
// real runner.
type fakeService struct {
	mu       sync.Mutex
	last     context.Context // of the attempt under way
	scenario Scenario
	root     stream
	start    time.Time
	rate     *limit.Rate
	call     stream
	attempt  uint64
}

func newFakeService(t *testing.T, seed uint64) *fakeService {
	t.Helper()
	x := &fakeService{scenario: failingScenario(), root: newStream(seed), start: time.Now()}
	rate, err := limit.NewRate(x.scenario.Services[0].Limit.config())
	if err != nil {
		t.Fatal(err)
	}
	x.rate = rate
	return x
}

// next returns the stream of an attempt, or of the hedge beside it, which has
// the same context.
func (x *fakeService) next(ctx context.Context) stream {
	x.mu.Lock()
	defer x.mu.Unlock()
	if ctx == x.last {
		return x.call.derive(forCall, x.attempt<<1|1)
	}
	x.last = ctx
	x.attempt++
	return x.call.derive(forCall, x.attempt<<1)
}

var errService = errors.New("trouble")

func (x *fakeService) operation(ctx context.Context) error {
	own := x.next(ctx)
	now := time.Since(x.start)
	trouble := faultsAt(&x.scenario, 0, now)
	switch {
	case trouble.outage:
		return wait(ctx, time.Duration(refusal), errService)
	case own.unit(forBlackHole, 0) < trouble.blackhole:
		<-ctx.Done()
		return ctx.Err()
	case !x.rate.AllowAt(now):
		after, _ := x.rate.ReserveAt(now)
		return wait(ctx, time.Duration(refusal), retry.Throttled(retry.After(errService, after)))
	}
	d := x.scenario.Services[0].Latency.draw(own.draw(forService, 0)) * trouble.slowdown(own)
	if own.unit(forFailure, 0) < trouble.errors {
		return wait(ctx, time.Duration(d), errService)
	}
	return wait(ctx, time.Duration(d), nil)
}

func wait(ctx context.Context, d time.Duration, then error) error {
	select {
	case <-time.After(d):
		return then
	case <-ctx.Done():
		return ctx.Err()
	}
}
