package health_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/limit"
)

func ExampleScore() {
	var fast, slow health.Score
	fast.ObserveAt(0, 100*time.Millisecond)
	slow.ObserveAt(0, 300*time.Millisecond)
	for range 4 { // four calls under way make the fast one the worse choice
		fast.Begin()
	}
	fmt.Printf("%.1f %.1f\n", fast.CostAt(0), slow.CostAt(0))
	// Output: 0.5 0.3
}

func ExamplePool() {
	pool, err := health.NewPool(health.PoolConfig{}, []health.Target{
		{Name: "key-1", Provider: "acme"},
		{Name: "key-2", Provider: "acme", Tier: 1},
		{Name: "other", Tier: 2},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	call := pool.Pick()
	for ok := true; ok; {
		fmt.Println(call.Target().Name)
		call.Done(health.RefusedFor(50 * time.Minute)) // 429 with Retry-After: 3000
		call, ok = pool.Next(&call)
	}
	fmt.Println("retry after", pool.Recovery().Round(10*time.Minute))
	// Output:
	// key-1
	// key-2
	// other
	// retry after 50m0s
}

func ExampleGate() {
	gate, err := health.NewGate(health.GateConfig{Failures: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	pass, _ := gate.Enter(context.Background())
	pass.Done(health.FailedFor(50 * time.Minute)) // 503 with Retry-After: 3000

	// A caller whose deadline is earlier gets an error at once.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = gate.Enter(ctx)
	var closed *health.ClosedError
	fmt.Println(errors.As(err, &closed), closed.Next.Round(10*time.Minute))
	// Output: true 50m0s
}

// In virtual time, as a simulator would.
func ExampleGate_EnterAt() {
	gate, _ := health.NewGate(health.GateConfig{})
	gate.ShutAt(0, 30*time.Second) // the provider reports an outage
	turns := map[limit.Priority]*health.Turn{}
	for _, p := range []limit.Priority{limit.Low, limit.High, limit.Normal} {
		turns[p], _ = gate.EnterAt(0, p, 0)
	}
	gate.OpenAt(20 * time.Second) // and that it is back
	for at, ok := 20*time.Second, true; ok; at, ok = gate.NextAt() {
		gate.AdvanceAt(at)
		for p, turn := range turns {
			if _, over, _ := turn.Result(); over {
				fmt.Println(p, "passes at", at)
				delete(turns, p)
			}
		}
	}
	// Output:
	// high passes at 20s
	// normal passes at 20.5s
	// low passes at 21s
}

func ExampleRecovery() {
	r, err := health.NewRecovery(health.RecoveryConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// It restarts whenever it is deployed, and that takes about a minute.
	for range 30 {
		r.Observe(57*time.Second, 63*time.Second)
	}
	p := r.Predict(40 * time.Second)
	fmt.Println("over within half a minute:", p.Median < 30*time.Second)
	fmt.Println("looks more often near the end:", r.Gap(57*time.Second) < r.Gap(20*time.Second))
	// Output:
	// over within half a minute: true
	// looks more often near the end: true
}

func ExampleRecovery_MarshalBinary() {
	var before, after health.Recovery
	before.Observe(20*time.Second, 21*time.Second)
	stored, _ := before.MarshalBinary()
	fmt.Println(after.UnmarshalBinary(stored), after.Predict(0) == before.Predict(0))
	// Output: <nil> true
}

func ExampleErrorRate() {
	var e health.ErrorRate
	for i := range 400 {
		e.AddAt(0, i%4 == 0) // three in four fail
	}
	fmt.Println(e.StretchAt(0, time.Second).Round(10 * time.Millisecond))
	// Output: 2s
}

func ExampleSendRate() {
	r, err := health.NewSendRate(health.SendRateConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 1000 { // a hundred calls a second for ten seconds
		r.ReportAt(time.Duration(i)*10*time.Millisecond, false)
	}
	r.ReportAt(10*time.Second, true) // too many requests
	fmt.Printf("%.0f/s\n", r.Stats().Rate)
	// Output: 70/s
}
