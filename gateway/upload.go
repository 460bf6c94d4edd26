package gateway

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/clock"
)

// upload measures how long the gateway waits for the body of a request. That time is the
// caller's: it does not count against the provider.
type upload struct {
	writer http.ResponseWriter // of the answer; nil means that the request has no body

	since atomic.Int64 // reading of the clock since which it waits; 0 means that it does not
	total atomic.Int64 // of the waits that are over

	ended   atomic.Bool // all of the body was read, or it can't be read
	stopped atomic.Bool // the gateway has ended a wait, and the server cancels the request
}

func (u *upload) begin() { u.since.Store(int64(clock.Now())) }

func (u *upload) end() {
	if since := u.since.Swap(0); since > 0 {
		u.total.Add(int64(clock.Now()) - since)
	}
}

// waits reports whether the gateway waits for the caller.
func (u *upload) waits() bool { return u.since.Load() > 0 }

// waited returns how long the gateway has waited so far.
func (u *upload) waited() time.Duration {
	total := u.total.Load()
	if since := u.since.Load(); since > 0 {
		total += int64(clock.Now()) - since
	}
	return time.Duration(total)
}

// drainTime is how long a server reads what a caller has sent already, before it answers
// that the time of the request is over.
const drainTime = 100 * time.Millisecond

// stop ends the wait for a body of which the rest is of no use. A server reads a body to
// its end before it answers, so that a caller which sends nothing would hold up the answer.
func (u *upload) stop() {
	if u == nil || u.writer == nil || u.ended.Load() || !u.stopped.CompareAndSwap(false, true) {
		return
	}
	at := time.Now()
	if !u.waits() {
		at = at.Add(drainTime)
	}
	_ = http.NewResponseController(u.writer).SetReadDeadline(at) // not all writers have one
}
