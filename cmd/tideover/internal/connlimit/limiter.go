// Package connlimit limits how many connections a server keeps open, in all and from one address, so that a
// flood of connections leaves descriptors and memory for everything else.
//
// When a limit is reached, a new connection takes the place of one that is not in use: of the oldest that
// has not sent a complete request within a second, or of the one that has been idle for longest. If all are
// in use, the new connection is refused.
package connlimit

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Reason is which limit was reached.
type Reason string

// The limits.
const (
	ListenerLimit Reason = "listener-limit" // connections in all
	AddressLimit  Reason = "address-limit"  // connections from one address
	RequestLimit  Reason = "request-limit"  // requests at once, which HTTP/2 can have many of on a connection
)

// Reasons are all of them.
var Reasons = []Reason{ListenerLimit, AddressLimit, RequestLimit}

const (
	noticeEvery = time.Minute // how often OnLimit is called, at most
	requestTime = time.Second // how long a connection may take to its first request, if others need its place
)

// Limiter counts the connections of one listener. The exported fields are set before it is used.
type Limiter struct {
	Max        int // connections at once; 0 means no limit
	PerAddress int // connections at once from an address, or from a /64 network of IPv6; 0 means no limit
	Requests   int // requests at once through [Limiter.LimitRequests]; 0 means no limit

	// OnLimit is called when a limit is reached, at most once a minute. It must not block.
	OnLimit func(Reason)

	mu       sync.Mutex
	open     int
	requests int
	from     map[netip.Prefix]int
	fresh    list.List // connections without a complete request, the oldest first
	idle     list.List // connections between two requests, the one that is idle for longest first
	refused  map[Reason]uint64
	closed   map[Reason]uint64
	noticed  time.Time
}

// Stats are what a limiter has counted.
type Stats struct {
	Open    int               // connections now
	Refused map[Reason]uint64 // connections and requests that were refused, because all others were in use
	Closed  map[Reason]uint64 // connections that were not in use and were closed for others
}

// Stats returns what was counted.
func (l *Limiter) Stats() Stats {
	s := Stats{Refused: map[Reason]uint64{}, Closed: map[Reason]uint64{}}
	if l == nil {
		return s
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Open = l.open
	for _, r := range Reasons {
		s.Refused[r], s.Closed[r] = l.refused[r], l.closed[r]
	}
	return s
}

// conn is a connection that is counted.
type conn struct {
	net.Conn
	limiter *Limiter
	address netip.Prefix

	// Guarded by the limiter's mutex.
	in      *list.List // fresh, idle, or nil while the connection is in use
	since   time.Time  // when it was accepted
	place   *list.Element
	removed bool
}

// addressOf returns what connections are counted by: the address, or the network that one host of IPv6 has
// for itself.
func addressOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}

// admit counts the connection, or returns nil if there is no room for it.
func (l *Limiter) admit(c net.Conn) *conn {
	own := &conn{Conn: c, limiter: l, address: addressOf(c.RemoteAddr()), since: time.Now()}
	victims, ok := l.makeRoom(own)
	for _, v := range victims {
		_ = v.Conn.Close() // it is not counted any more
	}
	if !ok {
		return nil
	}
	return own
}

// makeRoom adds the connection, if necessary in place of others, which it returns. It reports whether there
// was room.
func (l *Limiter) makeRoom(c *conn) (victims []*conn, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from == nil {
		l.from, l.refused, l.closed = map[netip.Prefix]int{}, map[Reason]uint64{}, map[Reason]uint64{}
	}
	for {
		var reason Reason
		var victim *conn
		switch {
		case l.PerAddress > 0 && c.address.IsValid() && l.from[c.address] >= l.PerAddress:
			reason, victim = AddressLimit, l.unused(func(v *conn) bool { return v.address == c.address })
		case l.Max > 0 && l.open >= l.Max:
			reason, victim = ListenerLimit, l.unused(func(*conn) bool { return true })
		default:
			l.open++
			l.from[c.address]++
			c.enter(&l.fresh)
			return victims, true
		}
		l.notice(reason)
		if victim == nil {
			l.refused[reason]++
			return victims, false
		}
		l.closed[reason]++
		victim.remove()
		victims = append(victims, victim)
	}
}

// unused returns the connection that is closed first among those that are not in use: one that has had its
// time to send a request, one that is idle, or one that was only just accepted.
func (l *Limiter) unused(wanted func(*conn) bool) *conn {
	fresh := first(&l.fresh, wanted)
	if fresh != nil && time.Since(fresh.since) >= requestTime {
		return fresh
	}
	if idle := first(&l.idle, wanted); idle != nil {
		return idle
	}
	return fresh
}

func first(in *list.List, wanted func(*conn) bool) *conn {
	for e := in.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*conn); wanted(c) { //nolint:forcetypeassert // there is nothing else in it
			return c
		}
	}
	return nil
}

// notice calls OnLimit, unless it was called shortly before.
func (l *Limiter) notice(r Reason) {
	if now := time.Now(); l.OnLimit != nil && now.Sub(l.noticed) >= noticeEvery {
		l.noticed = now
		l.OnLimit(r)
	}
}

// enter puts the connection at the end of the list, which may be nil.
func (c *conn) enter(in *list.List) {
	if c.in != nil {
		c.in.Remove(c.place)
		c.place = nil
	}
	if c.in = in; in != nil {
		c.place = in.PushBack(c)
	}
}

// remove ends the counting of the connection.
func (c *conn) remove() {
	if c.removed {
		return
	}
	c.removed = true
	c.enter(nil)
	l := c.limiter
	l.open--
	if l.from[c.address]--; l.from[c.address] == 0 {
		delete(l.from, c.address)
	}
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.limiter.mu.Lock()
	c.remove()
	c.limiter.mu.Unlock()
	return c.Conn.Close()
}

// ConnState is the hook of an [http.Server] by which limiters know which connections are in use.
func ConnState(c net.Conn, state http.ConnState) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	own, ok := c.(*conn)
	if !ok {
		return
	}
	own.limiter.mu.Lock()
	defer own.limiter.mu.Unlock()
	switch {
	case own.removed:
	case state == http.StateIdle:
		own.enter(&own.limiter.idle)
	case state == http.StateActive || state == http.StateHijacked:
		own.enter(nil)
	}
}

// LimitRequests returns a handler that calls next for at most l.Requests requests at once, and calls
// refuse for the others.
func (l *Limiter) LimitRequests(next, refuse http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !l.enterRequest() {
			refuse.ServeHTTP(w, r)
			return
		}
		defer l.leaveRequest()
		next.ServeHTTP(w, r)
	})
}

func (l *Limiter) enterRequest() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Requests > 0 && l.requests >= l.Requests {
		if l.refused == nil {
			l.refused = map[Reason]uint64{}
		}
		l.refused[RequestLimit]++
		l.notice(RequestLimit)
		return false
	}
	l.requests++
	return true
}

func (l *Limiter) leaveRequest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests--
}
