//go:build !race

package sim

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/limit"
)

// burstOf returns a scenario of clients that all call at once.
func burstOf(clients int, v Service) Scenario {
	v.Name = "service"
	return Scenario{
		Name: "herd", Duration: 10 * second, Clients: Clients{Count: clients, Arrivals: Herd, Spread: second}, Services: []Service{v},
	}
}

func TestWhatDoesNotFitIsRefusedBeforeItRuns(t *testing.T) {
	t.Parallel()
	guarded := func(c *Contestant) { c.Breaker = &breaker.Config{} }
	plain := func(*Contestant) {}
	latency := constant(10 * ms)
	far := steadyLoad(1, Service{Latency: latency})
	far.Clients.Count, far.Clients.Fallback = maxClients, slices.Repeat([]string{"service"}, 1500)
	byPriority := burstOf(maxClients, Service{Workers: 1, Queue: 1e9, Order: ByPriority, Latency: latency})
	byPriority.Clients.Priorities = [limit.Classes]float64{0.5, 0, 0.5}
	long := steadyLoad(1, Service{Latency: latency})
	long.Duration, long.Bucket = maxBuckets*ms-long.Drain, ms
	for _, tt := range []struct {
		name, policy string
		scenario     Scenario
		with         func(*Contestant)
		want         string
	}{
		{"breakers of each client for each of many services", "fixed(1s)", far, guarded, "clients.fallback: 20000000 processes with breakers for 1501 services each take 223."},
		{"the same without breakers is possible", "fixed(1s)", far, plain, ""},
		{"a herd", "fixed(1s)", burstOf(maxClients, Service{Latency: latency}), plain, "clients.count: 20000000 calls at once take "},
		{"a smaller herd is possible", "fixed(1s)", burstOf(10_000_000, Service{Latency: latency}), plain, ""},
		{"a herd with priorities", "fixed(1s)", byPriority, plain, "clients.count: 20000000 calls at once take "},
		{"a herd in which each client has hedges", "default hedge=p95", burstOf(1_000_000, Service{Latency: latency}), plain, "clients.count: 1000000 processes with hedges each take 4.0 GiB of memory, and the whole run takes "},
		{"epochs at many acceptors", "fixed(1s)", Scenario{Name: "g", Duration: 30 * second, Group: &Group{Members: 10, Hop: 50 * ms, Acceptors: 64, Behind: 1e6}}, plain, "group.behind: 1000010 epochs at each of 64 acceptors take 11.4 GiB of memory"},
		{"epochs that many members learn", "fixed(1s)", Scenario{Name: "g", Duration: 30 * second, Group: &Group{Members: 10_000, Hop: 50 * ms, Behind: 1e5}}, plain, "group.members: 100600 epochs at each of 10000 members take 104."},
		{"many members with a short log are possible", "fixed(1s)", Scenario{Name: "g", Duration: 30 * second, Group: &Group{Members: 10_000, Hop: 50 * ms}}, plain, ""},
		{"writers are always possible", "fixed(1s)", Scenario{Name: "w", Duration: 30 * second, Writers: &Writers{Count: 1e6, Hop: ms}}, plain, ""},
		{"many buckets are possible", "fixed(1s)", long, plain, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := tt.scenario.Validate(); err != nil {
				t.Fatal(err)
			}
			c := contestant(t, tt.policy)
			tt.with(&c)
			switch err := Check(tt.scenario, []Contestant{c}); {
			case tt.want == "" && err != nil:
				t.Errorf("got %v, want no error", err)
			case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want) || !strings.HasSuffix(err.Error(), ": a run may take at most 4.0 GiB")):
				t.Errorf("got  %v\nwant %s... and the limit", err, tt.want)
			}
		})
	}
	many := make([]Contestant, 200)
	for i := range many {
		many[i] = Contestant{Name: name("policy", i)}
	}
	if err := Check(long, many); err == nil || !strings.HasPrefix(err.Error(), "bucket: 200000 buckets for each of 200 contestants take ") {
		t.Errorf("many contestants with many buckets: %v", err)
	}
}

