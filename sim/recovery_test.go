package sim

import (
	"math"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
)

func TestRecovery(t *testing.T) {
	s := Scenario{Name: "x", Duration: 30 * second, Clients: Clients{Arrivals: Open}, Failures: []Failure{{Until: 10 * second}}}
	tests := []struct {
		name    string
		healthy func(at time.Duration) float64 // share of the calls that succeed
		want    float64                        // seconds
	}{
		{"at once", func(time.Duration) float64 { return 1 }, 0},
		{"after a while", func(at time.Duration) float64 { return share(at >= 14*second) }, 4},
		{"between two steps", func(at time.Duration) float64 { return share(at >= 14260*ms) }, 4.3},
		{"two good seconds are not enough", func(at time.Duration) float64 {
			return share(at >= 12*second && at < 14*second || at >= 20*second)
		}, 10},
		{"a little trouble does not matter", func(time.Duration) float64 { return 0.95 }, 0},
		{"more does", func(time.Duration) float64 { return 0.94 }, math.NaN()},
		{"never", func(at time.Duration) float64 { return share(at < 10*second) }, math.NaN()},
		{"too late to be sure", func(at time.Duration) float64 { return share(at >= 27500*ms) }, math.NaN()},
	}
	for _, tt := range tests {
		p := newPlan(s)
		r := newRecorder(p)
		for at := time.Duration(0); at < s.Duration; at += ms {
			r.recordCall(int64(at))
			why := retry.StopAttempts
			if float64(at/ms%100)/100 < tt.healthy(at) {
				why = 0
			}
			r.recordEnd(int64(at), int64(at), why)
		}
		if got := r.recovery(p); math.Abs(got-tt.want) > 1e-9 || math.IsNaN(got) != math.IsNaN(tt.want) {
			t.Errorf("%s: recovers after %v s, want %v", tt.name, got, tt.want)
		}
	}
}

func share(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func TestAHerdHasRecoveredWhenItIsServed(t *testing.T) {
	s := steadyLoad(0, Service{Workers: 1, Latency: constant(100 * ms)}, Failure{Kind: Outage, Until: 2 * second})
	s.Clients = Clients{Count: 100, Arrivals: Herd}
	s.Bucket = 100 * ms
	r := runOne(t, s, "fixed(5s) attempts=2")
	if want := 5 - 2 + 9.6; math.Abs(r.Recovery.Mean-want) > 1e-9 { // the 95th answer comes at 5.001 s + 9.5 s
		t.Errorf("recovers %v s after the outage, want %v", r.Recovery.Mean, want)
	}
}

func TestPeak(t *testing.T) {
	tests := []struct {
		series    []int64
		top, over float64
	}{
		{[]int64{0, 0, 2, 6, 0, 4, 0}, 6, 2},
		{[]int64{5}, 5, 1},
		{[]int64{0, 0}, 0, math.NaN()},
	}
	for _, tt := range tests {
		top, over := peak(tt.series)
		if top != tt.top || over != tt.over && !(math.IsNaN(over) && math.IsNaN(tt.over)) {
			t.Errorf("peak(%v) = %v, %v, want %v, %v", tt.series, top, over, tt.top, tt.over)
		}
	}
}

func TestSeriesAddUp(t *testing.T) {
	s, _ := Preset("brownout")
	s.Duration = 60 * second
	r := runOne(t, s, "fixed(100ms) attempts=3 attempt-timeout=1s")
	sum := func(series []float64) (n float64) {
		for _, v := range series {
			n += v
		}
		return n
	}
	attempts := 0.0
	for _, row := range r.Series.Attempts {
		attempts += sum(row)
	}
	calls := r.Calls.Mean
	if sum(r.Series.Offered) != calls || math.Abs(sum(r.Series.Goodput)-calls*r.Success.Mean) > 1 ||
		math.Abs(sum(r.Series.Load)-calls*r.Amplification.Mean) > 20 || attempts != sum(r.Series.Load) {
		t.Errorf("%v calls, success %v, amplification %v; offered %v, goodput %v, load %v, attempts %v", calls, r.Success.Mean,
			r.Amplification.Mean, sum(r.Series.Offered), sum(r.Series.Goodput), sum(r.Series.Load), attempts)
	}
	if len(r.Series.Attempts) != 3 || len(r.Series.Waiting) != 121 || sum(r.Series.Waiting) == 0 {
		t.Errorf("%d rows of attempts, %d buckets of waiting", len(r.Series.Attempts), len(r.Series.Waiting))
	}
}

func TestGoodputLeavesOutTheDrain(t *testing.T) {
	t.Parallel()
	s := steadyLoad(100, Service{Latency: constant(ms)}) // a minute, and another one to drain
	r := run(t, s, 1, contestant(t, "fixed(0s)"))[0]
	if want := r.Calls.Mean / 60; r.Success.Mean != 1 || r.Goodput.Mean != want {
		t.Errorf("goodput %v of %v calls that succeed, want %v", r.Goodput.Mean, r.Calls.Mean, want)
	}
}
