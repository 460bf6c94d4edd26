package sim

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
)

// singleCall is one client that calls once, at the start.
func singleCall(v Service, failures ...Failure) Scenario {
	v.Name = "service"
	return Scenario{
		Name: "alone", Duration: time.Minute, Drain: time.Hour, Bucket: second,
		Clients: Clients{Count: 1, Arrivals: Herd}, Services: []Service{v}, Failures: failures,
	}
}

// steadyLoad is many clients that call a service at a rate.
func steadyLoad(rate float64, v Service, failures ...Failure) Scenario {
	v.Name = "service"
	return Scenario{
		Name: "busy", Duration: time.Minute, Drain: time.Minute, Bucket: second,
		Clients: Clients{Count: 100, Arrivals: Open, Rate: rate}, Services: []Service{v}, Failures: failures,
	}
}

func constant(d time.Duration) Latency { return Latency{Distribution: Constant, Mean: d} }

// runOne returns the result of a single contestant over a few seeds.
func runOne(t *testing.T, s Scenario, text string) Result {
	t.Helper()
	return run(t, s, 2, contestant(t, text))[0]
}

func TestAttemptsBeginWhenThePolicySays(t *testing.T) {
	const work = 250 * ms
	down := Failure{Kind: Outage, Until: 3500 * ms}
	hole := Failure{Kind: BlackHole, Until: 3500 * ms, Share: 1}
	tests := []struct {
		name, policy string
		failure      Failure
		last         time.Duration
		attempts     float64
		success      float64
	}{
		{"refused four times, a millisecond each", "fixed(1s) attempts=9", down, 4004*ms + work, 5, 1},
		{"gives up", "fixed(1s) attempts=3", down, 2003 * ms, 3, 0},
		{"never answered until the timeout", "fixed(1s) attempts=9 attempt-timeout=1s", hole, 4000*ms + work, 3, 1},
		{"the total timeout ends the attempt", "fixed(1s) attempts=9 attempt-timeout=1s total-timeout=2500ms", hole, 2500 * ms, 2, 0},
		{"the total timeout is too close for a wait", "fixed(1s) attempts=9 total-timeout=2500ms", down, 2003 * ms, 3, 0},
	}
	for _, tt := range tests {
		r := runOne(t, singleCall(Service{Latency: constant(work)}, tt.failure), tt.policy)
		if r.Last.Mean != tt.last.Seconds() || r.CallsPerClient.Mean != tt.attempts || r.Success.Mean != tt.success {
			t.Errorf("%s: ends at %v s after %v attempts with success %v, want %v, %v, %v",
				tt.name, r.Last.Mean, r.CallsPerClient.Mean, r.Success.Mean, tt.last.Seconds(), tt.attempts, tt.success)
		}
	}
}

func TestACallThatIsNeverAnsweredIsUnfinished(t *testing.T) {
	r := runOne(t, singleCall(Service{Latency: constant(ms)}, Failure{Kind: BlackHole, Share: 1}), "fixed(1s) attempts=3")
	if r.Unfinished.Mean != 1 || r.Success.Mean != 0 || r.NeverRecovers != 1 || r.P50.N != 0 {
		t.Errorf("unfinished %v, success %v, never recovers %v, p50 %+v", r.Unfinished.Mean, r.Success.Mean, r.NeverRecovers, r.P50)
	}
}

func TestWorkWhoseCallerHasGoneIsDoneInVain(t *testing.T) {
	// 10 workers for 100 ms are 100/s. They stop while 1000 calls come and go.
	v := Service{Workers: 10, Latency: constant(100 * ms)}
	stop := Failure{Kind: Capacity, From: 10 * second, Until: 30 * second}
	without := runOne(t, steadyLoad(50, v, stop), "fixed(0s) attempt-timeout=1s")
	v.Deadlines = true
	dropped := runOne(t, steadyLoad(50, v, stop), "fixed(0s) attempt-timeout=1s")
	if without.Wasted.Mean < 0.4 || without.Recovery.Mean < 15 {
		t.Errorf("without deadlines: %v wasted, recovers in %v s, want half, and 20 s", without.Wasted.Mean, without.Recovery.Mean)
	}
	if dropped.Wasted.Mean > 0.02 || dropped.Recovery.Mean > 1 {
		t.Errorf("with deadlines: %v wasted, recovers in %v s, want next to none, and at once", dropped.Wasted.Mean, dropped.Recovery.Mean)
	}
}

