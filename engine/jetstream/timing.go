package jetstream

import "time"

// timing has the times that follow from the lease time. The values in brackets are for
// the default lease time, 12 s.
type timing struct {
	beat    time.Duration // between two heartbeats (1 s)
	fresh   time.Duration // we expel others only if a heartbeat of our own arrived within this time (2 s)
	cutOff  time.Duration // without a connection, our leases end this long after our last heartbeat (2.5 s)
	gone    time.Duration // a member without a connection is expelled this long after its last heartbeat (3 s)
	ended   time.Duration // our leases end this long after our last heartbeat (11 s)
	expelAt time.Duration // any member is expelled this long after its last heartbeat (12 s)
}

// timingOf returns the timing for a lease time. A member ends its own leases before
// others may expel it: cutOff < gone and ended < expelAt. When a server dies, JetStream
// takes 4 to 9 seconds to elect new leaders, and the bucket can't be written meanwhile.
// The lease time must be longer than that: otherwise all leases end.
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

// heartbeatState says how long the other members will certainly not expel this one. It
// is not safe for concurrent use.
type heartbeatState struct {
	timing timing
	last   time.Time // when the last heartbeat that arrived was sent
	down   bool      // there is no connection
}

// arrived records that a heartbeat has arrived, which was sent at the time begun.
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

// fresh reports whether a recent heartbeat of our own has arrived. If not, the silence
// of others proves nothing.
func (h *heartbeatState) fresh(now time.Time) bool { return now.Sub(h.last) < h.timing.fresh }
