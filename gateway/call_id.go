package gateway

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"sync/atomic"
)

// headerCall is the header of a response that has the id of its request. Events, log lines and
// the record of the request have the same id.
const headerCall = "X-Tideover-Call"

// callBits is the number of bits of an id without the highest, which is always set. So ids have
// 16 digits, and fit into the numbers of JavaScript.
const callBits = 52

// callIDs makes the ids of requests. They are unique in a process and unlikely to repeat after a
// restart. They are no secret.
type callIDs struct {
	last   atomic.Uint64
	factor uint64 // odd, so that different counts have different ids
	offset uint64
}

func newCallIDs() *callIDs { return &callIDs{factor: rand.Uint64() | 1, offset: rand.Uint64()} }

// next returns the id of a new request, and its number in the order of arrival.
func (c *callIDs) next() (id, number uint64) {
	number = c.last.Add(1)
	const top = 1 << callBits
	return (number*c.factor+c.offset)&(top-1) | top, number
}

// callOf returns the id of the request that a context belongs to.
func callOf(ctx context.Context) uint64 {
	if r := requestFrom(ctx); r != nil {
		return r.call
	}
	return 0
}

// setCall sets the id of the request in the headers of its response. It replaces an id that the
// provider has set: a provider may be another gateway.
func (r *request) setCall(h http.Header) { h[headerCall] = r.callHeader[:] }

// identify gives the request its id.
func (r *request) identify(ids *callIDs) {
	r.call, r.number = ids.next()
	r.callHeader[0] = strconv.FormatUint(r.call, 10)
}

// watchInterim sets the id of the request in interim responses, such as 103. The proxy passes
// these on by itself; ctx is the context of its request.
func (r *request) watchInterim(ctx context.Context) {
	trace := httptrace.ContextClientTrace(ctx)
	if trace == nil || trace.Got1xxResponse == nil {
		return
	}
	pass := trace.Got1xxResponse
	trace.Got1xxResponse = func(code int, header textproto.MIMEHeader) error {
		r.setCall(http.Header(header))
		return pass(code, header)
	}
}
