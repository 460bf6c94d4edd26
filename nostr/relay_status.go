package nostr

import (
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

// RelayStatus is the state of a relay.
type RelayStatus struct {
	URL     string    `json:"url"` // without the query, which may be secret
	Up      bool      `json:"up"`
	Since   time.Time `json:"since"`             // when it went up or down
	Error   string    `json:"error,omitempty"`   // why the last link ended
	Trouble string    `json:"trouble,omitempty"` // what the relay refuses although the link is up

	Queued       int `json:"queued"` // events waiting for it
	Acknowledged int `json:"acknowledged"`
	Refused      int `json:"refused"`
	Dropped      int `json:"dropped"` // progress and refusals that were too old, and events that did not fit into the outbox

	Links     int `json:"links"`      // number of links made
	BadFrames int `json:"bad_frames"` // frames that are not messages of NIP-01
	Oversized int `json:"oversized"`  // frames that were skipped because they are too large
	Unfit     int `json:"unfit"`      // events beyond our limits, which are not the relay's fault
	BadEvents int `json:"bad_events"` // events that it should not have sent
	Unknown   int `json:"unknown"`    // events without a subscription
}

// Healthy reports whether the link is up and the relay refuses nothing.
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

// maxText is the longest text of a relay that is stored or logged.
const maxText = 200

// printable makes a relay's text fit for a log and a terminal: one line of
// printable characters, not too long.
func printable(text string) string {
	if len(text) > 4*maxText {
		text = text[:4*maxText]
	}
	return textfmt.TruncateValid(textfmt.Printable(text), maxText, "...")
}
