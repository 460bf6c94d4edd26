package limit

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"time"
)

// server is a deterministic model of a destination: a number of workers, one
// queue in front of them, a service time per call. It runs the estimator in a
// closed loop: the calls in flight are always as many as the limit (or the
// load) allows.
type server struct {
	workers int
	service func() time.Duration
	load    int             // callers there are; 0 means more than any limit
	drop    func() bool     // whether a call fails from overload; nil means never
	watch   func(limit int) // called after each call; nil for none

	now      time.Duration
	free     []time.Duration // when each worker is free
	inflight completions
	done     int
}

type completion struct{ end, start time.Duration }

type completions []completion

func (c completions) Len() int           { return len(c) }
func (c completions) Less(i, j int) bool { return c[i].end < c[j].end }
func (c completions) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *completions) Push(x any)        { *c = append(*c, x.(completion)) }
func (c *completions) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

// run serves calls until the given time.
func (s *server) run(e *Estimator, until time.Duration) {
	for s.now < until {
		s.fill(e.Limit())
		c := heap.Pop(&s.inflight).(completion)
		s.now = c.end
		limit := e.SampleAt(s.now, c.end-c.start, len(s.inflight)+1, s.drop != nil && s.drop())
		s.done++
		if s.watch != nil {
			s.watch(limit)
		}
	}
}

// fill starts calls up to the limit.
func (s *server) fill(limit int) {
	if s.load > 0 {
		limit = min(limit, s.load)
	}
	for len(s.inflight) < limit {
		heap.Push(&s.inflight, completion{start: s.now, end: s.assign()})
	}
}

// assign gives the next call to the worker that is free first and returns when
// it will be done.
func (s *server) assign() time.Duration {
	for len(s.free) < s.workers {
		s.free = append(s.free, s.now)
	}
	s.free = s.free[:s.workers]
	first := 0
	for i, t := range s.free {
		if t < s.free[first] {
			first = i
		}
	}
	s.free[first] = max(s.free[first], s.now) + s.service()
	return s.free[first]
}

func constant(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

func exponential(mean time.Duration, seed uint64) func() time.Duration {
	r := rand.New(rand.NewPCG(seed, 1))
	return func() time.Duration { return time.Duration(r.ExpFloat64() * float64(mean)) }
}

// lognormal draws times with a long tail: with sigma 1 one in a hundred is six
// times the mean.
func lognormal(mean time.Duration, sigma float64, seed uint64) func() time.Duration {
	r := rand.New(rand.NewPCG(seed, 1))
	return func() time.Duration {
		return time.Duration(math.Exp(r.NormFloat64()*sigma-sigma*sigma/2) * float64(mean))
	}
}
