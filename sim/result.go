package sim

import (
	"math"
	"slices"
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

// Report has the results of all contestants. The same scenario, contestants,
// seed and number of seeds give the same report, byte for byte.
type Report struct {
	Scenario string   `json:"scenario"`
	Seed     uint64   `json:"seed"`
	Seeds    int      `json:"seeds"`
	Bucket   float64  `json:"bucket_s"` // width of the buckets of peaks and series, in seconds
	Events   int      `json:"events"`   // simulated events of all runs together
	Results  []Result `json:"results"`  // in the order of the contestants
}

// Result is the result of a contestant.
type Result struct {
	Name   string `json:"name"`
	Policy string `json:"policy"`

	Measures[Estimate]
	NeverRecovers float64 `json:"never_recovers"` // share of the seeds

	// Versus is each measure minus that of the first contestant, computed seed
	// by seed. Both got the same arrivals, service times and failures, so the
	// intervals are much narrower than those of the measures. A difference is
	// significant if its interval does not contain zero.
	Versus *Measures[Estimate] `json:"versus,omitempty"`

	// GaveUp is the share of all calls that gave up, by reason; see
	// [retry.Reason].
	GaveUp map[string]float64 `json:"gave_up"`

	// ByPriority is the share of the calls of each class that succeeded, if the
	// clients have priorities.
	ByPriority map[string]float64 `json:"by_priority,omitempty"`

	Series Series  `json:"series"`
	CDF    []Point `json:"cdf"` // latency of the calls that succeeded, all seeds together
}

// Measures are the numbers of a run. Times are in seconds.
type Measures[T any] struct {
	Calls          T `json:"calls"`            // begun by the clients
	Success        T `json:"success"`          // share of them that succeeded
	OutageCalls    T `json:"outage_calls"`     // begun by the clients during an outage
	OutageSuccess  T `json:"outage_success"`   // share of these that succeeded, during the outage or after it
	All            T `json:"all"`              // 1 if all succeeded, else 0; the mean is the share of the seeds in which all did
	Unfinished     T `json:"unfinished"`       // share of them that had not ended when the run ended
	Goodput        T `json:"goodput"`          // calls that succeeded before the drain, per second of Scenario.Duration
	Amplification  T `json:"amplification"`    // attempts that reached the last service, per call
	Hedges         T `json:"hedges"`           // hedges per call
	Peak           T `json:"peak"`             // most attempts that reached the last service in a bucket
	PeakRatio      T `json:"peak_ratio"`       // Peak divided by the mean of the buckets from the first attempt to the last
	PeakRetries    T `json:"peak_retries"`     // most attempts of the clients in a bucket, first attempts not counted
	Recovery       T `json:"recovery_s"`       // time from the end of the last failure to recovery; only of the seeds that recovered
	Wasted         T `json:"wasted"`           // share of the work whose caller was gone
	P50            T `json:"p50_s"`            // median latency of the calls that succeeded
	P99            T `json:"p99_s"`            // 99th percentile of that latency
	P999           T `json:"p999_s"`           // 99.9th percentile of that latency
	GiveUp         T `json:"give_up_s"`        // mean duration of the calls that failed
	CallsPerClient T `json:"calls_per_client"` // attempts and hedges per client that called
	Fairness       T `json:"fairness"`         // Jain's index of the clients' shares of success; 1 is fair
	Last           T `json:"last_s"`           // when the last call ended
}

// fields lists the measures, always in the same order.
func (m *Measures[T]) fields() []*T {
	return []*T{
		&m.Calls, &m.Success, &m.OutageCalls, &m.OutageSuccess, &m.All, &m.Unfinished, &m.Goodput, &m.Amplification, &m.Hedges, &m.Peak, &m.PeakRatio, &m.PeakRetries,
		&m.Recovery, &m.Wasted, &m.P50, &m.P99, &m.P999, &m.GiveUp, &m.CallsPerClient, &m.Fairness, &m.Last,
	}
}

// summarise turns the measures of each seed into estimates.
func summarise(runs []Measures[float64]) (all Measures[Estimate]) {
	values := make([]float64, len(runs))
	for i, to := range all.fields() {
		for n := range runs {
			values[n] = *runs[n].fields()[i]
		}
		*to = estimate(values)
	}
	return all
}

// differences returns the measures of runs minus those of base, seed by seed.
func differences(runs, base []Measures[float64]) []Measures[float64] {
	d := slices.Clone(runs)
	for n := range d {
		of := base[n].fields()
		for i, to := range d[n].fields() {
			*to -= *of[i]
		}
	}
	return d
}

// Series are measures over time, the mean of all seeds: one value for each
// bucket.
type Series struct {
	Offered []float64 `json:"offered"` // calls that began in the bucket
	Load    []float64 `json:"load"`    // attempts that reached the last service in the bucket
	Goodput []float64 `json:"goodput"` // calls that succeeded in the bucket, whenever they began
	Waiting []float64 `json:"waiting"` // calls in queues at the end of the bucket

	// Attempts counts the clients' attempts: the first row the first attempts,
	// the second row the second attempts, and so on. The tenth row, if there is
	// one, counts the tenth and all later attempts.
	Attempts [][]float64 `json:"attempts"`
}

// Point is a point of a distribution: this share of the calls took at most this
// many seconds.
type Point struct {
	Seconds float64 `json:"s"`
	Share   float64 `json:"share"`
}

// gaveUp returns the share of the calls that gave up for each reason.
func (s *sums) gaveUp() map[string]float64 {
	calls := int64(0)
	for _, n := range s.offered {
		calls += n
	}
	shares := map[string]float64{}
	for why, n := range s.reasons[1:] {
		if n > 0 {
			shares[retry.Reason(why+1).String()] = float64(n) / float64(calls)
		}
	}
	return shares
}

// byPriority returns the share of the calls of each class that succeeded.
func (s *sums) byPriority() map[string]float64 {
	shares := map[string]float64{}
	for class, n := range s.classes {
		if n[0] > 0 {
			shares[(limit.Lowest + limit.Priority(class)).String()] = float64(n[1]) / float64(n[0])
		}
	}
	return shares
}

// series returns the means over the seeds. It omits the last rows of Attempts
// if no such attempts were made.
func (s *sums) series(seeds int) Series {
	r := Series{
		Offered: mean(s.offered, seeds), Load: mean(s.load, seeds),
		Goodput: mean(s.goodput, seeds), Waiting: mean(s.waiting, seeds),
		Attempts: [][]float64{},
	}
	rows := heatRows
	for rows > 0 && slices.Max(s.attempts[rows-1]) == 0 {
		rows--
	}
	for _, row := range s.attempts[:rows] {
		r.Attempts = append(r.Attempts, mean(row, seeds))
	}
	return r
}

func mean(sum []int64, n int) []float64 {
	m := make([]float64, len(sum))
	for i, v := range sum {
		m[i] = float64(v) / float64(n)
	}
	return m
}

// cdf returns the points of the distribution at every per cent, and at some
// quantiles above 99 %.
func (h *histogram) cdf() []Point {
	points := []Point{}
	slot, below := 0, int64(0) // the slot of the last point, and how many values are in those before it
	add := func(share float64) {
		if h.total == 0 {
			return
		}
		for rank := h.rank(share); below+h.counts[slot] <= rank; slot++ {
			below += h.counts[slot]
		}
		points = append(points, Point{Seconds: middle(slot) / float64(time.Second), Share: share})
	}
	for i := range 100 {
		add(float64(i) / 100)
	}
	add(0.995)
	add(0.999)
	add(0.9999)
	add(1)
	return points
}

// report returns the results of all contestants.
func (t *tournament) report() *Report {
	r := &Report{
		Scenario: t.plan.scenario.Name, Seed: t.options.Seed, Seeds: t.options.Seeds,
		Bucket: t.plan.scenario.bucket().Seconds(), Events: t.events,
	}
	for i := range t.contestants {
		r.Results = append(r.Results, t.result(i))
	}
	return r
}

func (t *tournament) result(i int) Result {
	c, s := &t.contestants[i], &t.sums[i]
	r := Result{
		Name: c.Name, Policy: c.Policy.String(), Measures: summarise(t.runs[i]), NeverRecovers: lost(t.runs[i]),
		GaveUp: s.gaveUp(), Series: s.series(t.options.Seeds), CDF: s.latency.cdf(),
	}
	if t.plan.prioritised {
		r.ByPriority = s.byPriority()
	}
	if i > 0 {
		d := summarise(differences(t.runs[i], t.runs[0]))
		r.Versus = &d
	}
	return r
}

// lost returns the share of the runs that never recovered.
func lost(runs []Measures[float64]) float64 {
	n := 0
	for _, m := range runs {
		if math.IsNaN(m.Recovery) {
			n++
		}
	}
	return ratio(n, len(runs))
}