func TestOrderAndQueueUnderOverload(t *testing.T) {
	v := Service{Workers: 10, Latency: constant(100 * ms)}
	success := func(v Service) float64 {
		return runOne(t, steadyLoad(150, v), "fixed(0s) attempt-timeout=1s").Success.Mean
	}
	fifo := success(v)
	v.Order = LIFO
	lifo := success(v)
	v.Order, v.Queue = FIFO, 50
	short := success(v)
	if fifo > 0.2 || lifo < 0.5 || short < 0.6 {
		t.Errorf("succeed: fifo %v, lifo %v, a queue of half a second %v; want few, more than half, two thirds", fifo, lifo, short)
	}
}

func TestAQueueThatIsFullAsksForLess(t *testing.T) {
	s := steadyLoad(150, Service{Workers: 10, Queue: 1, Latency: constant(100 * ms)})
	r := runOne(t, s, "fixed(10ms..1h) attempts=2 throttle-base=20s")
	if r.P999.Mean < 20 || r.P999.Mean > 20.5 {
		t.Errorf("p99.9 is %v s, want the throttle base of 20 s and a little", r.P999.Mean)
	}
}

func TestLatencyGrowsWithConcurrency(t *testing.T) {
	// By Little's law n = λ·s·(1+g·n): at 100/s, 10 ms and 0.5 there are 2 at once.
	s := steadyLoad(100, Service{Latency: Latency{Distribution: Constant, Mean: 10 * ms, Growth: 0.5}})
	r := run(t, s, 5, contestant(t, "fixed(0s)"))[0]
	if r.P50.Mean < 0.014 || r.P50.Mean > 0.025 {
		t.Errorf("p50 is %v s, want about 0.02", r.P50.Mean)
	}
}

func TestClosedArrivalsObeyLittlesLaw(t *testing.T) {
	s := steadyLoad(0, Service{Latency: constant(100 * ms)})
	s.Drain = 0
	s.Clients = Clients{Count: 100, Arrivals: Closed, Think: 900 * ms}
	r := run(t, s, 5, contestant(t, "fixed(0s)"))[0]
	wantNear(t, "throughput of 100 clients that take a second each", r.Goodput, 100, 0.03)
}

func TestCapacityAndSlowness(t *testing.T) {
	v := Service{Workers: 10, Latency: constant(100 * ms)}
	half := steadyLoad(40, v, Failure{Kind: Capacity, Share: 0.3})
	if r := runOne(t, half, "fixed(0s) attempt-timeout=1s"); r.Success.Mean > 0.5 {
		t.Errorf("three of ten workers at 40/s: %v succeed, want few", r.Success.Mean)
	}
	slow := steadyLoad(40, Service{Latency: constant(100 * ms)}, Failure{Kind: Slow, Share: 0.25, Factor: 20})
	r := runOne(t, slow, "fixed(0s)")
	if math.Abs(r.P50.Mean-0.1) > 0.001 || math.Abs(r.P99.Mean-2) > 0.02 {
		t.Errorf("p50 %v, p99 %v, want 0.1 and 2", r.P50.Mean, r.P99.Mean)
	}
}

func TestABreakerSparesTheService(t *testing.T) {
	s := steadyLoad(100, Service{Latency: constant(10 * ms)}, Failure{Kind: Errors, From: 10 * second, Until: 30 * second, Share: 1})
	s.Clients.Sharing = 100
	c := contestant(t, "fixed(10ms) attempts=3")
	with := c
	with.Name, with.Breaker = "with a breaker", &breaker.Config{}
	r := run(t, s, 3, c, with)
	if r[0].Amplification.Mean < 1.5 || r[1].Amplification.Mean > 0.95 || r[1].GaveUp["breaker-open"] < 0.2 {
		t.Errorf("attempts per call: %v without, %v with a breaker, which refused %v", r[0].Amplification.Mean, r[1].Amplification.Mean, r[1].GaveUp)
	}
	if r[1].NeverRecovers != 0 || r[1].Success.Mean < 0.3 {
		t.Errorf("behind the breaker %v succeed, and %v of the runs never recover", r[1].Success.Mean, r[1].NeverRecovers)
	}
}

