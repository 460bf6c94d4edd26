package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/gateway"
)

func exampleRequests() []gateway.RequestInfo {
	return []gateway.RequestInfo{
		{
			Call: 6412873465128734, Time: at(-time.Minute), Provider: "anthropic", Route: "POST /v1/messages", Model: "big", Outcome: gateway.RequestSucceeded, Status: 200, From: "backup",
			Seconds: 4.25, Waited: 3.5, Attempts: 4, Failovers: 1, RequestBytes: 2048, ResponseBytes: 70000, InputTokens: 512, OutputTokens: 1024,
			Steps: []gateway.RequestStep{
				{Kind: gateway.StepAttempt, Provider: "anthropic", Key: "team-a", Result: gateway.AttemptThrottled, Status: 429, Seconds: 0.1, Why: "status 429 Too Many Requests, asks to wait 2s"},
				{Kind: gateway.StepWait, At: 0.1, Seconds: 2, By: "server"},
				{Kind: gateway.StepAttempt, At: 2.1, Provider: "anthropic", Key: "team-b", Result: gateway.AttemptFailed, Status: 503, Seconds: 0.2, Why: "status 503\x1b[2J"},
				{Kind: gateway.StepWait, At: 2.3, Seconds: 1.5, By: gateway.WaitGate, Provider: "anthropic"},
				{Kind: gateway.StepAttempt, At: 3.8, Provider: "anthropic", Key: "team-b", Result: gateway.AttemptFailed, Probe: true, Seconds: 0.01, Why: "connection refused"},
				{Kind: gateway.StepFailover, At: 3.81, Provider: "anthropic", To: "backup", Why: "down"},
				{Kind: gateway.StepNotUsed, At: 3.81, Provider: "eu", Why: "the query has a parameter that is not in its forward-query: colour"},
				{Kind: gateway.StepAttempt, At: 3.81, Provider: "backup", Key: "1", Result: gateway.AttemptSucceeded, Status: 200, Hedge: true, Seconds: 0.4},
			},
			Omitted: 2,
		},
		{
			Call: 5412873465128735, Time: at(-2 * time.Second), Provider: "openai", Route: "GET /v1/models", Outcome: gateway.InProgress, Seconds: 2, Waited: 1.9, Attempts: 1,
			Steps: []gateway.RequestStep{{Kind: gateway.StepWait, Seconds: 1.9, Open: true, By: gateway.WaitKey, Provider: "openai"}},
		},
		{
			Call: 4512873465128736, Time: at(-time.Hour), Route: "GET /p/opnai/v1/models", Outcome: gateway.RequestRejected, Status: 404, Code: "unknown_provider", Reason: "unknown_provider",
			Error: "no such provider; configured: openai", Seconds: 0.0002,
		},
	}
}

func TestHowRequestsLook(t *testing.T) {
	t.Parallel()
	all := exampleRequests()
	list := &admin.RequestList{Requests: all}
	for name, s := range map[string]screen{
		"requests.txt":        {now: noon, zone: time.UTC},
		"requests-80.txt":     {now: noon, zone: time.UTC, terminal: true, width: 80},
		"requests-colour.txt": {now: noon, zone: time.UTC, terminal: true, width: 120, colour: true},
	} {
		goldenLines(t, name, renderRequests(list, &s))
	}
	for i, name := range []string{"requests-show.txt", "requests-show-open.txt", "requests-show-rejected.txt"} {
		goldenLines(t, name, renderRequest(&all[i], &screen{now: noon, zone: time.UTC}))
	}
	if got := renderRequests(&admin.RequestList{Off: true}, &screen{}); len(got) != 1 || got[0] != "no requests: "+admin.NoRequestsKept {
		t.Errorf("a server that keeps none: %q", got)
	}
	if got := renderRequests(&admin.RequestList{}, &screen{}); len(got) != 1 || got[0] != noRequests {
		t.Errorf("no requests: %q", got)
	}
}

func TestFlagsOfRequests(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		f    gateway.RequestFilter
		want string // part of the error; "" means none
	}{
		{gateway.RequestFilter{Limit: 20}, ""},
		{gateway.RequestFilter{Limit: 1000, Outcome: "failed", Status: "5xx", Least: time.Second}, ""},
		{gateway.RequestFilter{Limit: 0}, "--limit: 0 is not between 1 and 1000"},
		{gateway.RequestFilter{Limit: 1, Outcome: "lost"}, "--outcome: unknown outcome \"lost\"; want one of in-progress,"},
		{gateway.RequestFilter{Limit: 1, Status: "60x"}, "--status: \"60x\" is neither"},
		{gateway.RequestFilter{Limit: 1, Status: "999"}, "--status: \"999\" is neither"},
		{gateway.RequestFilter{Limit: 1, Least: -1}, "--min-duration: -1ns is negative"},
	} {
		err := (&requestsOptions{filter: tt.f}).check()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v, want %q", tt.f, err, tt.want)
		}
	}
}
