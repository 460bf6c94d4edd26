package durable

import (
	"context"
	"errors"
	"time"

	"github.com/tideover/tideover/internal/benchreport"
)

// Throughput starts n tasks that are due at once, and waits until they are
// recorded as completed.
func Throughput(ctx context.Context, open Open, servers Servers, n int) (_ map[string]float64, err error) {
	t := newTally(n, false)
	s, err := open(ctx, servers, t.handle)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	own, theirs, err := times(s)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	starts, err := load(ctx, s, Callers, func(first, batch int) ([]Payload, bool) {
		return payloads(first, min(batch, n-first), time.Time{}, 0), first < n
	})
	if err != nil {
		return nil, err
	}
	started := time.Since(begin)
	if err := completed(ctx, s, t, n); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	if err := pollUntil(ctx, pollIdle, s.Settled); err != nil {
		return nil, err
	}
	settled := time.Since(begin)
	own2, theirs2, err := times(s)
	if err != nil {
		return nil, err
	}
	values := map[string]float64{
		"tasks": float64(n), "seconds": took.Seconds(), "tasks/s": float64(n) / took.Seconds(),
		"starts/s": float64(n) / started.Seconds(), "settling seconds": (settled - took).Seconds(),
		"own µs": float64(own2-own) / 1e3 / float64(n), "server µs": float64(theirs2-theirs) / 1e3 / float64(n),
	}
	benchreport.Quantiles(values, "start", latencies(starts))
	return values, nil
}

// payloads returns n payloads. If due is not zero, the first is due then, and each of
// the others is due the duration apart after the one before.
func payloads(first, n int, due time.Time, apart time.Duration) []Payload {
	if n <= 0 {
		return nil
	}
	tasks := make([]Payload, n)
	for i := range tasks {
		tasks[i] = NewPayload(first+i, due)
		if !due.IsZero() {
			due = due.Add(apart)
		}
	}
	return tasks
}

// times returns the processor time of this process and of the server processes.
func times(s System) (own, servers time.Duration, err error) {
	servers, err = serverTime(s.Servers())
	return ownTime(), servers, err
}
