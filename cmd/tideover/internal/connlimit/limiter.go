// Package connlimit limits the number of open connections of a server, in total and per address, so that a
// flood of connections leaves descriptors and memory for everything else.
//
// When a limit is reached, a new connection replaces one that is not in use: the oldest connection that
// has sent no complete request within a second, or else the one that has been idle for longest. If all
// connections are in use, the new connection is rejected.
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

// Reason names the limit because of which a connection or a request was rejected, or an unused
// connection was closed.
type Reason string

// The limits of a [Limiter].
const (
	ListenerLimit Reason = "listener-limit" // connections in total
	AddressLimit  Reason = "address-limit"  // connections from one address
	RequestLimit  Reason = "request-limit"  // concurrent requests; one HTTP/2 connection can have many
)

// Reasons lists all values of [Reason].
var Reasons = []Reason{ListenerLimit, AddressLimit, RequestLimit}

const (
	noticeEvery = time.Minute // minimum time between calls of OnLimit
	requestTime = time.Second // how long a new connection may take to send its first request before it is replaced first
)

// Limiter limits the connections of one listener. Set the exported fields before using it.
type Limiter struct {
	Max        int // concurrent connections; 0 means no limit
	PerAddress int // concurrent connections from an IPv4 address or a /64 network of IPv6; 0 means no limit
	Requests   int // concurrent requests through [Limiter.LimitRequests]; 0 means no limit

	// OnLimit is called when a limit is reached, at most once a minute. It must not block.
	OnLimit func(Reason)

	requests atomic.Int64 // current requests of LimitRequests

	mu      sync.Mutex
	open    []*conn
	from    map[netip.Prefix]int // number of open connections by address
	refused map[Reason]uint64
	closed  map[Reason]uint64
	noticed time.Time // last call of OnLimit
}

// Stats are the counts of a limiter.
type Stats struct {
	Open    int               // current connections
	Refused map[Reason]uint64 // connections and requests that were rejected because all others were in use
	Closed  map[Reason]uint64 // unused connections that were closed to make room for new ones
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

	// idle is noRequestYet, inUse, or the nanoseconds from since until the connection became idle.
	// It is atomic because it changes with each request, without the limiter's mutex.
	idle atomic.Int64

	index int // in limiter.open; -1 after removal; guarded by limiter.mu
}

// Values of conn.idle for a connection that is not idle.
const (
	noRequestYet = 0
	inUse        = -1
)

// addressOf returns the key by which connections are counted: the IPv4 address, or the /64 network
// of an IPv6 address, since one host usually has a whole /64 network. For a Unix socket it returns
// an invalid prefix.
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

// admit adds the connection to the counts, and closes unused ones to make room for it. It returns nil if
// there is no room.
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

// makeRoom adds the connection to the counts. If necessary, it first removes unused connections, which it
// returns; the caller must close them. ok is false if there is no room.
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

// unused returns the unused connection to close first, among those that wanted accepts: the oldest that
// sent no request within requestTime, else the one that is idle for longest, else the oldest that has
// sent no request yet. It returns nil if all are in use. It searches all connections, which takes
// microseconds and happens only at the limit.
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

// notice calls OnLimit, unless it was called less than noticeEvery ago.
func (l *Limiter) notice(r Reason) {
	if now := time.Now(); l.OnLimit != nil && now.Sub(l.noticed) >= noticeEvery {
		l.noticed = now
		l.OnLimit(r)
	}
}

// remove removes the connection from the counts, if it is still counted. The caller must hold the
// limiter's mutex.
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

// ConnState is the ConnState hook for [http.Server]. It tells limiters which connections are in use.
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

// LimitRequests returns a handler that passes at most l.Requests concurrent requests to next, and the
// others to refuse.
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

// Numbers for the division of file descriptors by [Divide].
const (
	DefaultMax = 4096 // maximum connections of the TCP listener, if there are enough descriptors

	ownFiles      = 128 // databases, locks, logs, relays, connections of notifiers
	perAttempt    = 8   // pipes of a command and its guard, while it runs
	perConnection = 3   // the connection, the one to a provider, and the file of a large body
	maxSocket     = 512 // most connections of the Unix socket
	leastOfAll    = 16  // least number of connections of each listener
)

// Budget is the division of the file descriptors of a process.
type Budget struct {
	Descriptors int // limit of the process
	Reserve     int // descriptors for files, commands and the Unix socket
	Socket      int // most connections of the Unix socket, a part of Reserve
	Connections int // most connections of the TCP listener
}

// Divide divides the descriptors of a process between TCP connections and everything else. attempts is
// the number of concurrent attempts. TCP connections get at least a quarter of the descriptors.
func Divide(descriptors, attempts int) Budget {
	b := Budget{Descriptors: descriptors, Socket: max(min(maxSocket, descriptors/8), leastOfAll)}
	b.Reserve = min(ownFiles+perAttempt*attempts+b.Socket, descriptors/4*3)
	b.Connections = max((descriptors-b.Reserve)/perConnection, leastOfAll)
	return b
}

// Default returns the default limit of connections of the TCP listener.
func (b Budget) Default() int { return min(b.Connections, DefaultMax) }