func TestFallback(t *testing.T) {
	s := steadyLoad(100, Service{Latency: constant(10 * ms)}, Failure{Kind: Errors, Share: 1})
	s.Services = append(s.Services, Service{Name: "other", Latency: constant(20 * ms)})
	s.Clients.Fallback = []string{"other"}
	s.Clients.Sharing = 100
	c := contestant(t, "fixed(10ms) attempts=2")
	with := c
	with.Name, with.Breaker = "with a breaker", &breaker.Config{}
	r := run(t, s, 3, c, with)
	if r[0].Success.Mean != 1 || r[0].Amplification.Mean != 2 || math.Abs(r[0].P50.Mean-0.04) > 0.001 {
		t.Errorf("success %v, %v attempts per call, p50 %v; want 1, 2 and 0.04", r[0].Success.Mean, r[0].Amplification.Mean, r[0].P50.Mean)
	}
	if r[1].Success.Mean < 0.999 || r[1].Amplification.Mean > 1.1 {
		t.Errorf("with a breaker: success %v, %v attempts per call; want all, and one", r[1].Success.Mean, r[1].Amplification.Mean)
	}
}

func TestUrgentCallsComeFirst(t *testing.T) {
	s := steadyLoad(200, Service{Workers: 10, Queue: 50, Order: ByPriority, Latency: constant(100 * ms)}, Failure{Kind: Capacity, From: 20 * second, Until: 30 * second, Share: 0.5})
	s.Clients.Priorities = [limit.Classes]float64{0.4, 0, 0.4, 0, 0.2}
	r := runOne(t, s, "fixed(0s) attempt-timeout=2s")
	if p := r.ByPriority; p["highest"] < 0.9 || p["lowest"] > 0.2 || p["normal"] < p["lowest"] {
		t.Errorf("shares that succeed: %v", p)
	}
}

func TestHedgesKeepToTheirShare(t *testing.T) {
	s := steadyLoad(1000, Service{Latency: constant(10 * ms)}, Failure{Kind: Slow, Share: 0.3, Factor: 10})
	s.Duration, s.Clients.Sharing = 15*second, 100
	r := runOne(t, s, "fixed(0s) hedge=20ms/5%")
	if math.Abs(r.Hedges.Mean-0.05) > 0.002 {
		t.Errorf("%v hedges per call, want 0.05", r.Hedges.Mean)
	}
	all := runOne(t, s, "fixed(0s) hedge=20ms/100%")
	if math.Abs(all.Hedges.Mean-0.3) > 0.01 || all.Wasted.Mean == 0 {
		t.Errorf("%v hedges per call and %v wasted, want 0.3 and some", all.Hedges.Mean, all.Wasted.Mean)
	}
}

func TestABudgetBelongsToAProcess(t *testing.T) {
	s := steadyLoad(100, Service{Latency: constant(10 * ms)}, Failure{Kind: Errors, Share: 1})
	retries := func(sharing int) float64 {
		s.Clients.Sharing = sharing
		r := runOne(t, s, "fixed(10ms) attempts=2 budget=refund(1,0.1,10)")
		return (r.Amplification.Mean - 1) * r.Calls.Mean
	}
	if own, shared := retries(1), retries(100); math.Abs(own-1000) > 0.1 || math.Abs(shared-10) > 0.1 {
		t.Errorf("retries: %v with a budget each, %v with one for all; want 1000 and 10", own, shared)
	}
}

func TestAServiceMayHaveAPolicyOfItsOwn(t *testing.T) {
	s, _ := Preset("layers")
	s.Services[0].Policy, s.Services[1].Policy = "fixed(10ms)", "fixed(10ms) attempts=2"
	if r := runOne(t, s, "fixed(10ms) attempts=5"); r.Amplification.Mean != 10 {
		t.Errorf("amplification %v, want 5 × 1 × 2", r.Amplification.Mean)
	}
}

