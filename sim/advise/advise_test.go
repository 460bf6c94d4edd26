package advise_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/sim"
	"github.com/tideover/tideover/sim/advise"
)

// service is small, so that the tests are quick.
var service = advise.Service{Rate: 10, Capacity: 20, Latency: 100 * time.Millisecond, Errors: 0.02, Outage: 10 * time.Second}

// quickOptions simulate as little as possible.
var quickOptions = advise.Options{Seeds: 5}

func advice(t *testing.T, r advise.Request, o advise.Options) *advise.Advice {
	t.Helper()
	for i := range r.Cases {
		r.Cases[i].Scenario.Duration = min(r.Cases[i].Scenario.Duration, 45*time.Second)
	}
	a, err := advise.For(t.Context(), r, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTheSameSeedGivesTheSameAdvice(t *testing.T) {
	t.Parallel()
	r := advise.Request{Cases: service.Cases(advise.Goal{Success: 0.99})[:1]}
	var texts [2]string
	for i, workers := range []int{1, 3} {
		o := quickOptions
		o.Seed, o.Workers = 7, workers
		text, err := json.Marshal(advice(t, r, o))
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	if texts[0] != texts[1] {
		t.Errorf("one worker: %s\nthree:      %s", texts[0], texts[1])
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	good := service.Cases(advise.Goal{Success: 0.99})
	writers, _ := sim.Preset("contention")
	tests := []struct {
		name    string
		request advise.Request
		options advise.Options
		want    []string
	}{
		{"nothing", advise.Request{}, quickOptions, []string{"cases: the list is empty"}},
		{"no goal", advise.Request{Cases: service.Cases(advise.Goal{})}, quickOptions, []string{"goal: there is none"}},
		{
			"a bad goal", advise.Request{Cases: []advise.Case{{Scenario: good[0].Scenario, Goal: advise.Goal{
				Success: 1, P99: -1, Amplification: 0.5, Recovery: -1,
			}}}}, quickOptions, []string{"success: 1 ", "p99: -1ns", "amplification: 0.5", "recovery: -1ns"},
		},
		{"no number", advise.Request{Cases: []advise.Case{{Scenario: good[0].Scenario, Goal: advise.Goal{Success: math.NaN()}}}}, quickOptions, []string{"success: NaN"}},
		{"a bad scenario", advise.Request{Cases: []advise.Case{{Goal: advise.Goal{Success: 0.9}}}}, quickOptions, []string{"cases[0]: ", "name"}},
		{"nothing ends", advise.Request{Cases: []advise.Case{{Scenario: good[0].Scenario, Goal: advise.Goal{Recovery: time.Second}}}}, quickOptions, []string{"recovery: scenario"}},
		{"both kinds", advise.Request{Cases: append(good[:1:1], advise.Case{Scenario: writers})}, quickOptions, []string{"make a request for each kind"}},
		{"twice", advise.Request{Cases: append(good[:1:1], good[0])}, quickOptions, []string{"cases[1]: there is a scenario"}},
		{"deadline", advise.Request{Cases: good, Deadline: -1}, quickOptions, []string{"deadline: -1ns"}},
		{"seeds", advise.Request{Cases: good}, advise.Options{Seeds: 1}, []string{"seeds: 1"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a, err := advise.For(t.Context(), test.request, test.options)
			if err == nil {
				t.Fatalf("advised %s", a.Policy)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("nothing about %q in\n%v", want, err)
				}
			}
		})
	}
}

func TestBadServices(t *testing.T) {
	t.Parallel()
	err := advise.Service{Rate: -1, Capacity: -2, Latency: -1, Processes: -1, Errors: 2, Outage: -1}.Validate()
	for _, want := range []string{"rate: -1", "capacity: -2", "latency: -1ns", "processes: -1", "errors: 2", "outage: -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing about %q in\n%v", want, err)
		}
	}
	if err := (advise.Service{Rate: 10, Latency: time.Second}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestStopping(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	o := quickOptions
	o.Progress = func(int, int) { cancel() }
	if _, err := advise.For(ctx, advise.Request{Cases: service.Cases(advise.Goal{Success: 0.99})}, o); !errors.Is(err, context.Canceled) {
		t.Errorf("For = %v, want that it was canceled", err)
	}
}
