//go:build linux

package clustertest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/internal/testwait"
)

// probe sends requests to every shard all the time, to find out whether a
// process works on it.
type probe struct {
	t     *testing.T
	begin time.Time
	quit  chan struct{}
	each  sync.WaitGroup

	mu    sync.Mutex
	fault string
	last  [shards]time.Time // time of the last answer
	gaps  map[string][]time.Duration
}

const (
	probeEvery = 250 * time.Millisecond
	probeWait  = 5 * time.Second
	shortGap   = time.Second // a shorter gap is only a slow answer
)

func newProbe(t *testing.T, url string) *probe {
	t.Helper()
	p := &probe{t: t, begin: time.Now(), quit: make(chan struct{}), gaps: map[string][]time.Duration{}}
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	for shard := range shards {
		p.each.Go(func() { p.watch(nc, shard) })
	}
	return p
}

func (p *probe) watch(nc *nats.Conn, shard int) {
	subject := fmt.Sprintf("%s.shard.%d", clusterName, shard)
	request := []byte(`{"op":"stats"}`)
	tick := time.NewTicker(probeEvery) // real clock: a pause between two polls
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.quit:
			return
		}
		if _, err := nc.Request(subject, request, probeWait); err == nil {
			p.answered(shard)
		}
	}
}

func (p *probe) answered(shard int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if last := p.last[shard]; !last.IsZero() && now.Sub(last) > shortGap {
		p.gaps[p.fault] = append(p.gaps[p.fault], now.Sub(last))
	}
	p.last[shard] = now
}

// during sets the fault that is being injected.
func (p *probe) during(fault string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// waitForAll waits until a process works on every shard.
func (p *probe) waitForAll() {
	p.t.Helper()
	since := time.Now()
	testwait.Until(p.t, "every shard answers", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return !slices.ContainsFunc(p.last[:], since.After)
	})
}

// since returns the seconds since the start.
//
// real clock: they are only logged.
func (p *probe) since() float64 { return time.Since(p.begin).Seconds() }

func (p *probe) stop() {
	close(p.quit)
	p.each.Wait()
}

// report logs for how long no process worked on a shard. Without a quorum no
// process can take over, so those times are reported apart.
func (p *probe) report() {
	var all []time.Duration
	for fault, gaps := range p.gaps {
		p.logGaps(fault, gaps)
		if fault != noQuorum {
			all = append(all, gaps...)
		}
	}
	p.logGaps("all but "+noQuorum, all)
}

func (p *probe) logGaps(what string, gaps []time.Duration) {
	if len(gaps) == 0 {
		return
	}
	slices.Sort(gaps)
	at := func(q float64) time.Duration {
		return gaps[min(int(q*float64(len(gaps))), len(gaps)-1)].Round(100 * time.Millisecond)
	}
	p.t.Logf("%-24s %3d gaps of a shard: p50 %v, p99 %v, longest %v", what, len(gaps), at(0.5), at(0.99), at(1))
}