func TestResultsThatDoNotFitAreRefused(t *testing.T) {
	t.Parallel()
	many := make([]Contestant, 400)
	for i := range many {
		many[i] = Contestant{Name: name("policy", i)}
	}
	_, err := Run(t.Context(), singleCall(Service{Latency: constant(ms)}), many, Options{Seeds: MaxSeeds})
	if err == nil || !strings.Contains(err.Error(), "seeds: the results of 100000 runs of each of 400 contestants take 6.3 GiB of memory; at most 4.0 GiB") {
		t.Errorf("error %v", err)
	}
}

// The estimate is never below the memory that is used, and not far above.
func TestTheEstimateIsNearWhatIsUsed(t *testing.T) { //nolint:paralleltest // it looks at the heap of the process
	const clients = 20_000
	stuck := Service{Workers: 1, Latency: constant(time.Hour)}
	byPriority := Service{Workers: 1, Queue: clients, Order: ByPriority, Latency: constant(time.Hour)}
	for _, tt := range []struct {
		name     string
		scenario Scenario
		with     Contestant
	}{
		{"a herd that waits", burstOf(clients, stuck), Contestant{Policy: policy(t, "fixed(1s)")}},
		{"a herd that waits by priority", burstOf(clients, byPriority), Contestant{Policy: policy(t, "fixed(1s)")}},
		{"with a budget each", burstOf(clients, stuck), Contestant{Policy: policy(t, "fixed(1s) budget=refund(1,0.1,10)")}},
		{"with a breaker each", burstOf(clients, stuck), Contestant{Policy: policy(t, "fixed(1s)"), Breaker: &breaker.Config{}}},
		{"with hedges each", burstOf(clients, stuck), Contestant{Policy: policy(t, "fixed(1s) hedge=p95")}},
	} {
		t.Run(tt.name, func(t *testing.T) { //nolint:paralleltest // as above
			before := heap()
			w := newServiceModel(newPlan(tt.scenario), &tt.with, 1)
			if _, err := runModel(t.Context(), &w.queue, w, int64(9*second)); err != nil {
				t.Fatal(err)
			}
			used := float64(heap() - before)
			runtime.KeepAlive(w)
			said := memory(tt.scenario, []Contestant{tt.with}).total()
			t.Logf("used %.0f bytes a client, estimated %.0f", used/clients, said/clients)
			if used > said || used < said/3 {
				t.Errorf("used %.0f bytes, estimated %.0f", used, said)
			}
		})
	}
}

func TestTheEstimateOfAGroupIsNearWhatIsUsed(t *testing.T) { //nolint:paralleltest // it looks at the heap of the process
	s := Scenario{Name: "g", Duration: 20 * time.Minute, Bucket: time.Minute, Group: &Group{Members: 20, Hop: 50 * ms, Behind: 20_000}}
	c := contestant(t, "contention attempts=unlimited")
	before := heap()
	w, err := newGroup(newPlan(s), &c, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runModel(t.Context(), &w.queue, w, int64(s.length())); err != nil || w.good == 0 {
		t.Fatalf("%d have committed: %v", w.good, err)
	}
	used, said := float64(heap()-before), memory(s, []Contestant{c}).total()
	runtime.KeepAlive(w)
	if used > said || used < said/3 {
		t.Errorf("used %.0f bytes, estimated %.0f", used, said)
	}
}

func TestARunThatOutgrowsTheMemoryStops(t *testing.T) {
	t.Parallel()
	piling := steadyLoad(10_000, Service{Workers: 1, Latency: constant(time.Hour)})
	closed := piling
	closed.Clients = Clients{Count: 20_000, Arrivals: Closed, Think: second}
	crowd := Scenario{Name: "g", Duration: 30 * second, Group: &Group{Members: 500, Hop: 50 * ms}}
	for _, tt := range []struct {
		name        string
		scenario    Scenario
		policy      string
		memoryLimit int64
		want        string
	}{
		{"calls that come at a rate", piling, "fixed(1s)", 1 << 21, "clients.rate: the calls in flight after "},
		{"calls of clients that wait", closed, "fixed(1s) attempts=unlimited attempt-timeout=100ms", 1 << 21, "clients.count: the calls in flight after "},
		{"messages of a group", crowd, "fixed(1ms) attempts=unlimited", 1 << 19, "group.members: the messages in flight after "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := contestant(t, tt.policy)
			p := newPlan(tt.scenario)
			p.memoryLimit = tt.memoryLimit
			_, err := runOnce(t.Context(), p, &c, 1)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Fatalf("got %v, want %s...", err, tt.want)
			}
			if _, again := runOnce(t.Context(), p, &c, 1); again.Error() != err.Error() {
				t.Errorf("the same run stops elsewhere: %v, and %v", err, again)
			}
		})
	}
}

