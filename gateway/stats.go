package gateway

import (
	"maps"
	"math"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// Stats are the counts of a gateway since its start, for metrics.
type Stats struct {
	Providers []ProviderStats // in the order of the configuration
	Failovers []FailoverCount // also lists configured fallbacks without a failover
}

// ProviderStats are the counts of one provider.
type ProviderStats struct {
	Status      Status             // its state and totals
	Outages     uint64             // outages that have ended
	Late        uint64             // requests whose deadline was missed
	Attempts    []AttemptCount     // attempts sent to the provider, without counts of 0
	Retries     map[string]float64 // retries, by source of the delay
	WaitSeconds map[string]float64 // waiting times of requests, by cause
	GiveUps     map[string]float64 // requests that were given up, by reason
	FirstByte   Histogram          // from sending an attempt to the first byte of its response
}

// AttemptCount counts attempts by key and result.
type AttemptCount struct {
	Key    string
	Status string // such as "2xx", "429" or "error"
	Count  uint64
}

// FailoverCount counts moves of requests from one provider to another.
type FailoverCount struct {
	From, To string
	Count    uint64
}

// Histogram is a distribution of durations.
type Histogram struct {
	Count   uint64
	Seconds float64            // sum of all durations
	Buckets map[float64]uint64 // by upper bound in seconds: number of durations up to that bound
}

// Load counts the requests of callers to a provider since the start, and the attempts for
// them.
type Load struct {
	Requests uint64 // requests of callers
	Sent     uint64 // attempts for them, at this provider and at fallbacks
}

// stats counts the requests of a provider since the start. It belongs to the provider's
// name, so it survives reloads.
type stats struct {
	requests, succeeded, failed, canceled, cutShort atomic.Uint64
	attempts                                        atomic.Uint64 // sent to this provider, for its own requests and as a fallback
	sent                                            atomic.Uint64 // sent to any provider for its own requests
	throttled, failovers, probes, hedges, notKept   atomic.Uint64
	outages, late                                   atomic.Uint64
	nextSample                                      atomic.Int64 // when a request may be sampled again, as time since the start of the gateway

	retries labelled // by source of the delay
	waits   labelled // seconds, by cause
	giveUps labelled // by reason
	ttfb    histogram

	mu    sync.Mutex
	keys  map[string]*keyStats
	moves map[pair]uint64 // failovers of its own requests
}

// takeSample reports whether a request that arrives now is one of the sample for the record of
// requests.
func (s *stats) takeSample(now time.Duration) bool {
	next := s.nextSample.Load()
	return int64(now) >= next && s.nextSample.CompareAndSwap(next, int64(now+sampleInterval))
}

// moved counts a failover of one of its requests.
func (s *stats) moved(from, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	put(&s.moves, pair{from, to}, s.moves[pair{from, to}]+1)
}

// key returns the counts of a key, and adds the key if it is new.
func (s *stats) key(name string) *keyStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[name]
	if k == nil {
		k = new(keyStats)
		put(&s.keys, name, k)
	}
	return k
}

// put sets a value in a map, and makes the map if it is nil.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// keyStats counts the attempts with one key, by their result.
type keyStats struct{ by [len(classes)]atomic.Uint64 }

// classes are the results of attempts: classes of status codes, and results without one.
var classes = [...]string{"1xx", "2xx", "3xx", "4xx", "429", "5xx", "error", "canceled"}

// Indexes in classes.
const (
	class429 = 4 + iota
	class5xx
	classError
	classCanceled
)

// classOf returns the index in classes for a status code.
func classOf(code int) int {
	switch {
	case code == 429:
		return class429
	case code >= 500:
		return class5xx
	default:
		return max(code/100, 1) - 1
	}
}

// labelled is a sum for each of a few labels.
type labelled struct {
	mu   sync.Mutex
	sums map[string]float64
}

func (l *labelled) add(label string, n float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	put(&l.sums, label, l.sums[label]+n)
}

func (l *labelled) all() map[string]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.sums)
}

// bounds are the upper bounds of the histogram's buckets, in seconds: from the answer of a
// cache to that of a slow model.
var bounds = [...]float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// histogram is a distribution of times to first byte.
type histogram struct {
	buckets [len(bounds) + 1]atomic.Uint64
	nanos   atomic.Int64
}

func (h *histogram) observe(d time.Duration) {
	h.buckets[sort.SearchFloat64s(bounds[:], d.Seconds())].Add(1)
	h.nanos.Add(int64(d))
}

// snapshot returns the histogram with cumulative buckets.
func (h *histogram) snapshot() Histogram {
	s := Histogram{Buckets: make(map[float64]uint64, len(bounds)), Seconds: time.Duration(h.nanos.Load()).Seconds()}
	for i := range h.buckets {
		s.Count += h.buckets[i].Load()
		if i < len(bounds) {
			s.Buckets[bounds[i]] = s.Count
		}
	}
	return s
}

// seconds returns a duration for Retry-After: in whole seconds, rounded up, at least 1.
func seconds(d time.Duration) int64 { return int64(max(math.Ceil(d.Seconds()), 1)) }
