package retry_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// flaky returns a function that fails twice and then answers.
func flaky() func(context.Context) (string, error) {
	n := 0
	return func(context.Context) (string, error) {
		if n++; n < 3 {
			return "", errors.New("connection refused")
		}
		return "hello", nil
	}
}

func Example() {
	api := retry.Must("exponential(1ms..20ms) jitter=full attempts=3")

	greeting, err := retry.Value(context.Background(), api, flaky())
	fmt.Println(greeting, err)
	// Output: hello <nil>
}

func ExampleRunner_Do() {
	r := retry.Must("fixed(1ms) attempts=2", retry.WithName("save"))
	err := r.Do(context.Background(), func(context.Context) error {
		return errors.New("disk full")
	})

	if gaveUp, ok := errors.AsType[*retry.Error](err); ok {
		fmt.Println(gaveUp.Reason, gaveUp.Attempts, gaveUp.Last)
	}
	fmt.Println(errors.Is(err, retry.StopAttempts))
	// Output:
	// attempts used up 2 disk full
	// true
}

func ExampleRunner_Attempts() {
	r := retry.Must("fixed(1ms) attempts=5")
	get := flaky()

	var greeting string
	var err error
	for a := range r.Attempts(context.Background(), &err) {
		greeting, err = get(a.Context())
		fmt.Println(a.Number(), err)
	}
	fmt.Println(greeting, err)
	// Output:
	// 1 connection refused
	// 2 connection refused
	// 3 <nil>
	// hello <nil>
}

func ExampleRunner_Resume() {
	var stored []byte // in a file or a table
	save := retry.WithOnRetry(func(_ context.Context, e retry.Event) (err error) {
		stored, err = json.Marshal(struct {
			State retry.State
			Until time.Time
		}{e.State(), e.Until})
		return err
	})
	r := retry.Must("exponential(1ms..1s) attempts=3", save)
	down := func(context.Context) error { return errors.New("down") }

	_ = r.Do(context.Background(), down) // imagine that the process ends here

	// After a restart: wait for what was left of the wait, then go on.
	var job struct {
		State retry.State
		Until time.Time
	}
	if err := json.Unmarshal(stored, &job); err != nil {
		panic(err)
	}
	time.Sleep(time.Until(job.Until)) // real clock: the wait has no upper bound
	err := r.Resume(context.Background(), job.State, down)

	var gaveUp *retry.Error
	fmt.Println(errors.As(err, &gaveUp), job.State.Attempt, gaveUp.Attempts)
	// Output: true 2 3
}

func ExampleParseDuration() {
	d, err := retry.ParseDuration("1d12h")
	fmt.Println(d, err)

	_, err = retry.ParseDuration("90")
	fmt.Println(err)
	// Output:
	// 36h0m0s <nil>
	// "90" is not a duration such as 500ms, 30s, 1m30s or 2d
}

func ExampleParseWith() {
	own := map[string]retry.Policy{"nightly": retry.Must("http-batch attempts=8").Policy()}
	lookup := func(name string) (retry.Policy, bool) {
		if p, ok := own[name]; ok {
			return p, true
		}
		return retry.Preset(name)
	}

	p, err := retry.ParseWith("nightly cap=5m", lookup)
	fmt.Println(p, err)
	// Output: exponential(2s..5m) jitter=20% attempts=8 <nil>
}

