package health

import (
	"math"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// Constants of an [ErrorRate].
const (
	// ErrorWindow is the length of the window: older results do not count.
	ErrorWindow = 60 * time.Second

	// MinErrorRequests is the number of results in the window below which the
	// pressure is 0: five a second. With fewer, a handful of failures would
	// look like an outage.
	MinErrorRequests = 300

	// MaxPressure limits the pressure, so that delays grow tenfold at most.
	MaxPressure = 0.9

	minSuccess   = 0.5 // pressure starts below this share of successes
	errorBuckets = 60
	bucketWidth  = ErrorWindow / errorBuckets
)

// ErrorRate makes delays longer while many calls of a destination fail. All
// callers of a process share it, and so learn from each other's failures.
//
// The pressure is max(0, (n − s/0.5)/(n+1)) for n results, s of them successes,
// in the last 60 s: the adaptive throttling of Google's SRE book ("Handling
// Overload", K = 2), used to stretch delays instead of dropping calls. Half of
// the calls may fail without any effect.
//
// The zero ErrorRate is ready for use, by any number of goroutines.
type ErrorRate struct {
	mu      sync.Mutex
	head    int64 // number of the newest bucket
	all, ok [errorBuckets]int
	n, s    int // sums of all and ok
}

// Add counts a result.
func (e *ErrorRate) Add(success bool) { e.AddAt(clock.Now(), success) }

// AddAt is [ErrorRate.Add] at the time now, since any fixed origin.
func (e *ErrorRate) AddAt(now time.Duration, success bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advanceWindow(now)
	i := e.head % errorBuckets
	e.all[i]++
	e.n++
	if success {
		e.ok[i]++
		e.s++
	}
}

// advanceWindow moves the window to now. A clock that goes back does not move
// it.
func (e *ErrorRate) advanceWindow(now time.Duration) {
	head := int64(max(now, 0) / bucketWidth)
	for range min(head-e.head, errorBuckets) {
		e.head++
		i := e.head % errorBuckets
		e.n -= e.all[i]
		e.s -= e.ok[i]
		e.all[i], e.ok[i] = 0, 0
	}
	e.head = max(e.head, head)
}

// Pressure returns how far the success rate is below one half: 0 while at least
// half of the calls succeed, at most [MaxPressure].
func (e *ErrorRate) Pressure() float64 { return e.PressureAt(clock.Now()) }

// PressureAt is [ErrorRate.Pressure] at the time now.
func (e *ErrorRate) PressureAt(now time.Duration) float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.advanceWindow(now)
	if e.n < MinErrorRequests {
		return 0
	}
	p := (float64(e.n) - float64(e.s)/minSuccess) / float64(e.n+1)
	return min(max(p, 0), MaxPressure)
}

// Stretch returns the delay divided by one minus the pressure: the delay itself
// while the pressure is 0, up to ten times as long otherwise.
func (e *ErrorRate) Stretch(d time.Duration) time.Duration { return e.StretchAt(clock.Now(), d) }

// StretchAt is [ErrorRate.Stretch] at the time now.
func (e *ErrorRate) StretchAt(now, d time.Duration) time.Duration {
	p := e.PressureAt(now)
	if p == 0 || d <= 0 {
		return d
	}
	if x := float64(d) / (1 - p); x < math.MaxInt64 {
		return time.Duration(x)
	}
	return math.MaxInt64
}
