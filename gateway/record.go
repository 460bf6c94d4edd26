package gateway

import (
	"cmp"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

// The outcomes of requests.
const (
	InProgress       = "in-progress" // the request has not ended
	RequestSucceeded = "succeeded"   // the caller got a whole response with a status below 400
	RequestFailed    = "failed"      // the caller got an error, of the provider or of the gateway
	RequestRejected  = "rejected"    // the gateway rejected the request before any attempt
	RequestCutShort  = "cut-short"   // the response broke off after the caller had got a part of it
	RequestCanceled  = "canceled"    // the caller disconnected
)

// Outcomes lists all outcomes of requests.
var Outcomes = []string{InProgress, RequestSucceeded, RequestFailed, RequestRejected, RequestCutShort, RequestCanceled}

// RequestInfo is the record of one request, from its arrival to its end. It has no bodies, no
// headers, no query and no secrets. Its JSON is part of the HTTP API of tideover serve.
type RequestInfo struct {
	Call     uint64    `json:"call"`     // the id, which the header X-Tideover-Call of its response has
	Time     time.Time `json:"time"`     // when it arrived
	Provider string    `json:"provider"` // the provider in its URL; "" if there is no such provider
	Route    string    `json:"route"`    // method and path below the provider, with {id} in place of identifiers
	Model    string    `json:"model,omitempty"`

	Outcome string `json:"outcome"`          // one of Outcomes
	Status  int    `json:"status,omitempty"` // status that the caller got; 0 means none: not yet, or the caller disconnected before it
	From    string `json:"from,omitempty"`   // the provider that sent the response; "" means the gateway itself
	Code    string `json:"code,omitempty"`   // code of the gateway's own error response
	Reason  string `json:"reason,omitempty"` // why the gateway gave up
	Error   string `json:"error,omitempty"`  // message of the gateway's own error response

	Seconds   float64 `json:"seconds"`        // from its arrival to its end, or until now
	Waited    float64 `json:"waited_seconds"` // sum of its waits
	Attempts  int     `json:"attempts"`
	Failovers int     `json:"failovers"`

	RequestBytes  int64 `json:"request_bytes"`           // bytes of the body that the gateway has read
	ResponseBytes int64 `json:"response_bytes"`          // bytes of the body of the provider's response
	InputTokens   int64 `json:"input_tokens,omitempty"`  // as the response states it; 0 means unknown
	OutputTokens  int64 `json:"output_tokens,omitempty"` // as the response states it; 0 means unknown

	Sampled bool          `json:"sampled,omitempty"`       // it succeeded at once and was kept as a sample
	Steps   []RequestStep `json:"steps,omitempty"`         // in the order of their start
	Omitted int           `json:"steps_omitted,omitempty"` // steps in the middle that were not kept

	number uint64 // in the order of arrival, which a change of the clock does not affect
}

// The kinds of steps.
const (
	StepAttempt  = "attempt"
	StepWait     = "wait"
	StepFailover = "failover"
	StepNotUsed  = "not-used" // a fallback did not get the request
)

// The results of attempts.
const (
	AttemptSucceeded = "succeeded" // the provider answered, perhaps with an error of the caller
	AttemptFailed    = "failed"    // the provider failed
	AttemptThrottled = "throttled" // too many requests with the key
	AttemptRejected  = "rejected"  // the key is not accepted, or has no credit
	AttemptCanceled  = "canceled"  // it says nothing about the provider: the caller disconnected, another attempt was faster, or this machine lacks resources
	AttemptCutShort  = "cut-short" // the response broke off
)

// The sources of waits, in addition to those of [retry.Source], such as "policy" and "server".
const (
	WaitSlot = "slot" // the provider's limit of concurrent requests
	WaitRate = "rate" // the provider's rate limit
	WaitGate = "gate" // the provider is down, or lets waiting requests pass one by one
	WaitKey  = "key"  // all keys have to wait
)

// RequestStep is an attempt, a wait or a failover of a request, or a fallback that was not used.
type RequestStep struct {
	Kind     string  `json:"kind"`
	At       float64 `json:"at_seconds"`         // when it began, in seconds after the arrival of the request
	Seconds  float64 `json:"seconds"`            // how long it took, or has taken so far; an attempt ends when its response begins
	Open     bool    `json:"open,omitempty"`     // it has not ended
	Provider string  `json:"provider,omitempty"` // of a failover: the provider that the request leaves; "" for waits between attempts
	To       string  `json:"to,omitempty"`       // of a failover: the next provider
	Key      string  `json:"key,omitempty"`      // of an attempt: the name of its key
	By       string  `json:"by,omitempty"`       // of a wait: its source
	Result   string  `json:"result,omitempty"`   // of an attempt
	Status   int     `json:"status,omitempty"`   // of an attempt: the status; 0 means no response
	Hedge    bool    `json:"hedge,omitempty"`    // of an attempt: it began beside a slow one
	Probe    bool    `json:"probe,omitempty"`    // of an attempt: it tested whether the provider is back
	Why      string  `json:"why,omitempty"`      // of an attempt: its error; otherwise the reason
}

// RequestFilter selects requests. The zero filter selects all.
type RequestFilter struct {
	Provider string        // provider in the URL or of an attempt
	Outcome  string        // one of Outcomes
	Status   string        // such as "429" or "5xx"
	Least    time.Duration // least duration
	Limit    int           // greatest number of requests; 0 means all
}

// matches reports whether the filter selects the request.
func (f *RequestFilter) matches(r *RequestInfo) bool {
	switch {
	case f.Outcome != "" && r.Outcome != f.Outcome:
		return false
	case f.Least > 0 && r.Seconds < f.Least.Seconds():
		return false
	case f.Status != "" && !matchesStatus(f.Status, r.Status):
		return false
	case f.Provider == "" || r.Provider == f.Provider:
		return true
	}
	return slices.ContainsFunc(r.Steps, func(s RequestStep) bool { return s.Provider == f.Provider || s.To == f.Provider })
}

func matchesStatus(want string, code int) bool {
	got := strconv.Itoa(code)
	return want == got || len(got) == len(want) && want[1:] == "xx" && want[0] == got[0]
}

// The limits of the record. A request has at most maxSteps steps and strings of limited length,
// so that one request can't fill the memory.
const (
	defaultKept    = 2000
	recordBytes    = 2 << 10 // memory for each request that may be kept; long ones displace others
	maxSteps       = 64
	firstSteps     = 40 // of maxSteps: those at the beginning, which are always kept
	maxRecordText  = 300
	sampleInterval = 100 * time.Millisecond // shortest time between two samples of a provider
)

// recordStore has the records of recent requests. Each kind of record has its own ring, so that
// a flood of one kind does not displace the others.
type recordStore struct {
	off   bool
	rings [3]recordRing // by recordKind

	mu     sync.Mutex
	active map[uint64]*request // requests in progress with a timeline, by id
}

type recordKind uint8

const (
	recordTrouble  recordKind = iota // failed, waited, or moved to another key or provider
	recordSample                     // succeeded at once
	recordRejected                   // rejected before any attempt
)

// newRecordStore returns a store that keeps at most n requests; 0 means the default, and a
// negative n none.
func newRecordStore(n int) *recordStore {
	s := &recordStore{off: n < 0, active: map[uint64]*request{}}
	n = cmp.Or(max(n, 0), defaultKept)
	for kind, eighths := range [...]int{recordTrouble: 5, recordSample: 2, recordRejected: 1} {
		most := max(n/8*eighths+n%8*eighths/8, 1)
		s.rings[kind].most, s.rings[kind].mostBytes = most, most*recordBytes
	}
	return s
}

// begin adds a request in progress that has a timeline. It does nothing if the request has ended,
// because then nothing would remove it.
func (s *recordStore) begin(r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !r.ended.Load() {
		s.active[r.call] = r
	}
}

// drop removes a request that has ended and is not kept.
func (s *recordStore) drop(r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.active, r.call)
}

