package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
)

var _ admin.RequestRecord = (*gateway.Gateway)(nil)

// recordedRequests is a record with one request that has all fields set, and one that has few.
type recordedRequests struct{}

func (recordedRequests) list() []gateway.RequestInfo {
	return []gateway.RequestInfo{
		{
			Call: 4711, Time: *moment("2026-11-17T12:00:00Z"), Provider: "claude", Route: "POST /v1/messages", Model: "m", Outcome: gateway.RequestFailed, Status: 503,
			From: "claude", Code: "gave_up", Reason: "attempts", Error: "gave up", Seconds: 2, Waited: 1, Attempts: 1, Failovers: 1, RequestBytes: 1, ResponseBytes: 2,
			InputTokens: 3, OutputTokens: 4, Sampled: true, Omitted: 5,
			Steps: []gateway.RequestStep{{
				Kind: gateway.StepAttempt, At: 1, Seconds: 1, Open: true, Provider: "claude", To: "plain", Key: "k", By: "policy",
				Result: gateway.AttemptFailed, Status: 503, Hedge: true, Probe: true, Why: "status 503",
			}},
		},
		{Call: 4710, Time: *moment("2026-11-17T11:00:00Z"), Outcome: gateway.RequestRejected, Route: "GET /x", Status: 401},
	}
}

// Requests implements [admin.RequestRecord]. It selects by outcome only.
func (r recordedRequests) Requests(f gateway.RequestFilter) (list []gateway.RequestInfo) {
	for _, i := range r.list() {
		if (f.Outcome == "" || i.Outcome == f.Outcome) && (f.Least == 0 || i.Seconds >= f.Least.Seconds()) && (f.Limit == 0 || len(list) < f.Limit) {
			list = append(list, i)
		}
	}
	return list
}

// Request implements [admin.RequestRecord].
func (r recordedRequests) Request(call uint64) (gateway.RequestInfo, bool) {
	for _, i := range r.list() {
		if i.Call == call {
			return i, true
		}
	}
	return gateway.RequestInfo{}, false
}

func TestRequests(t *testing.T) {
	t.Parallel()
	f := serve(t, func(*fixture, *engine.Config) {})
	for _, tt := range []struct {
		query string
		calls string // ids in the list
		bad   string // field with the problem; "" means none
	}{
		{"", "4711 4710", ""},
		{"?outcome=rejected", "4710", ""},
		{"?min_duration=1500ms", "4711", ""},
		{"?limit=1", "4711", ""},
		{"?provider=claude&status=503", "4711 4710", ""},
		{"?outcome=lost", "", "outcome"},
		{"?status=6xx", "", "status"},
		{"?status=+99", "", "status"},
		{"?min_duration=long", "", "min_duration"},
		{"?min_duration=-1s", "", "min_duration"},
		{"?limit=0", "", "limit"},
		{"?limit=1001", "", "limit"},
		{"?after=x", "", "after"},
	} {
		a := f.ask(false, "GET", Prefix+"requests"+tt.query, "")
		if tt.bad != "" {
			if p := a.problem(t); a.status != http.StatusBadRequest || p.Field != tt.bad {
				t.Errorf("%s: %d %s, want a problem of %s", tt.query, a.status, a.text, tt.bad)
			}
			continue
		}
		var list admin.RequestList
		if err := json.Unmarshal([]byte(a.text), &list); err != nil || a.status != http.StatusOK {
			t.Errorf("%s: %d %s", tt.query, a.status, a.text)
		}
		var calls []string
		for _, r := range list.Requests {
			calls = append(calls, map[uint64]string{4711: "4711", 4710: "4710"}[r.Call])
			if r.Steps != nil {
				t.Errorf("%s: the list has steps", tt.query)
			}
		}
		if got := strings.Join(calls, " "); got != tt.calls || list.Since.IsZero() {
			t.Errorf("%s: %s since %v, want %s", tt.query, got, list.Since, tt.calls)
		}
	}
	for id, want := range map[string]string{
		"4711": `"key":"k"`, "4710": `"rejected"`, "4712": "no such request: \\\"4712\\\"", "x": "an id is the number in the header X-Tideover-Call of a response",
	} {
		if a := f.ask(false, "GET", Prefix+"requests/"+id, ""); !strings.Contains(a.text, want) {
			t.Errorf("%s: %s, want %s", id, a.text, want)
		}
	}
	if a := f.ask(true, "GET", Prefix+"requests", ""); a.status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", a.status)
	}
}
