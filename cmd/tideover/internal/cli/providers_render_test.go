package cli

import (
	"testing"
	"time"

	"github.com/tideover/tideover/gateway"
)

func exampleProviders() []gateway.Status {
	return []gateway.Status{
		{
			Name: "anthropic", Preset: gateway.Anthropic, Format: gateway.Anthropic, BaseURL: "https://api.anthropic.com", Policy: "exponential(1s..2m) jitter=full attempts=6",
			Fallback: []string{"anthropic-backup", "bedrock"}, State: gateway.Down, Since: later(-2 * time.Minute), Breaker: "open", InFlight: 2, Waiting: 7,
			ByClass: map[string]int{"high": 4, "lowest": 3}, TTFB: 1.844, Pressure: 0.12, Rate: &gateway.Limits{PerSecond: 0.833333, Adaptive: true, Concurrent: 8},
			Totals: gateway.Totals{
				Requests: 1000, Attempts: 1290, Sent: 1340, Retries: 330, Succeeded: 990, Failed: 6, Canceled: 4, Throttled: 120, Failovers: 41, Probes: 9, Hedges: 1, CutShort: 2, NotKept: 1, Amplified: 1.34,
			},
			Keys: []gateway.KeyInfo{
				{Name: "team-a", InFlight: 2, Score: 1.9},
				{Name: "team-b", CoolUntil: later(90 * time.Second), Reason: "429\x1b[2J", Failures: 3, Score: 12.5},
				{Name: "team-c", CoolUntil: later(3 * time.Hour), Refused: true, Reason: "402 insufficient_quota", Failures: 1},
				{Name: "team-d", CoolUntil: later(-time.Hour), Reason: "429", Failures: 0, Score: 0.4},
			},
			Recovery: &gateway.Recovery{Next: later(8 * time.Second), Expected: later(40 * time.Second), Probes: 3, Outages: 4.25, Predicted: 95},
			Outages: []gateway.Outage{
				{Began: at(-time.Hour), Ended: at(-time.Hour + 12*time.Second), Seconds: 12.25, Predicted: 10, Probes: 4, Cause: "consecutive"},
				{Began: at(-30 * time.Hour), Ended: at(-29 * time.Hour), Seconds: 3600, Predicted: 4000, Probes: 60, Cause: "rate\u202e of failures"},
				{Began: at(-50 * time.Hour), Ended: at(-50*time.Hour + time.Second), Seconds: 1, Probes: 1, Cause: "consecutive"},
				{Began: at(-60 * time.Hour), Ended: at(-55 * time.Hour), Seconds: 3, AtLeast: true, Predicted: 10, Probes: 2, Cause: "consecutive"},
				{Began: at(-70 * time.Hour), Ended: at(-69 * time.Hour), AtLeast: true, Probes: 1, Cause: "consecutive"},
			},
			Failovers: []gateway.Failover{
				{Time: at(-time.Minute), From: "anthropic", To: "anthropic-backup", Why: "down"},
				{Time: at(-time.Hour), From: "anthropic", To: "bedrock", Why: "429 on all keys\nall is well"},
			},
			Quotas: []gateway.Quota{
				{Name: "requests", Key: "team-a", Limit: 4000, Remaining: 3991, Reset: later(20 * time.Second)},
				{Name: "input-tokens", Key: "team-b", Limit: 400000, Remaining: 0, Reset: later(-time.Second)}, {Name: "credits", Key: "team-c", Remaining: 12},
			},
			Budgets: []gateway.Budget{{Route: "POST /v1/messages", Tokens: 214.4, Max: 500}},
		},
		{Name: "openai", Preset: gateway.OpenAI, Format: gateway.OpenAI, BaseURL: "https://api.openai.com/v1", State: gateway.Up, Breaker: "closed", InFlight: 12, TTFB: 0.42, Totals: gateway.Totals{Requests: 5, Attempts: 5, Amplified: 1}},
		{Name: "internal", Preset: gateway.Generic, Format: "house", BaseURL: "http://10.0.0.1", State: gateway.Up, Held: true, Breaker: "forced-closed"},
		{
			Name: "gemini", State: gateway.Throttled, Since: later(-time.Second), Waiting: 3,
			Keys: []gateway.KeyInfo{{Name: "1"}, {Name: "2"}},
			Throttles: []gateway.Throttle{
				{Key: "1", Route: "POST /v1/messages", Model: "big", Reason: "429", Until: *later(70 * time.Second), NextProbe: *later(60 * time.Second)},
				{Key: "2", Route: "POST /v1/messages", Model: "big", Reason: "429", Until: *later(12 * time.Second), NextProbe: *later(12 * time.Second)},
			},
		},
		{
			Name: "unpaid", Preset: gateway.OpenAI, Format: gateway.OpenAI, BaseURL: "https://api.openai.com/v1", State: gateway.Refused, Why: "its keys were refused (402)",
			Breaker: "closed", Keys: []gateway.KeyInfo{{Name: "1", CoolUntil: later(70 * time.Second), Refused: true, Reason: "402"}},
		},
		{Name: "slow", Breaker: "open", State: gateway.Probing, Recovery: &gateway.Recovery{Next: later(-time.Second)}, TTFB: 14.2},
		{Name: "x\x1b]0;owned\x07", State: gateway.Opened, Breaker: "forced-open"},
		{Name: "leaving", State: gateway.Draining, InFlight: 1},
	}
}