// find returns the request in progress with this id, if it has a timeline.
func (s *recordStore) find(call uint64) *request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active[call]
}

// end stores the record of a request that has ended.
func (s *recordStore) end(kind recordKind, r *RequestInfo) {
	s.rings[kind].push(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.active, r.Call)
}

// all returns all records, in no order. A request that ends meanwhile is there once.
func (s *recordStore) all() (list []RequestInfo) {
	s.mu.Lock()
	active := make([]*request, 0, len(s.active))
	for _, r := range s.active {
		active = append(active, r)
	}
	s.mu.Unlock()
	known := map[uint64]bool{}
	for i := range s.rings {
		for _, r := range s.rings[i].all() {
			known[r.Call] = true
			list = append(list, *r)
		}
	}
	for _, r := range active {
		if !known[r.call] {
			list = append(list, r.info())
		}
	}
	return list
}

// recordRing has the latest records of one kind. It is limited by their number and their size.
type recordRing struct {
	most, mostBytes int

	mu    sync.Mutex
	list  []*RequestInfo // a ring, whose length is a power of two
	first int            // index of the oldest record
	n     int
	bytes int
}

// push adds a record, and drops the oldest ones if the limits require it.
func (q *recordRing) push(r *RequestInfo) {
	size := r.size()
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.n > 0 && (q.n >= q.most || q.bytes+size > q.mostBytes) {
		q.bytes -= q.list[q.first].size()
		q.list[q.first] = nil
		q.first, q.n = (q.first+1)&(len(q.list)-1), q.n-1
	}
	if q.n == len(q.list) {
		q.grow()
	}
	q.list[(q.first+q.n)&(len(q.list)-1)] = r
	q.n, q.bytes = q.n+1, q.bytes+size
}

// grow doubles the ring. The caller holds q.mu.
func (q *recordRing) grow() {
	list := make([]*RequestInfo, max(1<<bits.Len(uint(len(q.list))), 8))
	for i := range q.n {
		list[i] = q.list[(q.first+i)&(len(q.list)-1)]
	}
	q.list, q.first = list, 0
}

// all returns the records, oldest first.
func (q *recordRing) all() []*RequestInfo {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := make([]*RequestInfo, q.n)
	for i := range list {
		list[i] = q.list[(q.first+i)&(len(q.list)-1)]
	}
	return list
}

// find returns the record with this id, or nil.
func (q *recordRing) find(call uint64) *RequestInfo {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.n {
		if r := q.list[(q.first+i)&(len(q.list)-1)]; r.Call == call {
			return r
		}
	}
	return nil
}

var (
	infoSize = int(reflect.TypeFor[RequestInfo]().Size())
	stepSize = int(reflect.TypeFor[RequestStep]().Size())
)

// size returns the memory of the record in bytes. Names of providers, keys, results and sources
// are shared with the configuration and do not count.
func (r *RequestInfo) size() int {
	n := infoSize + len(r.Route) + len(r.Model) + len(r.Error) + cap(r.Steps)*stepSize
	for i := range r.Steps {
		n += len(r.Steps[i].Why)
	}
	return n
}

// recordText returns a text of a record: short, and not a part of a longer text in memory.
func recordText(s string, most int) string {
	return strings.Clone(textfmt.TruncateValid(s, most, "…"))
}
