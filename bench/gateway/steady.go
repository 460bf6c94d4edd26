package gateway

import (
	"context"
	"sync"
	"time"
)

// steady measures the latency of an open loop: requests become due at a fixed
// rate, and each is measured from its due time. A request that finds every
// connection busy waits, and its wait counts.
func (b *Bench) steady(ctx context.Context, t *tally, e endpoint, length time.Duration) error {
	clients, err := dialAll(b.Connections, e.addr, e.get(), length)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	times := t.samples("steady")
	return t.count(e, func() (o outcome, err error) {
		// Large enough for all, so that the pacer never waits for the clients.
		due := make(chan time.Time, int(length.Seconds()*float64(b.Rate))+1)
		var group sync.WaitGroup
		group.Go(func() {
			defer close(due)
			err = pace(ctx, b.Rate, cap(due)-1, due)
		})
		o = runAll(clients, func(c *client) outcome { return answerDue(c, due, times) })
		group.Wait()
		return o, err
	})
}

func answerDue(c *client, due <-chan time.Time, times *samples) (o outcome) {
	var own []time.Duration
	for at := range due {
		err := c.exchange()
		o.record(err)
		if err == nil {
			own = append(own, time.Since(at))
		}
	}
	times.add(own)
	return o
}

// pace sends the due time of each of n requests to the channel when the request is
// due.
func pace(ctx context.Context, rate, n int, due chan<- time.Time) error {
	every := time.Second / time.Duration(rate)
	clock, err := newClock(every)
	if err != nil {
		return err
	}
	defer clock.stop()
	start := time.Now()
	for i := 0; i < n; {
		if err := clock.wait(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// A late tick makes several requests due.
		for now := time.Now(); i < n; i++ {
			at := start.Add(time.Duration(i+1) * every)
			if at.After(now) {
				break
			}
			due <- at
		}
	}
	return nil
}

// samples are times that several goroutines collect.
type samples struct {
	mu   sync.Mutex
	list []time.Duration
}

func (s *samples) add(more []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, more...)
}