func TestHowProvidersLook(t *testing.T) {
	t.Parallel()
	all := exampleProviders()
	for name, s := range map[string]screen{
		"providers.txt":        {now: noon, zone: time.UTC},
		"providers-80.txt":     {now: noon, zone: time.UTC, terminal: true, width: 80},
		"providers-colour.txt": {now: noon, zone: time.UTC, terminal: true, width: 120, colour: true},
	} {
		goldenLines(t, name, renderProviders(all, &s))
	}
	goldenLines(t, "providers-show.txt", renderProvider(&all[0], &screen{now: noon, zone: time.UTC}))
	goldenLines(t, "providers-show-80.txt", renderProvider(&all[0], &screen{now: noon, zone: time.UTC, terminal: true, width: 80, colour: true}))
	goldenLines(t, "providers-show-held.txt", renderProvider(&all[2], &screen{now: noon, zone: time.UTC}))
	goldenLines(t, "providers-show-refused.txt", renderProvider(&all[4], &screen{now: noon, zone: time.UTC}))
	goldenLines(t, "providers-show-first.txt", renderProvider(&all[5], &screen{now: noon, zone: time.UTC}))
	if got := renderProviders(nil, &screen{}); len(got) != 1 || got[0] != "no providers: add one under providers: in the configuration; see docs/gateway.md" {
		t.Errorf("no providers: %q", got)
	}
}

func TestALineForAProvider(t *testing.T) {
	t.Parallel()
	all := exampleProviders()
	in := time.Now().Add(time.Hour)
	all[0].Keys[1].CoolUntil, all[0].Recovery.Next = &in, nil
	for i, want := range map[int]string{
		0: `anthropic down in-flight=2 waiting=7 ttfb=1.84s attempts-per-request=1.34 failovers=41 cooling="team-b 429\x1b[2J"`,
		1: "openai up in-flight=12 waiting=0 ttfb=420ms attempts-per-request=1.00 failovers=0",
		2: "internal up held in-flight=0 waiting=0 failovers=0",
	} {
		if i == 0 {
			all[0].Keys[2].CoolUntil = nil
		}
		if got := providerLine(&all[i]); got != want {
			t.Errorf("providerLine(%s) = %q, want %q", all[i].Name, got, want)
		}
	}
	before := providerMark(&all[0])
	all[0].InFlight, all[0].Waiting, all[0].TTFB = 9, 9, 9
	if got := providerMark(&all[0]); got != before {
		t.Errorf("a request makes a line: %q after %q", got, before)
	}
	all[0].Keys[0].CoolUntil = &in
	if got := providerMark(&all[0]); got == before {
		t.Error("a key that cools makes no line")
	}
	before, in = providerMark(&all[0]), in.Add(time.Millisecond)
	if got := providerMark(&all[0]); got != before {
		t.Errorf("looking again makes a line: %q after %q", got, before)
	}
}

func TestWhatAnEstimateRestsOn(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]string{
		0.04: "learned from outages long ago", 1: "learned from 1 outage", 0.5: "learned from 0.5 outages", 12: "learned from 12 outages",
	} {
		if got := learned(n); got != want {
			t.Errorf("learned(%v) = %q, want %q", n, got, want)
		}
	}
}

func TestLatency(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]string{0: "", -1: "", 0.0004: "400µs", 0.842: "842ms", 1: "1.00s", 9.994: "9.99s", 10: "10.0s", 75.6: "1m16s", 7200: "2h"} {
		if got := latency(seconds); got != want {
			t.Errorf("latency(%v) = %q, want %q", seconds, got, want)
		}
	}
}
