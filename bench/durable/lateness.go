package durable

import (
	"context"
	"errors"
	"time"

	"github.com/tideover/tideover/internal/benchreport"
)

// Lateness starts n tasks at the given rate. Each task is due the duration ahead
// later, so tasks become due at the same rate while others are still being started.
func Lateness(ctx context.Context, open Open, servers Servers, n, rate int, ahead time.Duration) (_ map[string]float64, err error) {
	t := newTally(n, true)
	s, err := open(ctx, servers, t.handle)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	return lateness(ctx, s, t, n, rate, ahead)
}

func lateness(ctx context.Context, s System, t *tally, n, rate int, ahead time.Duration) (map[string]float64, error) {
	apart := time.Second / time.Duration(rate)
	begin := time.Now()
	starts, err := load(ctx, s, Callers, func(first, batch int) ([]Payload, bool) {
		if first >= n {
			return nil, false
		}
		// A caller that is late continues at once, and its tasks are due that
		// much later: only what the system does after the due time counts.
		pace(ctx, begin.Add(time.Duration(first)*apart))
		return payloads(first, min(batch, n-first), time.Now().Add(ahead), apart), ctx.Err() == nil
	})
	took := time.Since(begin)
	if err != nil {
		return nil, err
	}
	select {
	case <-t.all:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	values := map[string]float64{"due tasks": float64(n), "due/s": float64(n) / took.Seconds()}
	benchreport.Quantiles(values, "late", t.late)
	benchreport.Quantiles(values, "scheduling", latencies(starts))
	return values, nil
}

// pace sleeps until the given time, or until the context ends.
func pace(ctx context.Context, at time.Time) {
	select {
	case <-time.After(time.Until(at)):
	case <-ctx.Done():
	}
}
