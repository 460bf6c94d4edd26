package gateway

import (
	"maps"
	"math"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// Stats are the numbers of a gateway since its start, for metrics.
type Stats struct {
	Providers []ProviderStats // in the order of the configuration
	Failovers []FailoverCount // configured fallbacks are listed from the start
}

// ProviderStats are the numbers of one provider.
type ProviderStats struct {
	Status      Status             // with its totals
	Outages     uint64             // outages that are over
	Late        uint64             // requests whose deadline was missed
	Attempts    []AttemptCount     // attempts sent to the provider, without counts of 0
	Retries     map[string]float64 // retries, by the origin of the delay
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

// Histogram counts durations.
type Histogram struct {
	Count   uint64
	Seconds float64            // the sum
	Buckets map[float64]uint64 // by upper bound in seconds: durations up to that length
}

// Load counts the requests of callers to a provider since the start, and the attempts made for them.
type Load struct {
	Requests uint64 // of callers
	Sent     uint64 // attempts for them, at this provider or another
}

// stats counts the requests of a provider since the start. It belongs to the provider's
// name, and so outlives every reload.
type stats struct {
	requests, succeeded, failed, canceled, cutShort atomic.Uint64
	attempts                                        atomic.Uint64 // sent to it, for itself or for another
	sent                                            atomic.Uint64 // sent anywhere for its callers
	throttled, failovers, probes, hedges, notKept   atomic.Uint64
	outages, late                                   atomic.Uint64

	retries labelled // by who set the wait
	waits   labelled // seconds, by what was waited for
	giveUps labelled // by reason
	ttfb    histogram

	mu    sync.Mutex
	keys  map[string]*keyStats
	moves map[pair]uint64 // of its own requests, from one provider to another
}

// moved counts a move of one of its requests.
func (s *stats) moved(from, to string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	put(&s.moves, pair{from, to}, s.moves[pair{from, to}]+1)
}

// key returns the counts of a key.
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

// put sets the value of a key in a map, which is made if it is nil.
func put[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// keyStats counts the attempts with one key, by their result.
type keyStats struct{ by [len(classes)]atomic.Uint64 }

// classes are what attempts bring: classes of statuses, and what is none.
var classes = [...]string{"1xx", "2xx", "3xx", "4xx", "429", "5xx", "error", "canceled"}

// The places in classes that are no classes of statuses.
const (
	class429 = 4 + iota
	class5xx
	classError
	classCanceled
)

// classOf returns the place of a status.
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

// labelled is a sum for each of a few words.
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

// bounds are the upper ends of the histogram's buckets, in seconds: from a cache
// to a model that thinks.
var bounds = [...]float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}

// histogram counts times to first byte.
type histogram struct {
	buckets [len(bounds) + 1]atomic.Uint64
	nanos   atomic.Int64
}

func (h *histogram) observe(d time.Duration) {
	h.buckets[sort.SearchFloat64s(bounds[:], d.Seconds())].Add(1)
	h.nanos.Add(int64(d))
}

// snapshot returns the counts, each bucket with all that are below it.
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

// seconds returns a wait as a header states it: whole seconds, never less than it
// is, and at least one.
func seconds(d time.Duration) int64 { return int64(max(math.Ceil(d.Seconds()), 1)) }
