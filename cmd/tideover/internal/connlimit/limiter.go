// Package connlimit limits the number of open connections of a server, in total and per address, so that a
// flood of connections leaves descriptors and memory for everything else.
//
// When a limit is reached, a new connection replaces one that is not in use: the oldest one without a
// complete request after a second, or the one that has been idle for longest. If all are in use, the new
// connection is rejected.
package connlimit

import (
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Reason is the limit that was reached.
type Reason string

// The limits.
const (
	ListenerLimit Reason = "listener-limit" // connections in total
	AddressLimit  Reason = "address-limit"  // connections from one address
	RequestLimit  Reason = "request-limit"  // concurrent requests, of which HTTP/2 can have many on a connection
)

// Reasons are all limits.
var Reasons = []Reason{ListenerLimit, AddressLimit, RequestLimit}

const (
	noticeEvery = time.Minute // minimum time between calls of OnLimit
	requestTime = time.Second // time to the first request after which a connection may be replaced
)

// Limiter counts the connections of one listener. Set the exported fields before using it.
type Limiter struct {
	Max        int // concurrent connections; 0 means no limit
	PerAddress int // concurrent connections from an address, or from a /64 network of IPv6; 0 means no limit
	Requests   int // concurrent requests through [Limiter.LimitRequests]; 0 means no limit

	// OnLimit is called when a limit is reached, at most once a minute. It must not block.
	OnLimit func(Reason)

	requests atomic.Int64

	mu      sync.Mutex
	open    []*conn
	from    map[netip.Prefix]int
	refused map[Reason]uint64
	closed  map[Reason]uint64
	noticed time.Time
}

// Stats are the counts of a limiter.
type Stats struct {
	Open    int               // current connections
	Refused map[Reason]uint64 // rejected connections and requests, because all others were in use
	Closed  map[Reason]uint64 // unused connections that were closed for new ones
}

// Stats returns the counts.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{len(l.open), maps.Clone(l.refused), maps.Clone(l.closed)}
}

// conn is a counted connection.
type conn struct {
	net.Conn
	limiter *Limiter
	address netip.Prefix
	since   time.Time // when it was accepted

	// idle is noRequestYet, inUse, or the time in ns from since to the moment at which it became
	// idle. It changes with each request, without the limiter's mutex.
	idle atomic.Int64

	index int // in the limiter's list; -1 after removal; guarded by its mutex
}

// States of a connection that is not idle.
const (
	noRequestYet = 0
	inUse        = -1
)

// addressOf returns the key for counting: the address, or the /64 network, which one IPv6 host has
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
		_ = v.Conn.Close() // no longer counted
	}
	if !ok {
		return nil
	}
	return own
}

// makeRoom adds the connection, if necessary in place of others, which it returns. ok is false if
// there is no room.
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
		case l.Max > 0 && len(l.open) >= l.Max:
			reason, victim = ListenerLimit, l.unused(func(*conn) bool { return true })
		default:
			l.from[c.address]++
			c.index = len(l.open)
			l.open = append(l.open, c)
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

// unused returns the unused connection to close first: the oldest one that had its time to send a
// request, the one that is idle for longest, or the oldest one that was just accepted. The search
// takes microseconds, and happens only at the limit.
func (l *Limiter) unused(wanted func(*conn) bool) *conn {
	var fresh, idle *conn
	var idleSince time.Time
	for _, c := range l.open {
		state := c.idle.Load()
		switch {
		case state == inUse || !wanted(c):
		case state == noRequestYet:
			if fresh == nil || c.since.Before(fresh.since) {
				fresh = c
			}
		default:
			if since := c.since.Add(time.Duration(state)); idle == nil || since.Before(idleSince) {
				idle, idleSince = c, since
			}
		}
	}
	if fresh != nil && time.Since(fresh.since) >= requestTime || idle == nil {
		return fresh
	}
	return idle
}

// notice calls OnLimit, unless it was called shortly before.
func (l *Limiter) notice(r Reason) {
	if now := time.Now(); l.OnLimit != nil && now.Sub(l.noticed) >= noticeEvery {
		l.noticed = now
		l.OnLimit(r)
	}
}

// remove removes the connection from the counts.
func (c *conn) remove() {
	l := c.limiter
	if c.index < 0 {
		return
	}
	last := l.open[len(l.open)-1]
	l.open[c.index], last.index = last, c.index
	l.open[len(l.open)-1] = nil
	l.open = l.open[:len(l.open)-1]
	c.index = -1
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

// ConnState is a hook for [http.Server], by which limiters know which connections are in use.
func ConnState(c net.Conn, state http.ConnState) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	own, ok := c.(*conn)
	if !ok {
		return
	}
	switch state {
	case http.StateIdle:
		own.idle.Store(max(int64(time.Since(own.since)), 1))
	case http.StateActive, http.StateHijacked:
		own.idle.Store(inUse)
	}
}

// LimitRequests returns a handler that calls next for at most l.Requests requests at once, and calls
// refuse for the others.
func (l *Limiter) LimitRequests(next, refuse http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := l.requests.Add(1); l.Requests > 0 && n > int64(l.Requests) {
			l.requests.Add(-1)
			l.countRefused()
			refuse.ServeHTTP(w, r)
			return
		}
		defer l.requests.Add(-1)
		next.ServeHTTP(w, r)
	})
}

// countRefused counts a request that was refused.
func (l *Limiter) countRefused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused == nil {
		l.refused = map[Reason]uint64{}
	}
	l.refused[RequestLimit]++
	l.notice(RequestLimit)
}

// Numbers for the division of file descriptors; see docs/security.md.
const (
	DefaultMax = 4096 // maximum connections of the TCP listener, if there are enough descriptors

	ownFiles      = 128 // databases, locks, logs, relays, connections of notifiers
	perAttempt    = 8   // pipes of a command and its guard, while it runs
	perConnection = 3   // the connection, the one to a provider, and the file of a large body
	maxSocket     = 512 // connections of the owner's socket
	leastOfAll    = 16
)

// Budget is the division of the file descriptors of a process.
type Budget struct {
	Descriptors int // limit of the process
	Reserve     int // for files, commands and the owner's socket
	Socket      int // connections of the owner's socket, a part of Reserve
	Connections int // possible connections of the TCP listener
}

// Divide divides the descriptors between connections and everything else, for a process with this
// many concurrent attempts. At least a quarter is for connections.
func Divide(descriptors, attempts int) Budget {
	b := Budget{Descriptors: descriptors, Socket: max(min(maxSocket, descriptors/8), leastOfAll)}
	b.Reserve = min(ownFiles+perAttempt*attempts+b.Socket, descriptors/4*3)
	b.Connections = max((descriptors-b.Reserve)/perConnection, leastOfAll)
	return b
}

// Default returns the default maximum of connections of the TCP listener.
func (b Budget) Default() int { return min(b.Connections, DefaultMax) }
