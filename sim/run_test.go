package sim

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/breaker"
)

// rivals are contestants that use every feature.
func rivals(t testing.TB) []Contestant {
	t.Helper()
	cs := []Contestant{
		contestant(t, "fixed(0s) attempt-timeout=1s"),
		contestant(t, "fixed(0s) attempts=3 attempt-timeout=1s"),
		contestant(t, "default attempt-timeout=1s hedge=p95"),
	}
	careful := contestant(t, "default attempt-timeout=1s")
	careful.Name, careful.Breaker = "careful", &breaker.Config{}
	return append(cs, careful)
}

func report(t *testing.T, s Scenario, cs []Contestant, o Options) string {
	t.Helper()
	r, err := Run(t.Context(), s, cs, o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestTheSameSeedGivesTheSameBytes(t *testing.T) {
	for name := range Presets {
		s, _ := Preset(name)
		s.Duration, s.Drain = min(s.Duration, 20*second), min(s.Drain, 10*second)
		s.Clients.Rate, s.Clients.Count = min(s.Clients.Rate, 50), min(s.Clients.Count, 100)
		cs := rivals(t)
		if s.Writers != nil {
			cs = []Contestant{contestant(t, "contention"), contestant(t, "fixed(10ms) attempts=4")}
		}
		first := report(t, s, cs, Options{Seed: 7, Seeds: 2, Workers: 1})
		if again := report(t, s, cs, Options{Seed: 7, Seeds: 2, Workers: 5}); again != first {
			t.Errorf("%s: five workers give another report than one", name)
		}
		if other := report(t, s, cs, Options{Seed: 8, Seeds: 2}); other == first {
			t.Errorf("%s: another seed gives the same report", name)
		}
	}
}

func TestAllContestantsGetTheSameArrivals(t *testing.T) {
	s, _ := Preset("brownout")
	s.Duration, s.Drain = 10*second, 10*second
	rs := run(t, s, 2, rivals(t)...)
	for _, r := range rs[1:] {
		if !slices.Equal(r.Series.Offered, rs[0].Series.Offered) {
			t.Errorf("%s: other calls than %s", r.Name, rs[0].Name)
		}
		if r.Versus.Calls != (Estimate{N: 2}) {
			t.Errorf("%s: calls differ by %+v", r.Name, r.Versus.Calls)
		}
	}
	if rs[0].Versus != nil {
		t.Error("the first is compared with itself")
	}
}

// TestPairsAreNarrower checks why all contestants get the same random numbers:
// the difference of two policies is much more precise than either of them.
func TestPairsAreNarrower(t *testing.T) {
	s := steadyLoad(95, Service{Workers: 10, Latency: Latency{Distribution: Exponential, Mean: 100 * ms}})
	r := run(t, s, 10, contestant(t, "fixed(0s)"), contestant(t, "fixed(1s) attempts=2 attempt-timeout=30s"))
	if r[1].Versus.P99.Half >= r[1].P99.Half/3 {
		t.Errorf("p99 %+v, the difference %+v", r[1].P99, r[1].Versus.P99)
	}
}

func TestProgress(t *testing.T) {
	s, _ := Preset("herd")
	s.Clients.Count = 100
	var seen []int
	_, err := Run(t.Context(), s, rivals(t), Options{Seeds: 3, Workers: 4, Progress: func(done, total int) {
		if total != 12 {
			t.Errorf("total %d, want 12", total)
		}
		seen = append(seen, done)
	}})
	if err != nil || !slices.Equal(seen, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}) {
		t.Errorf("progress %v, error %v", seen, err)
	}
}

func TestRunStopsWithTheContext(t *testing.T) {
	s := million(10_000)
	s.Failures[0].Until = 0 // for ever: the run has billions of events
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	time.AfterFunc(50*ms, func() { cancel(why) }) // real clock: it may come before the run begins, but not after it ends
	r, err := Run(ctx, s, []Contestant{contestant(t, "fixed(1ms) attempts=unlimited")}, Options{Seeds: 4, Workers: 2})
	if r != nil || !errors.Is(err, why) {
		t.Errorf("Run = %v, %v, want %v", r, err, why)
	}
}

func TestRunRefusesTheImpossibleAllAtOnce(t *testing.T) {
	s := Scenario{Name: "bad", Duration: -1, Clients: Clients{Count: 1, Arrivals: "rush"}}
	c := contestant(t, "fixed(1s) reset-after=1m")
	_, err := Run(t.Context(), s, []Contestant{c, c, {}}, Options{Seeds: -1, Workers: -1})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`sim: scenario "bad"`, "duration: -1ns is negative", `clients.arrivals: "rush": want open, closed or herd`,
		"services: the list is empty", "reset-after: the simulator can't honour reset-after=1m",
		"is the name of contestants[0] already", "contestants[2]: name: is empty", "seeds: -1 is not", "workers: -1 is not",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

// TestTimesThatAreTooLong has delays that overflow the simulated time.
func TestTimesThatAreTooLong(t *testing.T) {
	s, _ := Preset("outage")
	s.Duration, s.Drain = 30*second, 0
	run(t, s, 1, contestant(t, "fixed(2562047h47m16s) attempts=2 attempt-timeout=2562047h47m16s"))
	s.Clients.Rate = 1e-12
	if r := run(t, s, 1, contestant(t, "fixed(1s)"))[0]; r.Calls.Mean != 0 {
		t.Errorf("%v calls at a rate of one in thirty thousand years", r.Calls.Mean)
	}
}

// TestSilenceIsNoRecovery has clients that all wait for an answer that never
// comes. A run without calls must not count as recovered.
func TestSilenceIsNoRecovery(t *testing.T) {
	s := Scenario{
		Name: "silence", Duration: time.Minute, Bucket: second,
		Clients:  Clients{Count: 10, Arrivals: Closed, Think: second},
		Services: []Service{queueing(10, 10*ms)},
		Failures: []Failure{{Kind: Outage, From: 5 * second, Until: 10 * second}, {Kind: BlackHole, From: 10 * second, Share: 1}},
	}
	if r := run(t, s, 2, contestant(t, "fixed(1s)"))[0]; r.NeverRecovers != 1 {
		t.Errorf("no call is answered any more, but %v of the runs recover", 1-r.NeverRecovers)
	}
}
