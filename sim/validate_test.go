package sim

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/retry"
)

func TestPresetsAreValidAndTheirOwn(t *testing.T) {
	want := "herd outage brownout ratelimit contention layers metastable hedge"
	var names []string
	for name, about := range Presets {
		names = append(names, name)
		s, ok := Preset(name)
		if err := s.Validate(); err != nil || !ok || about == "" || s.About != about {
			t.Errorf("%s: %v, %q, %v", name, ok, about, err)
		}
		if s.Writers != nil {
			s.Writers.Count = -1
		} else {
			s.Services[0].Name = "changed"
			if l := s.Services[0].Limit; l != nil {
				l.Rate = -1
			}
		}
		if again, _ := Preset(name); again.Validate() != nil {
			t.Errorf("%s: a change of a copy shows in the preset", name)
		}
	}
	if got := strings.Join(names, " "); got != want {
		t.Errorf("presets %q, want %q", got, want)
	}
	if _, ok := Preset("nonsense"); ok {
		t.Error("there is a preset nonsense")
	}
}

// writersOnly is a scenario with writers.
func writersOnly(w Writers) Scenario {
	return Scenario{Name: "writers", Duration: second, Bucket: second, Writers: &w}
}

func TestValidateNamesTheField(t *testing.T) {
	good := steadyLoad(100, Service{Workers: 10, Latency: constant(ms)}, Failure{Kind: Errors, Share: 0.5})
	tests := []struct {
		change func(*Scenario)
		want   string
	}{
		{func(s *Scenario) { s.Name = "" }, "name: is empty"},
		{func(s *Scenario) { s.Duration = 0 }, "duration: must be above zero"},
		{func(s *Scenario) { s.Drain = -1 }, "drain: -1ns is negative"},
		{func(s *Scenario) { s.Duration, s.Bucket = 200*time.Hour, time.Hour }, "duration: 200h0m0s is above 168h0m0s"},
		{func(s *Scenario) { s.Bucket = time.Microsecond }, "bucket: 1µs cuts the run into 120000000 buckets, at most 200000; make it longer"},
		{func(s *Scenario) { s.Clients.Count = 0 }, "clients.count: 0 is not between 1 and 2e+07"},
		{func(s *Scenario) { s.Clients.Rate = math.NaN() }, "clients.rate: NaN is not above 0 and at most 1e+09 calls per second"},
		{func(s *Scenario) { s.Clients.Think = 1 }, "clients.think: only allowed with closed arrivals"},
		{func(s *Scenario) { s.Clients = Clients{Count: 1, Arrivals: Closed, Think: 1, Batch: 2} }, "clients.batch: only allowed with open arrivals"},
		{func(s *Scenario) { s.Clients.Load = []Load{{At: 2, Factor: 1}, {At: 1, Factor: -1}} }, "clients.load[1].factor: -1 is not between 0 and 1e+06\nclients.load[1].at: 1ns is before the end of the change before it, 2ns"},
		{func(s *Scenario) { s.Clients.Load = []Load{{Factor: 1e6}}; s.Clients.Rate = 1e6 }, "clients.load[0].factor: 1e+06 times the rate of 1e+06 is above 1e+09 calls per second"},
		{func(s *Scenario) { s.Services[0].Capacity = -1 }, "services[0].capacity: -1 is not between 0 and 1e+09"},
		{func(s *Scenario) { s.Services[0].Workers = 0; s.Services[0].Capacity = 1 }, "services[0].capacity: only allowed for a service with workers"},
		{func(s *Scenario) { *s = writersOnly(Writers{Count: 1, Hop: 1, Model: "other"}) }, `writers.model: "other": want store, register or decree`},
		{func(s *Scenario) { *s = writersOnly(Writers{Count: 1, Hop: 1, Acceptors: 3}) }, "writers.acceptors: only allowed for the models register and decree"},
		{func(s *Scenario) { *s = writersOnly(Writers{Count: 1 << 20, Hop: 1, Model: Register}) }, "writers.count: 1.048576e+06 is not between 1 and 1e+06"},
		{func(s *Scenario) { s.Clients = Clients{Count: 1, Arrivals: Closed, Rate: 1} }, "clients.think: must be above zero\nclients.rate: only allowed with open arrivals"},
		{func(s *Scenario) {
			s.Clients = Clients{Count: 1, Arrivals: Herd, Start: time.Minute}
		}, "clients.spread: the last call of the herd begins at 1m0s, not before the end of the duration 1m0s: lower start or spread"},
		{func(s *Scenario) { s.Clients.Fallback = []string{"b"} }, `clients.fallback[0]: there is no service "b"`},
		{func(s *Scenario) { s.Clients.Priorities[0] = 1 }, "clients.priorities: only allowed with a service whose order is priority"},
		{func(s *Scenario) {
			s.Services[0].Order, s.Services[0].Queue = ByPriority, 1
			s.Clients.Priorities = [limit.Classes]float64{0.5, 0.6}
		}, "clients.priorities: the shares add up to 1.1, not to 1"},
		{func(s *Scenario) { s.Services = nil }, "services: the list is empty: add at least one"},
		{func(s *Scenario) { s.Services[0].Name = "" }, "services[0].name: is empty"},
		{func(s *Scenario) { s.Services = append(s.Services, s.Services[0]) }, `services[1].name: "service" is the name of services[0] already`},
		{func(s *Scenario) { s.Services[0].Workers = 0; s.Services[0].Queue = 1 }, "services[0].queue: only allowed for a service with workers"},
		{func(s *Scenario) { s.Services[0].Order = "random" }, `services[0].order: "random": want fifo, lifo or priority`},
		{func(s *Scenario) { s.Services[0].Order = ByPriority }, "services[0].queue: is 0, but an order by priority needs a limit: set it"},
		{func(s *Scenario) { s.Services[0].Latency = Latency{} }, "services[0].latency.mean: must be above zero\nservices[0].latency.distribution: \"\": want constant, exponential or lognormal"},
		{func(s *Scenario) { s.Services[0].Latency.Sigma = 1 }, "services[0].latency.sigma: only allowed for lognormal"},
		{func(s *Scenario) { s.Services[0].Latency.Distribution = Lognormal }, "services[0].latency.sigma: 0 is not above 0 and at most 10"},
		{func(s *Scenario) { s.Services[0].Calls = "service" }, `services[0].calls: "service" is not a later service: a service may only call services after it, so that there is no cycle`},
		{func(s *Scenario) { s.Services[0].Calls = "x" }, `services[0].calls: there is no service "x"`},
		{func(s *Scenario) { s.Services[0].Policy = "http" }, "services[0].policy: only allowed for a service that calls another"},
		{func(s *Scenario) { s.Services[0].Limit = &RateLimit{} }, "services[0].limit.rate: 0 is not between 0.001 and 1000000 calls per second"},
		{func(s *Scenario) { s.Services[0].Limit = &RateLimit{Rate: 1, RetryAfter: "soon"} }, `services[0].limit.retry-after: "soon": want next, backlog or nothing`},
		{func(s *Scenario) { s.Failures[0].Share = 0 }, "failures[0].share: 0 is not above 0 and at most 1"},
		{func(s *Scenario) { s.Failures[0].Factor = 2 }, "failures[0].factor: only allowed for slow"},
		{func(s *Scenario) { s.Failures[0].Kind = "gremlins" }, `failures[0].kind: "gremlins": want errors, reject, outage, blackhole, slow or capacity`},
		{func(s *Scenario) { s.Failures[0].From, s.Failures[0].Until = 2, 1 }, "failures[0].until: 1ns is not after from 2ns"},
		{func(s *Scenario) { s.Failures[0].From = time.Hour }, "failures[0].from: 1h0m0s is after the end of the run"},
		{func(s *Scenario) { s.Failures[0].Service = "x" }, `failures[0].service: there is no service "x"`},
		{func(s *Scenario) { s.Failures[0].Kind, s.Services[0].Workers = Capacity, 0 }, "failures[0].kind: the service has no limit of workers, so it cannot lose capacity: set workers"},
		{func(s *Scenario) { s.Failures[0].Kind = Outage }, "failures[0].share: only allowed for errors, reject, blackhole, slow and capacity"},
		{func(s *Scenario) { s.Writers = &Writers{Hop: -1} }, "writers.count: 0 is not between 1 and 1e+06\nwriters.hop: -1ns is negative\nservices: only allowed without writers\nclients: only allowed without writers\nfailures: only allowed without writers"},
	}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		s := good.clone()
		tt.change(&s)
		if err := s.Validate(); err == nil || err.Error() != tt.want {
			t.Errorf("got  %v\nwant %v", err, tt.want)
		}
	}
}

