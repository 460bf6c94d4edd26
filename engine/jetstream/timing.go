package jetstream

import "time"

// timing is derived from the lease time. The values in brackets are those of the
// default, 12 s.
type timing struct {
	beat    time.Duration // between two heartbeats (1 s)
	fresh   time.Duration // the silence of others counts only if a heartbeat of our own arrived within it (2 s)
	cutOff  time.Duration // without a connection, our leases end so long after our last heartbeat (2.5 s)
	gone    time.Duration // a member that is silent so long and has no connection is expelled (3 s)
	ended   time.Duration // our leases end so long after our last heartbeat (11 s)
	expelAt time.Duration // a member that is silent so long is expelled (12 s)
}

// timingOf returns the timing for a lease time. A member ends its own leases before
// others may expel it: cutOff < gone and ended < expelAt. The lease time must be
// longer than a bucket may be without a leader, and elections of JetStream take 4 to
// 9 seconds: otherwise all leases end when one server does.
func timingOf(lease time.Duration) timing {
	return timing{
		beat:    lease / 12,
		fresh:   lease / 6,
		cutOff:  lease * 5 / 24,
		gone:    lease / 4,
		ended:   lease * 11 / 12,
		expelAt: lease,
	}
}

// heartbeatState says whether the others take this member for alive. It is not safe
// for use by several goroutines.
type heartbeatState struct {
	timing timing
	last   time.Time // when the last heartbeat was begun that arrived
	down   bool      // there is no connection
}

// arrived records a heartbeat that was begun at the time and has arrived.
func (h *heartbeatState) arrived(begun time.Time) {
	if begun.After(h.last) {
		h.last = begun
	}
}

// left returns how long our leases remain valid without another heartbeat.
func (h *heartbeatState) left(now time.Time) time.Duration {
	limit := h.timing.ended
	if h.down {
		limit = h.timing.cutOff
	}
	return h.last.Add(limit).Sub(now)
}

// fresh reports whether our own heartbeats arrive, so that the silence of others
// means something.
func (h *heartbeatState) fresh(now time.Time) bool { return now.Sub(h.last) < h.timing.fresh }
