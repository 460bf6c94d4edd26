package admin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/console/control"

	"github.com/tideover/tideover/gateway"
)

// RequestRecord is the part of a [*gateway.Gateway] that [Requests] needs.
type RequestRecord interface {
	// Requests returns the kept requests that the filter selects, newest first.
	Requests(gateway.RequestFilter) []gateway.RequestInfo

	// Request returns a request by its id, and false if the gateway has not kept it.
	Request(call uint64) (gateway.RequestInfo, bool)
}

// Requests has the operations on the record of the gateway's requests.
type Requests struct {
	record  RequestRecord // nil means no gateway, or one that keeps no requests
	started time.Time
}

// RequestList is a list of requests, without their steps.
type RequestList struct {
	Requests []gateway.RequestInfo `json:"requests"`      // newest first
	Since    time.Time             `json:"since"`         // start of the server: it keeps no earlier requests
	Off      bool                  `json:"off,omitempty"` // the server keeps no requests
}

// NoRequestsKept says that the server keeps no requests, and why.
const NoRequestsKept = "the server keeps no requests, because gateway.keep-requests is 0"

// DefaultRequests is how many requests a list has by default, and MaxRequests how many it can
// have.
const (
	DefaultRequests = 100
	MaxRequests     = 1000
)

// List returns the requests that the filter selects.
func (r *Requests) List(f gateway.RequestFilter) (RequestList, error) {
	out := RequestList{Requests: []gateway.RequestInfo{}, Since: r.started, Off: r.record == nil}
	if err := CheckRequestFilter(f); err != nil || r.record == nil {
		return out, err
	}
	out.Requests = control.NotNil(r.record.Requests(f))
	for i := range out.Requests {
		out.Requests[i].Steps = nil
	}
	return out, nil
}

// CheckRequestFilter returns an error for an outcome, a status or a duration that no request can
// have.
func CheckRequestFilter(f gateway.RequestFilter) error {
	if f.Outcome != "" && !slices.Contains(gateway.Outcomes, f.Outcome) {
		return control.Invalid("outcome", "unknown outcome %q", control.Excerpt(f.Outcome)).WithHint("want one of " + strings.Join(gateway.Outcomes, ", "))
	}
	if s := f.Status; s != "" {
		class := len(s) == 3 && s[0] >= '1' && s[0] <= '5' && s[1:] == "xx"
		if n, err := strconv.Atoi(s); !class && (err != nil || n < 100 || n > 599 || len(s) != 3) {
			return control.Invalid("status", "%q is neither a status such as 429 nor a class such as 5xx", control.Excerpt(s))
		}
	}
	if f.Least < 0 {
		return control.Invalid("min_duration", "%v is negative", f.Least)
	}
	return nil
}

// Get returns a request by its id, which the header X-Tideover-Call of its response has.
func (r *Requests) Get(id string) (gateway.RequestInfo, error) {
	call, err := strconv.ParseUint(strings.TrimSpace(id), 10, 64)
	if err == nil && r.record != nil {
		if found, ok := r.record.Request(call); ok {
			found.Steps = control.NotNil(found.Steps)
			return found, nil
		}
	}
	hint := "the server keeps recent requests that failed, waited or moved, and a sample of the others, since its start"
	switch {
	case err != nil:
		hint = "an id is the number in the header X-Tideover-Call of a response"
	case r.record == nil:
		hint = NoRequestsKept
	}
	return gateway.RequestInfo{}, control.NewError(control.CodeNotFound, fmt.Sprintf("no such request: %q", control.Excerpt(id)), hint)
}

// WaitMeaning returns who or what made a request wait, in words. by is the source of the wait.
func WaitMeaning(by string) string {
	switch by {
	case "policy":
		return "the policy's delay"
	case "server":
		return "the server asked for it (Retry-After)"
	case "schedule":
		return "the policy's delay, longer because many attempts fail"
	case gateway.WaitSlot:
		return "the limit of concurrent requests was reached"
	case gateway.WaitRate:
		return "the rate limit was reached"
	case gateway.WaitGate:
		return "the provider was down"
	case gateway.WaitKey:
		return "all keys had to wait"
	}
	return by
}
