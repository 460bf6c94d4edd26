// Package logsample limits how often the same line is logged. Under load, or while a
// server is unreachable, thousands of equal lines contain no more information than one
// line with a count.
package logsample

import (
	"cmp"
	"sync"
	"time"
)

// The defaults of a [Sampler].
const (
	DefaultEvery = 10 * time.Second
	DefaultMax   = 1000
)

// Sampler allows one line for each key in a period of time. The zero Sampler is
// ready for use, by several goroutines at once.
type Sampler[K comparable] struct {
	Every time.Duration // the period; 0 means [DefaultEvery]
	Max   int           // largest number of keys, 0 means [DefaultMax]; the next new key makes the sampler forget all

	mu   sync.Mutex
	kept map[K]*sample
}

// sample describes the last line of a key that was allowed.
type sample struct {
	at         time.Time
	suppressed int // lines since then
}

// Allow reports whether to log a line with that key at the time now. If so, suppressed is
// the number of lines that were not allowed since the last one.
func (s *Sampler[K]) Allow(key K, now time.Time) (ok bool, suppressed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.kept[key]
	switch {
	case last != nil && now.Sub(last.at) < cmp.Or(s.Every, DefaultEvery):
		last.suppressed++
		return false, 0
	case last != nil:
		suppressed = last.suppressed
	case s.kept == nil || len(s.kept) >= cmp.Or(s.Max, DefaultMax):
		s.kept = map[K]*sample{}
	}
	s.kept[key] = &sample{at: now}
	return true, suppressed
}
