package gateway

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// closed measures the throughput of a closed loop: each connection sends the next
// request when it has received the answer to the previous one.
func (b *Bench) closed(ctx context.Context, t *tally, e endpoint, text []byte, length time.Duration) error {
	clients, err := dialAll(b.Connections, e.addr, text, length)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	return t.count(e, func() (outcome, error) { return loop(ctx, clients, length, (*client).exchange), nil })
}

// runAll runs a function for every client at the same time and adds up the
// outcomes.
func runAll(clients []*client, work func(*client) outcome) (sum outcome) {
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, c := range clients {
		group.Go(func() {
			o := work(c)
			mu.Lock()
			defer mu.Unlock()
			sum.add(o)
		})
	}
	group.Wait()
	return sum
}

// loop calls work for every client again and again, for the given length of time.
func loop(ctx context.Context, clients []*client, length time.Duration, work func(*client) error) outcome {
	var over atomic.Bool
	timer := time.AfterFunc(length, func() { over.Store(true) })
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { over.Store(true) })()
	return runAll(clients, func(c *client) (o outcome) {
		for !over.Load() {
			o.record(work(c))
		}
		return o
	})
}