func TestAWriterRefusesWhatItCantHonour(t *testing.T) {
	s, _ := Preset("contention")
	_, err := Run(t.Context(), s, []Contestant{contestant(t, "fixed(1s) attempt-timeout=1s")}, Options{})
	if err == nil || !strings.Contains(err.Error(), "attempt-timeout: a writer can't honour attempt-timeout=1s") {
		t.Errorf("error %v", err)
	}
}

func TestWritersHaveLimitsToo(t *testing.T) {
	s, _ := Preset("contention")
	r := run(t, s, 5, contestant(t, "fixed(10ms) attempts=4"), contestant(t, "exponential(10ms..1s) jitter=full attempts=unlimited total-timeout=500ms"))
	if r[0].Success.Mean > 0.3 || r[0].GaveUp["attempts"] < 0.7 {
		t.Errorf("four attempts without jitter: success %v, gave up %v", r[0].Success.Mean, r[0].GaveUp)
	}
	if r[1].Last.Mean > 0.6 || r[1].GaveUp["total-timeout"] < 0.3 {
		t.Errorf("half a second: the last ends at %v, gave up %v", r[1].Last.Mean, r[1].GaveUp)
	}
}

// FuzzRun runs every valid scenario: the run must not panic, and its counts must
// be consistent.
func FuzzRun(f *testing.F) {
	for name := range Presets {
		s, _ := Preset(name)
		text, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "http attempt-timeout=1s", uint64(1))
		f.Add(string(text), "default hedge=p95", uint64(2))
	}
	f.Fuzz(func(t *testing.T, text, with string, seed uint64) {
		var s Scenario
		p, err := retry.Parse(with)
		if json.Unmarshal([]byte(text), &s) != nil || err != nil {
			return
		}
		s.Clients.Count, s.Duration, s.Drain = min(s.Clients.Count, 50), min(s.Duration, 20*second), min(s.Drain, 20*second)
		s.Clients.Rate = min(s.Clients.Rate, 50)
		if s.Writers != nil {
			s.Writers.Count = min(s.Writers.Count, 20)
		}
		// real clock: a run that takes longer is not checked
		ctx, cancel := context.WithTimeout(t.Context(), 200*ms)
		defer cancel()
		r, err := Run(ctx, s, []Contestant{{Name: "a", Policy: p}}, Options{Seed: seed, Seeds: 1, Workers: 1})
		if err != nil {
			return
		}
		if x := r.Results[0]; x.Success.Mean+x.Unfinished.Mean > 1+1e-9 || x.Wasted.Mean > 1 || x.Fairness.Mean > 1+1e-9 {
			t.Errorf("%s\n%v: success %v, unfinished %v, wasted %v, fairness %v", text, p, x.Success, x.Unfinished, x.Wasted, x.Fairness)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}
