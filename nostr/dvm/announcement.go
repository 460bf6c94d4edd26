package dvm

import (
	"slices"
	"strconv"
	"time"

	"github.com/tideover/tideover/nostr"
)

// KindAnnouncement is the kind of the events with which a provider announces
// what it offers (NIP-89). A relay stores the newest one of a provider for each
// identifier.
const KindAnnouncement = 31990

// Announcement is what a provider offers. It is public.
type Announcement struct {
	Identifier string // its d tag: a later announcement with the same one replaces it
	Kinds      []int  // kinds of requests that are served
	Name       string // may be empty
	About      string // may be empty
}

// Event returns the announcement, not signed.
func (a *Announcement) Event(at time.Time) *nostr.Event {
	e := &nostr.Event{Kind: KindAnnouncement, CreatedAt: at.Unix(), Tags: nostr.Tags{{"d", a.Identifier}}}
	kinds := slices.Clone(a.Kinds)
	slices.Sort(kinds)
	for _, k := range slices.Compact(kinds) {
		e.Tags = append(e.Tags, nostr.Tag{"k", strconv.Itoa(k)})
	}
	e.Content = plainJSON(struct {
		Name  string `json:"name,omitempty"`
		About string `json:"about,omitempty"`
	}{a.Name, a.About})
	return e
}

// WithdrawAnnouncement returns the event that deletes an announcement and all
// earlier ones of the same identifier (NIP-09), not signed.
func WithdrawAnnouncement(e *nostr.Event, at time.Time) *nostr.Event {
	kind := strconv.Itoa(KindAnnouncement)
	return &nostr.Event{
		Kind: KindDelete, CreatedAt: at.Unix(), Content: "not offered any more",
		Tags: nostr.Tags{{"a", kind + ":" + e.PubKey + ":" + e.Tags.Find("d").Value()}, {"e", e.ID}, {"k", kind}},
	}
}
