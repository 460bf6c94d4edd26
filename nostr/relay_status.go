package nostr

import "time"

// RelayStatus is how a relay is, for people and for their pages.
type RelayStatus struct {
	URL     string    `json:"url"` // without what may be secret
	Up      bool      `json:"up"`
	Since   time.Time `json:"since"`             // when it went up or down
	Error   string    `json:"error,omitempty"`   // of the last link that ended
	Trouble string    `json:"trouble,omitempty"` // what the relay does not do for us though it is up

	Queued       int `json:"queued"` // events waiting for it
	Acknowledged int `json:"acknowledged"`
	Refused      int `json:"refused"`
	Dropped      int `json:"dropped"` // progress and refusals that were too old, and what there was no room for

	Links     int `json:"links"`      // made so far
	BadFrames int `json:"bad_frames"` // not messages of NIP-01
	Oversized int `json:"oversized"`  // frames that were skipped because they are too big
	Unfit     int `json:"unfit"`      // events beyond our limits, for which the relay can do nothing
	BadEvents int `json:"bad_events"` // that it should not have sent
	Unknown   int `json:"unknown"`    // events of subscriptions that it does not have
}

// Healthy reports whether the relay does all that it is asked to.
func (s RelayStatus) Healthy() bool { return s.Up && s.Trouble == "" }

func (r *relay) status(now time.Time) RelayStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outbox.expire(now)
	o, n := r.outbox.counts, r.counts
	return RelayStatus{
		URL: r.name, Up: r.phase == linkUp, Since: r.since, Error: r.lastErr, Trouble: r.trouble(),
		Queued: len(r.outbox.queue), Acknowledged: o.acknowledged, Refused: o.refused, Dropped: o.dropped,
		Links: n.links, BadFrames: n.frames, Oversized: n.oversized, Unfit: n.unfit, BadEvents: n.events, Unknown: n.unknown,
	}
}

func (r *relay) trouble() string {
	for _, s := range r.subs {
		if s.trouble != "" {
			return "subscription " + printable(s.name) + ": " + s.trouble
		}
	}
	if r.outbox.trouble != "" {
		return "events: " + r.outbox.trouble
	}
	return ""
}