func ExampleParse() {
	for _, text := range []string{
		"exponential(1s..32s) jitter=20% attempts=4",
		"http attempts=6 total-timeout=2m",
		"http atempts=6",
	} {
		p, err := retry.Parse(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(p)
	}
	// Output:
	// exponential(1s..32s) jitter=20% attempts=4
	// exponential(1s..32s) jitter=20% attempts=6 total-timeout=2m
	// policy "http atempts=6": key "atempts" is unknown; did you mean "attempts"?
}

func ExamplePolicy() {
	p := retry.Policy{
		Schedule: backoff.Schedule{
			Kind: backoff.Exponential, Base: 50 * time.Millisecond, Cap: 20 * time.Second, Jitter: backoff.Full,
		},
		Attempts:       3,
		AttemptTimeout: 2 * time.Second,
		Budget:         limit.Refund(1, 0.1, 10),
	}
	r, err := retry.New(p)
	fmt.Println(r.Policy(), err)
	// Output: exponential(50ms..20s) jitter=full attempts=3 attempt-timeout=2s budget=refund(1,0.1,10) <nil>
}

func ExamplePolicy_Validate() {
	p := retry.Policy{Attempts: -3, TotalTimeout: -time.Second}
	fmt.Println(p.Validate())
	// Output:
	// attempts: -3 is negative
	// total-timeout: -1s is negative
}

func ExamplePolicy_Delays() {
	p, _ := retry.Preset("http")
	for n, wait := range p.Delays(nil) {
		fmt.Println(n, wait)
	}
	// Output:
	// 1 1s
	// 2 2s
	// 3 4s
}

func ExamplePolicy_With() {
	p, _ := retry.Preset("http")
	p, err := p.With("attempt-timeout", "10s")
	fmt.Println(p, err)
	// Output: exponential(1s..32s) jitter=20% attempts=4 attempt-timeout=10s <nil>
}

func ExamplePolicy_Retries() {
	p, _ := retry.Preset("http")
	fmt.Println(p.Attempts, p.Retries())
	// Output: 4 3
}

func ExamplePolicy_Refuse() {
	p, _ := retry.Parse("http hedge=p95")
	fmt.Println(p.Refuse("a workflow step", "hedge"))
	// Output: hedge: a workflow step can't honour hedge=p95
}

func ExamplePolicy_UnmarshalText() {
	var p retry.Policy
	flags := flag.NewFlagSet("job", flag.ContinueOnError)
	flags.TextVar(&p, "retry", retry.Policy{}, "how to retry")
	err := flags.Parse([]string{"-retry", "fixed(2s) attempts=3"})
	fmt.Println(p, err)
	// Output: fixed(2s) attempts=3 <nil>
}

func ExamplePresets() {
	for name := range retry.Presets {
		p, _ := retry.Preset(name)
		fmt.Printf("%-18s %v\n", name, p)
	}
	// Output:
	// default            exponential(50ms..20s) jitter=full attempts=3 total-timeout=30s throttle-base=1s budget=refund(1,0.1,10)
	// daemon             exponential(30s..5m) jitter=10% attempts=6
	// workflow           fixed(1s..5m) attempts=3
	// workflow-api       exponential(1s..1m) jitter=50% attempts=5
	// contention         exponential(10ms..1s) max-doublings=6 jitter=+50% attempts=7
	// http               exponential(1s..32s) jitter=20% attempts=4
	// http-conservative  exponential(500ms..1m) jitter=20% attempts=6
	// http-interactive   exponential(500ms..8s) jitter=20% attempts=3
	// http-batch         exponential(2s..32s) jitter=20% attempts=4
	// task               exponential(1s..30s) attempts=4
}

func ExampleKeys() {
	fmt.Println(retry.Keys()[:3])
	// Output: [base cap factor]
}

func ExampleDecide() {
	p, _ := retry.Preset("task")
	d := retry.Decide(p, retry.State{Attempt: 3}, retry.Outcome{}, retry.Gates{}, 0)
	fmt.Println("wait", d.Wait)
	d = retry.Decide(p, retry.State{Attempt: 4}, retry.Outcome{}, retry.Gates{}, 0)
	fmt.Println("stop:", d.Stop)
	// Output:
	// wait 4s
	// stop: attempts used up
}

func ExamplePermanent() {
	r := retry.Must("fixed(1ms) attempts=5")
	n := 0
	err := r.Do(context.Background(), func(context.Context) error {
		n++
		return retry.Permanent(os.ErrNotExist)
	})
	fmt.Println(n, err)
	fmt.Println(errors.Is(err, os.ErrNotExist), errors.Is(err, retry.StopPermanent))
	// Output:
	// 1 attempt 1: permanent failure: file does not exist
	// true true
}

func ExampleAfter() {
	r := retry.Must("fixed(1ms) attempts=2", retry.WithObserver(func(e retry.Event) {
		if e.Kind == retry.Waiting {
			fmt.Println("wait at least 5ms:", e.Delay >= 5*time.Millisecond, "set by the", e.By)
		}
	}))
	_ = r.Do(context.Background(), func(context.Context) error {
		return retry.After(errors.New("busy"), 5*time.Millisecond)
	})
	// Output: wait at least 5ms: true set by the server
}

func ExampleThrottled() {
	p, _ := retry.Parse("exponential(50ms..20s) attempts=3 throttle-base=1s")
	err := retry.Throttled(errors.New("slow down"))
	fmt.Println(retry.Decide(p, retry.State{Attempt: 1}, retry.OutcomeOf(err), retry.Gates{}, 0).Wait)
	// Output: 1s
}

// quotaError is an error that states when the quota resets.
type quotaError struct{ resets time.Duration }

func (quotaError) Error() string                 { return "quota used up" }
func (e quotaError) RetryOutcome() retry.Outcome { return retry.Outcome{After: e.resets} }

func ExampleClassified() {
	err := fmt.Errorf("send: %w", quotaError{resets: 30 * time.Second})
	fmt.Println(retry.OutcomeOf(err).After)
	// Output: 30s
}

func ExampleError_History() {
	n := 0
	err := retry.Must("linear(1ms) attempts=3").Do(context.Background(), func(context.Context) error {
		n++
		return fmt.Errorf("failure %d", n)
	})
	var gaveUp *retry.Error
	errors.As(err, &gaveUp)
	for _, f := range gaveUp.History() {
		fmt.Println(f.Attempt, f.Err, f.Wait)
	}
	// Output:
	// 1 failure 1 1ms
	// 2 failure 2 2ms
	// 3 failure 3 0s
}

func ExampleTimeoutError() {
	r := retry.Must("fixed(1ms) attempts=1 attempt-timeout=2ms")
	err := r.Do(context.Background(), func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	var late *retry.TimeoutError
	fmt.Println(errors.As(err, &late), late)
	// Output: true attempt timed out after 2ms: context deadline exceeded
}

func ExampleWithBreaker() {
	b := breaker.Must(breaker.Config{ConsecutiveFailures: 2}, breaker.WithName("payments"))
	r := retry.Must("fixed(1ms) attempts=5", retry.WithBreaker(b))
	n := 0
	err := r.Do(context.Background(), func(context.Context) error { n++; return io.ErrUnexpectedEOF })
	fmt.Println(n, errors.Is(err, retry.StopBreaker), errors.Is(err, io.ErrUnexpectedEOF))
	// Output: 2 true true
}

func ExampleWithBudget() {
	budget, err := limit.NewBudget(limit.Refund(1, 0.1, 3))
	if err != nil {
		panic(err)
	}
	r := retry.Must("fixed(0s) attempts=10", retry.WithBudget(budget))
	err = r.Do(context.Background(), func(context.Context) error { return io.EOF })
	fmt.Println(errors.Is(err, retry.StopBudget), budget.Tokens())
	// Output: true 0
}

func ExampleWithConcurrency() {
	one, _ := limit.NewConcurrency(limit.ConcurrencyConfig{Max: 1})
	r := retry.Must("fixed(1ms) attempts=3", retry.WithConcurrency(one))
	_ = r.Do(context.Background(), func(ctx context.Context) error {
		err := r.Do(ctx, func(context.Context) error { return nil })
		fmt.Println(errors.Is(err, retry.StopLimit))
		return nil
	})
	// Output: true
}

func ExampleWithRate() {
	rate, _ := limit.NewRate(limit.RateConfig{Rate: limit.Frequency{Events: 1000, Per: time.Second}, MaxWait: time.Second})
	r := retry.Must("fixed(0s) attempts=3", retry.WithRate(rate))
	start := time.Now()
	_, err := retry.Value(context.Background(), r, flaky())
	fmt.Println(err, time.Since(start) >= 2*time.Millisecond) // real clock: a lower bound
	// Output: <nil> true
}

func ExampleWithAdaptive() {
	limits, _ := limit.NewAdaptive(limit.AdaptiveConfig{Max: 100})
	r := retry.Must("fixed(0s) attempts=3", retry.WithAdaptive(limits))
	_, err := retry.Value(context.Background(), r, flaky())
	fmt.Println(err, limits.Stats().InUse)
	// Output: <nil> 0
}

func ExampleWithClassifier() {
	r := retry.Must("fixed(1ms) attempts=5", retry.WithClassifier(func(err error) retry.Outcome {
		if errors.Is(err, os.ErrPermission) {
			return retry.Outcome{Class: retry.ClassPermanent}
		}
		return retry.OutcomeOf(err)
	}))
	err := r.Do(context.Background(), func(context.Context) error { return os.ErrPermission })
	fmt.Println(err)
	// Output: attempt 1: permanent failure: permission denied
}

func ExampleWithOnRetry() {
	r := retry.Must("fixed(1ms) attempts=3", retry.WithOnRetry(func(_ context.Context, e retry.Event) error {
		fmt.Printf("Retry %d/%d after error: %v\n", e.Attempt, e.Attempts-1, e.Err)
		return nil
	}))
	_, _ = retry.Value(context.Background(), r, flaky())
	// Output:
	// Retry 1/2 after error: connection refused
	// Retry 2/2 after error: connection refused
}

func ExampleWithObserver() {
	r := retry.Must("fixed(1ms) attempts=3", retry.WithObserver(func(e retry.Event) { fmt.Println(e.Kind, e.Attempt) }))
	_, _ = retry.Value(context.Background(), r, flaky())
	// Output:
	// attempt-started 1
	// attempt-failed 1
	// waiting 1
	// attempt-started 2
	// attempt-failed 2
	// waiting 2
	// attempt-started 3
	// succeeded 3
}

func ExampleWithLogger() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	r := retry.Must("fixed(1ms) attempts=3", retry.WithName("greeter"), retry.WithLogger(log))
	_, _ = retry.Value(context.Background(), r, flaky())
	// Output:
	// level=WARN msg=retrying name=greeter attempt=1 attempts=3 delay=1ms delay_by=policy error="connection refused"
	// level=WARN msg=retrying name=greeter attempt=2 attempts=3 delay=1ms delay_by=policy error="connection refused"
}

func ExampleWithSchedule() {
	learned := func(s retry.State, _ retry.Outcome) time.Duration { return time.Duration(s.Attempt) * time.Millisecond }
	r := retry.Must("fixed(1s) attempts=3", retry.WithSchedule(learned), retry.WithObserver(func(e retry.Event) {
		if e.Kind == retry.Waiting {
			fmt.Println(e.Delay, e.By)
		}
	}))
	_, _ = retry.Value(context.Background(), r, flaky())
	// Output:
	// 1ms schedule
	// 2ms schedule
}

func ExampleWithSeed() {
	waits := func() (list []time.Duration) {
		r := retry.Must("exponential(1ms..9ms) jitter=full attempts=3", retry.WithSeed(7), retry.WithObserver(func(e retry.Event) {
			if e.Kind == retry.Waiting {
				list = append(list, e.Delay)
			}
		}))
		_, _ = retry.Value(context.Background(), r, flaky())
		return list
	}
	first, second := waits(), waits()
	fmt.Println(slices.Equal(first, second))
	// Output: true
}

func ExampleWithRand() {
	longest := func() uint64 { return 1<<64 - 1 }
	r := retry.Must("fixed(1ms) jitter=+50% attempts=2", retry.WithRand(longest), retry.WithObserver(func(e retry.Event) {
		if e.Kind == retry.Waiting {
			fmt.Println(e.Delay)
		}
	}))
	_ = r.Do(context.Background(), func(context.Context) error { return io.EOF })
	// Output: 1.5ms
}

func ExampleWithGrace() {
	p, _ := retry.Parse("fixed(0s) hedge=1ms")
	h, err := retry.NewHedger(p, retry.WithGrace(time.Second))
	fmt.Println(h.Policy().Hedge, err)
	// Output: 1ms <nil>
}

func ExampleBreakerEvents() {
	show := func(e retry.Event) { fmt.Println(e.Name, e.Kind) }
	b := breaker.Must(breaker.Config{ConsecutiveFailures: 1}, breaker.WithName("payments"),
		breaker.WithObserver(retry.BreakerEvents(show)))
	_ = retry.Must("fixed(0s)", retry.WithBreaker(b)).Do(context.Background(), func(context.Context) error { return io.EOF })
	// Output: payments breaker-opened
}

func ExampleEvent_MarshalJSON() {
	e := retry.Event{Kind: retry.GaveUp, Time: time.Unix(0, 0).UTC(), Attempt: 3, Attempts: 3, Reason: retry.StopAttempts, Err: io.EOF}
	line, err := json.Marshal(e)
	fmt.Println(string(line), err)
	// Output: {"kind":"gave-up","time":"1970-01-01T00:00:00Z","attempt":3,"attempts":3,"reason":"attempts","error":"EOF"} <nil>
}

func ExampleHedged() {
	p, _ := retry.Parse("fixed(0s) attempts=2 hedge=5ms/10%")
	h, err := retry.NewHedger(p)
	if err != nil {
		panic(err)
	}
	slow := make(chan struct{}, 1)
	slow <- struct{}{} // only the first attempt is slow
	answer, err := retry.Hedged(context.Background(), h, func(ctx context.Context) (string, error) {
		select {
		case <-slow:
			<-ctx.Done() // canceled when the second attempt has answered
			return "", ctx.Err()
		default:
			return "from the second attempt", nil
		}
	})
	fmt.Println(answer, err)
	// Output: from the second attempt <nil>
}

// A client with two servers asks the other one at once, instead of waiting for the
// first.
func ExampleWithReview() {
	servers, at := []string{"first", "second"}, 0
	r := retry.Must("fixed(1h) attempts=3", retry.WithReview(func(_ context.Context, r retry.Review) retry.Decision {
		if at+1 == len(servers) {
			return r.Decision
		}
		at++
		return retry.Decision{By: retry.BySchedule, Prev: r.State.Prev}
	}))
	err := r.Do(context.Background(), func(context.Context) error {
		if servers[at] == "first" {
			return errors.New("unavailable")
		}
		fmt.Println("answered by", servers[at])
		return nil
	})
	fmt.Println(err)
	// Output:
	// answered by second
	// <nil>
}
