package dvm

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/tideover/tideover/nostr"
)

// KindAnnouncement is the kind of the events by which a provider says what it offers
// (NIP-89). A relay keeps the newest of a provider for each identifier.
const KindAnnouncement = 31990

// Announcement says what a provider offers. Everybody can read it.
type Announcement struct {
	Identifier string // its d tag: another announcement of the same one takes its place
	Kinds      []int  // of requests that are served
	Name       string // may be empty
	About      string // the same
}

// Event returns the announcement, not signed.
func (a *Announcement) Event(at time.Time) *nostr.Event {
	e := &nostr.Event{Kind: KindAnnouncement, CreatedAt: at.Unix(), Tags: nostr.Tags{{"d", a.Identifier}}}
	kinds := slices.Clone(a.Kinds)
	slices.Sort(kinds)
	for _, k := range slices.Compact(kinds) {
		e.Tags = append(e.Tags, nostr.Tag{"k", strconv.Itoa(k)})
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(struct { // strings
		Name  string `json:"name,omitempty"`
		About string `json:"about,omitempty"`
	}{a.Name, a.About})
	e.Content = string(bytes.TrimSpace(b.Bytes()))
	return e
}

// WithdrawAnnouncement returns the event that takes an announcement back, and all before
// it of the same identifier (NIP-09), not signed.
func WithdrawAnnouncement(e *nostr.Event, at time.Time) *nostr.Event {
	kind := strconv.Itoa(KindAnnouncement)
	return &nostr.Event{
		Kind: KindDelete, CreatedAt: at.Unix(), Content: "not offered any more",
		Tags: nostr.Tags{{"a", kind + ":" + e.PubKey + ":" + e.Tags.Find("d").Value()}, {"e", e.ID}, {"k", kind}},
	}
}
