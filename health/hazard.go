package health

import (
	"math"
	"time"
)

// The bins of a hazard: one up to the first edge, then binsPerOctave for each
// doubling, from a tenth of a second to 29 hours.
const (
	firstEdge     = 0.1 // seconds
	binsPerOctave = 4
	bins          = 20*binsPerOctave + 1
)

// The prior estimate, which counts like priorOutages observed outages in each bin: an
// outage of age t ends at the rate priorRate/t. So an outage that has lasted long is
// expected to last long.
const (
	priorRate    = 0.3
	priorOutages = 1.0
)

// evidenceDecay is the factor by which all older evidence shrinks at each
// outage: about the last fifty outages count.
const evidenceDecay = 0.98

// binEdges are the upper ends of the bins in seconds.
var binEdges = func() (edges [bins]float64) {
	for i := range edges {
		edges[i] = firstEdge * math.Exp2(float64(i)/binsPerOctave)
	}
	return edges
}()

// hazard is the evidence about how long outages last: for each bin the outages
// that ended in it, and the seconds that outages spent in it. The rate at which
// outages end in a bin is a Gamma variable with this evidence.
type hazard struct {
	outages float64 // number of observed outages, decayed like the rest
	ended   [bins]float64
	spent   [bins]float64
}

// binOf returns the bin that contains t; bins if t is beyond the last one.
func binOf(t float64) int {
	if t < firstEdge {
		return 0
	}
	if t >= binEdges[bins-1] {
		return bins
	}
	i := min(1+int(math.Log2(t/firstEdge)*binsPerOctave), bins-1)
	// The logarithm may round to the wrong side of an edge.
	for i > 0 && t < binEdges[i-1] {
		i--
	}
	for i < bins-1 && t >= binEdges[i] {
		i++
	}
	return i
}

// binStart returns the lower end of bin i in seconds.
func binStart(i int) float64 {
	if i == 0 {
		return 0
	}
	return binEdges[i-1]
}

// rate returns the mean rate, per second, at which outages end in bin i. Beyond the
// last bin it is the rate of the prior at the last edge.
func (z *hazard) rate(i int) float64 {
	if i >= bins {
		return priorRate / binEdges[bins-1]
	}
	width := binEdges[i] - binStart(i)
	expected := priorRate * math.Ln2 / binsPerOctave // the integral of priorRate/t over a bin
	if i == 0 {
		expected = priorRate
	}
	return (priorOutages*expected + z.ended[i]) / (priorOutages*width + z.spent[i])
}

// walk calls f for each bin, or part of a bin, after the time t, with its start and
// length in seconds and its rate. The last part is beyond the last bin and has an
// infinite length. walk stops when f returns false.
func (z *hazard) walk(t float64, f func(i int, start, length, rate float64) bool) {
	for i := binOf(t); i < bins; i++ {
		start := max(t, binStart(i))
		if !f(i, start, binEdges[i]-start, z.rate(i)) {
			return
		}
	}
	f(bins, max(t, binEdges[bins-1]), math.Inf(1), z.rate(bins))
}

// gap returns the time g from t to the next probe, at most longest. It is the g
// for which g times the hazard within the gap is twice the cost of a probe:
// sqrt(2·cost/rate) where the rate is constant. A shorter gap would cost more
// probes than the earlier notice is worth; a longer gap would delay the notice by
// more than the probes are worth. It uses the hazard of the whole gap, not the
// rate at its start, so that the gap ends before a peak of the hazard.
func (z *hazard) gap(t, cost, longest float64) (g float64) {
	g = longest
	sum := 0.0
	z.walk(t, func(_ int, start, length, rate float64) bool {
		s := start - t
		// (s+x)·(sum+rate·x) = 2·cost, solved for x >= 0.
		b, c := sum+rate*s, sum*s-2*cost
		x := 0.0
		if c < 0 {
			x = -2 * c / (b + math.Sqrt(b*b-4*rate*c))
		}
		if x <= length || s+length >= longest {
			g = min(s+x, longest)
			return false
		}
		sum += rate * length
		return true
	})
	return g
}

// remaining returns the further time within which an outage that has lasted t ends
// with the probability p.
func (z *hazard) remaining(t, p float64) (left float64) {
	need := -math.Log1p(-p)
	z.walk(t, func(i int, start, length, rate float64) bool {
		if i == bins { // the tail: priorRate/t for ever
			left = start*math.Exp(need/priorRate) - t
			return false
		}
		if need <= rate*length {
			left = start + need/rate - t
			return false
		}
		need -= rate * length
		return true
	})
	return left
}

// observe counts an outage that still lasted at the time from and was over at the
// time to. Its exact end is unknown, so observe spreads the end over the bins in
// between, in proportion to the estimate so far.
func (z *hazard) observe(from, to float64) {
	old := *z
	for i := range bins {
		z.ended[i] *= evidenceDecay
		z.spent[i] *= evidenceDecay
	}
	z.outages = z.outages*evidenceDecay + 1
	for i := range min(binOf(from)+1, bins) {
		z.spent[i] += max(min(binEdges[i], from)-binStart(i), 0)
	}
	total := -math.Expm1(-old.between(from, to))
	alive := 1.0
	old.walk(from, func(i int, start, length, rate float64) bool {
		if i == bins || start >= to {
			return false
		}
		length = min(length, to-start)
		end := alive * -math.Expm1(-rate*length)
		alive -= end
		p, later := min(end/total, 1), max(1-(1-alive)/total, 0)
		z.ended[i] += p
		z.spent[i] += length * (p/2 + later)
		return true
	})
}

// between returns the integral of the rate between two times.
func (z *hazard) between(from, to float64) (sum float64) {
	z.walk(from, func(_ int, start, length, rate float64) bool {
		if start >= to {
			return false
		}
		sum += rate * min(length, to-start)
		return true
	})
	return sum
}

// valid reports whether observations can lead to this state. It is for states
// that were loaded from a file.
func (z *hazard) valid() bool {
	const most = 1/(1-evidenceDecay) + 1
	ok := z.outages >= 0 && z.outages <= most // false for NaN
	for i := range bins {
		ok = ok && z.ended[i] >= 0 && z.ended[i] <= most && z.spent[i] >= 0 && z.spent[i] <= most*(binEdges[i]-binStart(i))*1.001
	}
	return ok
}

// seconds converts to a duration, limited to the largest one.
func seconds(s float64) time.Duration {
	if ns := s * float64(time.Second); ns < math.MaxInt64 {
		return time.Duration(ns)
	}
	return math.MaxInt64
}
