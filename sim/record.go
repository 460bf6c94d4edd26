package sim

import (
	"math"
	"sync"
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// step is the resolution of Measures.Recovery.
const step = int64(100 * time.Millisecond)

// recorder records what happens in one run.
type recorder struct {
	bucket int64
	edge   int64 // when the queue is sampled next
	begins int64 // of the bucket of the last event that was recorded
	index  int   // of that bucket
	sums

	started, done, good int
	goodInTime          int // calls that succeeded before the drain
	duration            int64
	attempts, load      int
	hedges              int
	lastEnd             int64
	work, wasted        int64   // worker time
	failedTime          float64 // nanoseconds spent in calls that failed
	events              int

	byStart [][2]int32 // for each step: calls that began in it, and those of them that succeeded

	outages                 []Failure
	outageCalls, outageGood int // calls that began during an outage, and those of them that succeeded

	active     int     // clients that called
	sum, sumSq float64 // of the clients' shares of success, and of their squares
}

// sums are the sums over the runs of a contestant. All are integers, so that
// the order of adding does not matter.
type sums struct {
	all      []int64                 // the array of which the series below are parts
	latency  histogram               // of the calls that succeeded
	offered  []int64                 // calls that began, for each bucket
	load     []int64                 // attempts that reached the last service
	goodput  []int64                 // calls that ended with a success
	waiting  []int64                 // calls in queues at the end of the bucket
	retries  []int64                 // attempts of the clients, without first attempts
	attempts [heatRows][]int64       // attempts of the clients, by their number
	reasons  [reasons]int64          // calls by the reason they ended for, 0 for success
	classes  [limit.Classes][2]int64 // calls that began and that succeeded, by priority
}

// reasons is an upper bound of the number of [retry.Reason] values.
const reasons = 32

// heatRows is the number of rows of Series.Attempts. The last row also counts all
// later attempts.
const heatRows = 10

// spares are recorders of runs that have ended: at most as many as there were workers.
type spares struct {
	mu   sync.Mutex
	list []*recorder
}

func (s *spares) put(r *recorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, r)
}

// take returns a recorder; nil if there is none.
func (s *spares) take() *recorder {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.list)
	if n == 0 {
		return nil
	}
	r := s.list[n-1]
	s.list = s.list[:n-1]
	return r
}

// newRecorder returns a recorder with the memory of one that was released, if there is one.
func newRecorder(p *plan) recorder {
	bucket := int64(p.scenario.bucket())
	r := recorder{bucket: bucket, edge: bucket, duration: int64(p.scenario.Duration), outages: p.outages}
	if old := p.ended.take(); old != nil {
		clear(old.all)
		clear(old.byStart)
		r.sums, r.byStart = newSums(old.all), old.byStart
		r.latency.counts = old.latency.counts[:0]
		return r
	}
	n := int(int64(p.scenario.length())/bucket) + 1
	r.sums, r.byStart = newSums(make([]int64, n*(5+heatRows))), make([][2]int32, r.duration/step+1)
	return r
}

func newSums(all []int64) sums {
	n, rest := len(all)/(5+heatRows), all
	cut := func() (s []int64) {
		s, rest = rest[:n:n], rest[n:]
		return s
	}
	s := sums{all: all, offered: cut(), load: cut(), goodput: cut(), waiting: cut(), retries: cut()}
	for i := range s.attempts {
		s.attempts[i] = cut()
	}
	return s
}

// add adds the sums of another run.
func (s *sums) add(o *sums) {
	s.latency.add(&o.latency)
	for i, n := range o.classes {
		s.classes[i][0] += n[0]
		s.classes[i][1] += n[1]
	}
	for i, n := range o.reasons {
		s.reasons[i] += n
	}
	for i, n := range o.all {
		s.all[i] += n
	}
}

// sampleQueue records the queue length at every bucket edge up to now.
func (r *recorder) sampleQueue(now int64, waiting int) {
	for ; r.edge <= now; r.edge += r.bucket {
		r.waiting[r.edge/r.bucket-1] = int64(waiting)
	}
}

// bucketAt returns the index of the bucket of the time. Nearly always that is the
// bucket of the call before, which saves a division.
func (r *recorder) bucketAt(now int64) int {
	if uint64(now-r.begins) >= uint64(r.bucket) {
		r.index = int(now / r.bucket)
		r.begins = int64(r.index) * r.bucket
	}
	return r.index
}

// recordCall records that a client began a call.
func (r *recorder) recordCall(now int64) {
	r.started++
	r.offered[r.bucketAt(now)]++
	r.byStart[now/step][0]++
	if r.duringOutage(now) {
		r.outageCalls++
	}
}

// duringOutage reports whether an outage lasts at the time.
func (r *recorder) duringOutage(at int64) bool {
	for i := range r.outages {
		if r.outages[i].covers(time.Duration(at)) {
			return true
		}
	}
	return false
}

// recordAttempt records the n-th attempt of a client's call.
func (r *recorder) recordAttempt(now int64, n int) {
	r.attempts++
	bucket := r.bucketAt(now)
	r.sums.attempts[min(n, heatRows)-1][bucket]++
	if n > 1 {
		r.retries[bucket]++
	}
}

