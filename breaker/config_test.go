package breaker_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/backoff"
	"github.com/tideover/tideover/breaker"
)

func TestDefaultIsWhatTheEvidenceSays(t *testing.T) {
	t.Parallel()
	want := breaker.Config{
		Window:         10 * time.Second,
		FailureRate:    0.8,
		MinCalls:       20,
		Open:           backoff.Schedule{Kind: backoff.Exponential, Base: 5 * time.Second, Cap: time.Minute, Jitter: backoff.Wide},
		Probes:         1,
		ProbeSuccesses: 1,
		ProbeTimeout:   30 * time.Second,
	}
	if got := breaker.Default(); got != want {
		t.Errorf("Default():\n got %+v\nwant %+v", got, want)
	}
	if err := want.Validate(); err != nil {
		t.Errorf("Default().Validate() = %v", err)
	}
}

func TestProviderOpensAsTheChecklistSays(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		results string
		want    breaker.State
	}{
		{"four failures in a row are borne", "ffff", breaker.Closed},
		{"five failures in a row open it", "fffff", breaker.Open},
		{"exactly half of twenty succeeding is borne", strings.Repeat("sf", 10), breaker.Closed},
		{"less than half succeeding opens it", strings.Repeat("sf", 10) + "f", breaker.Open},
		{"nineteen calls are too few for a rate", strings.Repeat("fffs", 4) + "fff", breaker.Closed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := breaker.Must(breaker.Provider())
			for _, c := range tt.results {
				call(t, b, 0, result(c))
			}
			if got := b.StateAt(0); got != tt.want {
				t.Errorf("after %q: StateAt(0) = %v, want %v", tt.results, got, tt.want)
			}
		})
	}
	if err := breaker.Provider().Validate(); err != nil {
		t.Errorf("Provider().Validate() = %v", err)
	}
}

func TestProviderStaysOpenForOneSecondThenTwoUpToSixty(t *testing.T) {
	t.Parallel()
	s := breaker.Provider().Open
	for k, want := range []time.Duration{1: 1, 2: 2, 3: 4, 4: 8, 10: 60} {
		if want == 0 {
			continue
		}
		lo, hi := s.Range(k, 0)
		if wantLo, wantHi := want*time.Second/2, min(want*time.Second*3/2, time.Minute); lo != wantLo || hi != wantHi {
			t.Errorf("opening %d: between %v and %v, want %v and %v", k, lo, hi, wantLo, wantHi)
		}
	}
}

func TestValidateNamesTheField(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	tests := []struct {
		name   string
		config breaker.Config
		want   string
	}{
		{"a negative window", breaker.Config{Window: -time.Second}, "window: -1s is negative"},
		{"a negative window of calls", breaker.Config{WindowCalls: -1}, "window-calls: -1 is negative"},
		{"two windows", breaker.Config{Window: time.Second, WindowCalls: 9}, "window-calls: 9 cannot be used together with window 1s"},
		{"negative calls", breaker.Config{MinCalls: -2}, "min-calls: -2 is negative"},
		{"more calls than the window holds", breaker.Config{WindowCalls: 9, MinCalls: 10}, "min-calls: 10 is more than window-calls 9 can hold"},
		{"a negative rate", breaker.Config{FailureRate: -0.5}, "failure-rate: -0.5 is not between 0 and 1"},
		{"a percentage as a rate", breaker.Config{FailureRate: 80}, "failure-rate: 80 is not between 0 and 1"},
		{"a rate that is not a number", breaker.Config{FailureRate: nan}, "failure-rate: NaN is not between 0 and 1"},
		{"no rule at all", breaker.Config{FailureRate: breaker.Off}, "failure-rate: is off and there is no other rule, so the breaker could never open: set consecutive-failures or slow-call"},
		{"negative consecutive failures", breaker.Config{ConsecutiveFailures: -1}, "consecutive-failures: -1 is negative"},
		{"a negative slow call", breaker.Config{SlowCall: -1}, "slow-call: -1ns is negative"},
		{"a slow rate above one", breaker.Config{SlowCall: 1, SlowRate: 1.1}, "slow-rate: 1.1 is not between 0 and 1"},
		{"a slow rate that is not a number", breaker.Config{SlowCall: 1, SlowRate: nan}, "slow-rate: NaN is not between 0 and 1"},
		{"a slow rate of nothing", breaker.Config{SlowRate: 0.5}, "slow-rate: 0.5 has no effect without slow-call: set slow-call"},
		{"a schedule that goes back", breaker.Config{Open: backoff.Schedule{Base: -1}}, "open: base: -1ns is negative"},
		{"negative probes", breaker.Config{Probes: -1}, "probes: -1 is negative"},
		{"negative successes", breaker.Config{ProbeSuccesses: -1}, "probe-successes: -1 is negative"},
		{"a negative timeout", breaker.Config{ProbeTimeout: -1}, "probe-timeout: -1ns is negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.config.Validate()
			if err == nil || err.Error() != tt.want {
				t.Errorf("Validate()\n got %v\nwant %v", err, tt.want)
			}
			if _, err := breaker.New(tt.config); err == nil {
				t.Error("New accepted it")
			}
		})
	}
}

func TestValidateReportsAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	err := breaker.Config{
		MinCalls:    -1,
		FailureRate: 2,
		Open:        backoff.Schedule{Kind: backoff.Exponential, Base: time.Minute, Cap: time.Second, Factor: math.NaN()},
		Probes:      -1,
	}.Validate()
	want := []string{"min-calls", "failure-rate", "open: cap", "open: factor", "probes"}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Fatalf("Validate() = %q: %d problems, want %d", err, len(lines), len(want))
	}
	for i, field := range want {
		if !strings.HasPrefix(lines[i], field+": ") {
			t.Errorf("problem %d: got %q, want one with %s", i, lines[i], field)
		}
	}
}

func TestValidConfigs(t *testing.T) {
	t.Parallel()
	tests := map[string]breaker.Config{
		"the zero value":                      {},
		"only consecutive failures":           {FailureRate: breaker.Off, ConsecutiveFailures: 3},
		"only slow calls":                     {FailureRate: breaker.Off, SlowCall: time.Second},
		"a window smaller than the default's": {WindowCalls: 5},
		"a rate of one":                       {FailureRate: 1},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := c.Validate(); err != nil {
				t.Errorf("Validate() = %v", err)
			}
		})
	}
}

func TestANilOptionIsAnError(t *testing.T) {
	if _, err := breaker.New(breaker.Config{}, nil); err == nil || !strings.Contains(err.Error(), "option: nil") {
		t.Errorf("New with a nil option: %v", err)
	}
}
