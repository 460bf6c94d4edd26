package health

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tideover/tideover/backoff"
)

var evaluate = flag.Bool("evaluate", false, "print the evaluation of the recovery estimate (with -v)")

// law is a distribution of outages: it draws the length of the i-th of n outages, in
// seconds.
type law struct {
	name string
	draw func(r *rand.Rand, i, n int) float64
}

func lognormal(r *rand.Rand, median, sigma float64) float64 {
	return median * math.Exp(sigma*r.NormFloat64())
}

var laws = []law{
	{"exponential, mean 60 s", func(r *rand.Rand, _, _ int) float64 { return 60 * r.ExpFloat64() }},
	{"lognormal, median 30 s, sigma 1.2", func(r *rand.Rand, _, _ int) float64 { return lognormal(r, 30, 1.2) }},
	{"Weibull, shape 0.5, scale 30 s", func(r *rand.Rand, _, _ int) float64 { x := r.ExpFloat64(); return 30 * x * x }},
	{"bimodal: 70 % 5 s, 30 % 300 s, each ±20 %", func(r *rand.Rand, _, _ int) float64 {
		if r.Float64() < 0.7 {
			return lognormal(r, 5, 0.2)
		}
		return lognormal(r, 300, 0.2)
	}},
	{"fixed, 60 s", func(*rand.Rand, int, int) float64 { return 60 }},
	{"drift: median 10 s, then 200 s, sigma 0.3", func(r *rand.Rand, i, n int) float64 {
		if i < n/2 {
			return lognormal(r, 10, 0.3)
		}
		return lognormal(r, 200, 0.3)
	}},
}

// outages draws n lengths of outages. With the same seed every policy gets the same
// lengths.
func (l law) outages(seed uint64, n int) []time.Duration {
	r := rand.New(rand.NewPCG(seed, 1))
	list := make([]time.Duration, n)
	for i := range list {
		list[i] = max(seconds(l.draw(r, i, n)), ms)
	}
	return list
}

// prober returns the time until the k-th probe, after elapsed.
type prober interface {
	next(k int, elapsed time.Duration, u uint64) time.Duration
	over(lastFailure, firstSuccess time.Duration)
}

type plainProber backoff.Schedule

func (p *plainProber) next(k int, _ time.Duration, u uint64) time.Duration {
	return (*backoff.Schedule)(p).Delay(k, 0, u)
}
func (*plainProber) over(_, _ time.Duration) {}

type recoveryProber struct {
	r     *Recovery
	learn bool
}

func (p recoveryProber) next(_ int, elapsed time.Duration, u uint64) time.Duration {
	return p.r.Next(elapsed, u)
}

func (p recoveryProber) over(lastFailure, firstSuccess time.Duration) {
	if p.learn {
		p.r.Observe(lastFailure, firstSuccess)
	}
}

// meanCost returns the mean cost of an outage in seconds: a second for each
// probe plus the time from the recovery to the probe that notices it.
func meanCost(p prober, outages []time.Duration, seed uint64) float64 {
	r := rand.NewPCG(seed, 2)
	total := 0.0
	for _, length := range outages {
		last, at := time.Duration(0), p.next(1, 0, r.Uint64())
		for k := 2; at < length; k++ {
			total++
			last, at = at, at+p.next(k, at, r.Uint64())
		}
		total += 1 + (at - length).Seconds()
		p.over(last, at)
	}
	return total / float64(len(outages))
}

// bestSchedule returns the exponential schedule that costs least on exactly
// these outages: a bound that needs knowledge of the future.
func bestSchedule(runs [][]time.Duration) (best backoff.Schedule, cost float64) {
	cost = math.Inf(1)
	for base := 0.25; base <= 256; base *= math.Sqrt2 {
		for _, factor := range []float64{1, 1.1, 1.25, 1.5, 2, 3} {
			for _, limit := range []float64{10, 20, 40, 80, 160, 1e6} {
				s := backoff.Schedule{
					Kind: backoff.Exponential, Base: seconds(base), Cap: seconds(max(limit, base)), Factor: factor,
					Jitter: backoff.PlusMinus(0.2),
				}
				sum := 0.0
				for seed, run := range runs {
					sum += meanCost((*plainProber)(&s), run, uint64(seed))
				}
				if mean := sum / float64(len(runs)); mean < cost {
					best, cost = s, mean
				}
			}
		}
	}
	return best, cost
}

// interval is a mean with half the width of its 95 % interval.
type interval struct{ mean, half float64 }

func (i interval) String() string { return fmt.Sprintf("%+.2f ± %.2f", i.mean, i.half) }

// paired returns the interval of the differences a-b.
func paired(a, b []float64) interval {
	n := float64(len(a))
	sum, squares := 0.0, 0.0
	for i := range a {
		d := a[i] - b[i]
		sum += d
		squares += d * d
	}
	mean := sum / n
	// 2.05 is Student's factor for 29 degrees of freedom; below that it is too
	// small, and nothing is claimed there.
	return interval{mean, 2.05 * math.Sqrt(max(squares/n-mean*mean, 0)/(n-1))}
}

func mean(list []float64) (m float64) {
	for _, x := range list {
		m += x / float64(len(list))
	}
	return m
}

// results are the costs of one law, a number for each seed.
type results struct{ plain, tuned, prior, learned []float64 }

func run(t *testing.T, l law, seeds, n int, tune bool) (res results, best backoff.Schedule) {
	t.Helper()
	runs := make([][]time.Duration, seeds)
	for i := range runs {
		runs[i] = l.outages(uint64(i), n)
	}
	if tune {
		best, _ = bestSchedule(runs)
	}
	plain := RecoveryConfig{}.withDefaults().Backoff
	for i, outages := range runs {
		seed := uint64(i)
		res.plain = append(res.plain, meanCost((*plainProber)(&plain), outages, seed))
		if tune {
			res.tuned = append(res.tuned, meanCost((*plainProber)(&best), outages, seed))
		}
		res.prior = append(res.prior, meanCost(recoveryProber{new(Recovery), false}, outages, seed))
		res.learned = append(res.learned, meanCost(recoveryProber{new(Recovery), true}, outages, seed))
	}
	return res, best
}

// TestEvaluate prints the table of docs/health.md with -evaluate. Otherwise it
// runs fewer outages and checks only large differences.
func TestEvaluate(t *testing.T) {
	if !*evaluate {
		evaluateBriefly(t)
		return
	}
	const seeds, n = 30, 200
	fmt.Printf("cost of an outage in seconds (probes × 1 s + delay), mean of %d seeds × %d outages; ± is a paired 95 %% interval\n\n", seeds, n)
	fmt.Println("| outages | default | tuned in hindsight | prior only | learned | learned − default | learned − tuned | tuned schedule |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, l := range laws {
		res, best := run(t, l, seeds, n, true)
		fmt.Printf("| %s | %.2f | %.2f | %.2f | %.2f | %v | %v | %v ×%g ≤ %v |\n", l.name,
			mean(res.plain), mean(res.tuned), mean(res.prior), mean(res.learned),
			paired(res.learned, res.plain), paired(res.learned, res.tuned),
			best.Base.Round(ms), best.Factor, best.Cap.Round(ms))
	}
}

func evaluateBriefly(t *testing.T) {
	t.Helper()
	for _, l := range laws {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			res, _ := run(t, l, 10, 60, false)
			if d := paired(res.learned, res.plain); d.mean+3*d.half > 0 {
				t.Errorf("learned − default = %v, want it below zero beyond doubt", d)
			}
		})
	}
}