// recordLoad records that an attempt reached a service that calls no other.
func (r *recorder) recordLoad(now int64) {
	r.load++
	r.sums.load[r.bucketAt(now)]++
}

// recordEnd records the end of a client's call. A reason of 0 means success.
func (r *recorder) recordEnd(start, now int64, why retry.Reason) {
	r.done++
	r.lastEnd = now
	r.reasons[why]++
	if why != 0 {
		r.failedTime += float64(now - start)
		return
	}
	r.good++
	if now <= r.duration {
		r.goodInTime++
	}
	r.goodput[r.bucketAt(now)]++
	r.byStart[start/step][1]++
	if r.duringOutage(start) {
		r.outageGood++
	}
	r.latency.record(now - start)
}

// recordClient records a client's number of calls, and how many succeeded.
func (r *recorder) recordClient(calls, succeeded int) {
	if calls == 0 {
		return
	}
	r.active++
	x := float64(succeeded) / float64(calls)
	r.sum += x
	r.sumSq += x * x
}

// measure computes the measures of the run. A measure without a value is NaN.
func (r *recorder) measure(p *plan) Measures[float64] {
	m := Measures[float64]{
		Calls:          float64(r.started),
		Success:        ratio(r.good, r.started),
		OutageCalls:    float64(r.outageCalls),
		OutageSuccess:  ratio(r.outageGood, r.outageCalls),
		All:            float64(boolToInt(r.good == r.started)),
		Goodput:        float64(r.goodInTime) / p.scenario.Duration.Seconds(),
		Amplification:  ratio(r.load, r.started),
		Hedges:         ratio(r.hedges, r.started),
		Unfinished:     ratio(r.started-r.done, r.started),
		Wasted:         float64(r.wasted) / float64(r.work),
		CallsPerClient: ratio(r.attempts+r.hedges, r.active),
		Fairness:       r.sum * r.sum / (float64(r.active) * r.sumSq),
		Last:           seconds(r.lastEnd),
		GiveUp:         r.failedTime / float64(r.done-r.good) / float64(time.Second),
		Recovery:       r.recovery(p),
	}
	m.Peak, m.PeakRatio = peak(r.sums.load)
	m.PeakRetries, _ = peak(r.retries)
	m.P50, m.P99, m.P999 = r.latency.seconds(0.5), r.latency.seconds(0.99), r.latency.seconds(0.999)
	return m
}

func ratio(a, b int) float64 { return float64(a) / float64(b) }

func seconds(ns int64) float64 { return time.Duration(ns).Seconds() }

// peak returns the largest number of a series, and its ratio to the mean of the
// numbers from the first to the last one that is not zero.
func peak(series []int64) (top, over float64) {
	first, last, sum := -1, 0, int64(0)
	for i, n := range series {
		top = max(top, float64(n))
		sum += n
		if n > 0 {
			last = i
			if first < 0 {
				first = i
			}
		}
	}
	return top, top * float64(last-first+1) / float64(sum)
}

// A run has recovered when, in each of healthySeconds seconds in a row, at least
// healthyShare of the calls that begin in that second succeed.
const (
	healthyShare   = 0.95
	healthySeconds = 3
)

// recovery returns the time in seconds from the end of the last failure to the first
// of the healthy seconds; NaN if the run never recovered. For herds, writers and
// groups, whose calls all begin at once, it is the time until healthyShare of the
// calls have succeeded.
func (r *recorder) recovery(p *plan) float64 {
	if p.scenario.Writers != nil || p.scenario.Group != nil || p.scenario.Clients.Arrivals == Herd {
		return r.timeToCatchUp(p)
	}
	per := int(int64(time.Second) / step)
	failuresEnd := int((int64(p.failuresEnd) + step - 1) / step)
	for t := failuresEnd; t+healthySeconds*per <= int(int64(p.scenario.Duration)/step); t++ {
		if r.isHealthy(t, per) {
			return seconds(int64(t)*step - int64(p.failuresEnd))
		}
	}
	return math.NaN()
}

// isHealthy reports whether each of the healthySeconds seconds from step t on is
// healthy; per is the number of steps in a second. A second in which no call begins
// is healthy. But if no call begins in any of the seconds, isHealthy returns false:
// all clients may be waiting for an answer.
func (r *recorder) isHealthy(t, per int) bool {
	calls := int32(0)
	for s := range healthySeconds {
		began, good := int32(0), int32(0)
		for _, n := range r.byStart[t+s*per : t+(s+1)*per] {
			began += n[0]
			good += n[1]
		}
		if float64(good) < healthyShare*float64(began) {
			return false
		}
		calls += began
	}
	return calls > 0
}

// timeToCatchUp returns the seconds from the end of the last failure until
// healthyShare of all calls had succeeded; NaN if that never happened.
func (r *recorder) timeToCatchUp(p *plan) float64 {
	good := int64(0)
	for i, n := range r.goodput {
		if good += n; float64(good) >= healthyShare*float64(r.started) {
			return seconds(max(int64(i+1)*r.bucket-int64(p.failuresEnd), 0))
		}
	}
	return math.NaN()
}