func TestDeadlinesTravelWithCalls(t *testing.T) {
	s := Scenario{
		Name: "deadlines", Duration: 10 * second, Drain: time.Minute, Bucket: second,
		Clients: Clients{Count: 100, Arrivals: Open, Rate: 100},
		Services: []Service{
			{Name: "front", Calls: "back", Policy: "fixed(1s) attempts=100", Latency: constant(ms)},
			{Name: "back", Latency: constant(10 * ms)},
		},
		Failures: []Failure{{Kind: Errors, Service: "back", Share: 1}},
	}
	text := "fixed(0s) attempt-timeout=4500ms"
	without := runOne(t, s, text)
	s.Services[0].Deadlines = true
	with := runOne(t, s, text)
	if with.Amplification.Mean != 5 || without.Amplification.Mean < 30 {
		t.Errorf("attempts per call at the back: %v with deadlines, %v without; want 5, and many", with.Amplification.Mean, without.Amplification.Mean)
	}
}

func TestRetryAfter(t *testing.T) {
	s, _ := Preset("ratelimit")
	s.Clients.Count = 1000
	peak := func(say RetryAfter) Result {
		s.Services[0].Limit.RetryAfter = say
		return runOne(t, s, "exponential(1s..30s) jitter=full attempts=unlimited server-wait=1h")
	}
	next, backlog := peak(SayNext), peak(SayBacklog)
	if next.CallsPerClient.Mean < 3*backlog.CallsPerClient.Mean {
		t.Errorf("calls per client: %v if all get the same Retry-After, %v if each gets its own", next.CallsPerClient.Mean, backlog.CallsPerClient.Mean)
	}
	if next.Success.Mean != 1 || backlog.Success.Mean != 1 {
		t.Errorf("success %v and %v, want all", next.Success.Mean, backlog.Success.Mean)
	}
}

func TestCapacityIsExact(t *testing.T) {
	for _, test := range []struct {
		capacity float64
		latency  time.Duration
		workers  int
		share    float64 // of the capacity that is left
	}{
		{22, 50 * ms, 1, 1}, {22, 50 * ms, 2, 1}, {5, 50 * ms, 1, 1}, {5, 50 * ms, 1, 0.5}, {300, 100 * ms, 30, 0.5}, {7, second, 7, 0.5},
	} {
		s := Scenario{
			Name: "capacity", Duration: time.Duration(6000/test.capacity) * second, Bucket: second,
			Clients:  Clients{Count: 100, Arrivals: Open, Rate: 3 * test.capacity},
			Services: []Service{{Name: "service", Workers: test.workers, Capacity: test.capacity, Latency: Latency{Distribution: Exponential, Mean: test.latency}}},
		}
		if test.share < 1 {
			s.Failures = []Failure{{Kind: Capacity, Share: test.share}}
		}
		r := run(t, s, 3, contestant(t, "fixed(0s) attempts=1"))[0]
		wantNear(t, fmt.Sprintf("%+v: calls per second when too many arrive", test), r.Goodput, test.capacity*test.share, 0.04)

		s.Clients.Rate, s.Failures = test.capacity/20, nil
		s.Duration *= 20
		r = run(t, s, 3, contestant(t, "fixed(0s) attempts=1"))[0]
		if low, high := test.latency.Seconds()*math.Ln2*0.9, test.latency.Seconds()*math.Ln2*1.2; test.capacity*test.latency.Seconds() >= 1 && (r.P50.Mean < low || r.P50.Mean > high) {
			t.Errorf("%+v: the median latency of an idle service is %v s, want between %v and %v", test, r.P50.Mean, low, high)
		}
	}
}

// A limit with windows admits all its calls at the begin of a window, and the Retry-After is the begin of the
// next window.
func TestFixedWindows(t *testing.T) {
	t.Parallel()
	s := Scenario{
		Name: "windows", Duration: 30 * second, Drain: 10 * second, Bucket: second,
		Clients: Clients{Count: 25, Arrivals: Herd, Start: 14 * second},
		Services: []Service{{
			Name: "service", Latency: Latency{Distribution: Constant, Mean: ms},
			Limit: &RateLimit{Rate: 1, Window: 10 * second, RetryAfter: SayNext},
		}},
	}
	literal := contestant(t, "fixed(1s) attempts=3")
	literal.literal = true
	r := run(t, s, 2, literal)[0]
	// Ten calls are admitted in the window of second 14, ten at second 20, and five at second 30.
	got := []float64{r.Series.Goodput[14], r.Series.Goodput[20], r.Series.Goodput[30]}
	if want := []float64{10, 10, 5}; !slices.Equal(got, want) || r.Success.Mean != 1 {
		t.Errorf("successes at 14 s, 20 s and 30 s: %v, want %v; %v", got, want, r.Series.Goodput)
	}
}