func TestOneRunAtATimeTakesMoreThanItsShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlan(singleCall(Service{Latency: constant(ms)}))
		p.memoryLimit, p.share = 100, 40
		first, second := memoryShare{plan: p}, memoryShare{plan: p}
		for _, bytes := range []int64{40, 41, 100} {
			if err := first.reserve(t.Context(), bytes, 0, "a", "b"); err != nil {
				t.Fatalf("%d bytes: %v", bytes, err)
			}
		}
		if err := second.reserve(t.Context(), 40, 0, "a", "b"); err != nil {
			t.Fatalf("no more than its share beside a large one: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := second.reserve(ctx, 41, 0, "a", "b"); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled while it waits: %v", err)
		}
		got := make(chan error, 1)
		go func() { got <- second.reserve(t.Context(), 41, 0, "a", "b") }()
		if synctest.Wait(); len(got) > 0 {
			t.Error("two are large at once")
		}
		first.release()
		if err := <-got; err != nil {
			t.Error(err)
		}
		second.release()
		if len(p.large) != 0 {
			t.Error("a run that has released its memory still counts as large")
		}
	})
}

func TestRunsThatWaitForEachOtherShowTheSame(t *testing.T) {
	t.Parallel()
	s := steadyLoad(100, Service{Workers: 1, Latency: constant(time.Hour)})
	cs := []Contestant{contestant(t, "fixed(1s) attempts=5 attempt-timeout=1s"), contestant(t, "fixed(1s) attempts=4 attempt-timeout=1s")}
	in := func(memoryLimit int64) (string, error) {
		o := newTournament(s, cs, Options{Seeds: 2, Workers: 3})
		o.plan.memoryLimit = memoryLimit
		if err := o.run(t.Context()); err != nil {
			return "", err
		}
		report, err := json.Marshal(o.report())
		return string(report), err
	}
	const enough = 6 << 20
	if _, err := in(enough / 3); err == nil {
		t.Fatal("a third of the memory is enough, so no run has to wait")
	}
	want, errWant := in(MaxMemory)
	got, errGot := in(enough)
	if got != want || errWant != nil || errGot != nil {
		t.Errorf("runs that are large one after the other show something else: %v, %v", errWant, errGot)
	}
}

func TestNoMoreRunsAtOnceThanFit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		clients, workers, want int
	}{
		{1000, 4, 4},
		{10_000_000, 4, 1},
		{5_000_000, 4, 2},
	} {
		s := burstOf(tt.clients, Service{Latency: constant(ms)})
		got := newTournament(s, []Contestant{contestant(t, "fixed(1s)")}, Options{Seeds: 10, Workers: tt.workers}).workers()
		if got != tt.want {
			t.Errorf("%d clients: %d runs at once, want %d", tt.clients, got, tt.want)
		}
	}
}

// FuzzMemory checks that the estimate of every valid scenario is a number.
func FuzzMemory(f *testing.F) {
	f.Add(10, 1.0, int64(second), 3, 7, 100)
	f.Add(maxClients, 1e9, int64(maxTime), 64, 10_000, 1_000_000)
	f.Fuzz(func(t *testing.T, count int, rate float64, d int64, acceptors, members, behind int) {
		calls := steadyLoad(rate, Service{Latency: constant(ms)})
		calls.Clients.Count, calls.Duration, calls.Bucket = count, time.Duration(d), time.Hour
		votes := Scenario{Name: "g", Duration: time.Duration(d), Bucket: time.Hour, Group: &Group{Members: members, Acceptors: acceptors, Behind: behind, Hop: ms}}
		for _, s := range []Scenario{calls, votes} {
			if s.Validate() != nil {
				continue
			}
			if n := memory(s, []Contestant{{Name: "a", Breaker: &breaker.Config{}}}).total(); !(n > 0) || math.IsInf(n, 0) {
				t.Errorf("%+v takes %v bytes", s, n)
			}
		}
	})
}
