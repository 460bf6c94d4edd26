package nip90

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

const (
	// announcementID is the identifier of our announcement. It never changes, so that
	// each announcement replaces the one before at the relays.
	announcementID = "tideover-nip90"

	announceWait  = 10 * time.Minute // wait for the relays to accept it; the outbox of a relay keeps it for less
	announceAgain = time.Hour        // time until it is published again to relays that did not get it
	askTime       = 20 * time.Second // wait for relays to return our earlier announcement
	askGrace      = 5 * time.Second  // wait for the other relays after the first has answered
)

// announcer publishes announcements, one after another.
type announcer struct {
	log  *slog.Logger
	last int64 // time of the last announcement, in seconds since 1970
}

// announce publishes the announcement of the offer, or withdraws an earlier one if the offer is
// not to be announced. It returns when every relay has accepted or refused it, or when the
// context ends.
func (a *announcer) announce(ctx context.Context, set *setup, client *nostr.Client) {
	offer := dvm.Announcement{Identifier: announcementID, Name: set.Name, About: set.About}
	for _, k := range set.Kinds {
		offer.Kinds = append(offer.Kinds, k.Kind)
	}
	newest := a.fetchNewest(ctx, set, client)
	var e *nostr.Event
	switch {
	case set.Announce:
		e = offer.Event(a.nextTime(newest))
	case newest != nil:
		e = dvm.WithdrawAnnouncement(newest, a.nextTime(newest))
	default:
		return // there is no earlier announcement to withdraw
	}
	if err := e.Sign(set.key); err != nil {
		a.log.Error("the announcement can't be signed", "error", err)
		return
	}
	for !publishAnnouncement(ctx, client, e) {
		select {
		case <-time.After(announceAgain):
		case <-ctx.Done():
			return
		}
	}
}

// publishAnnouncement publishes the event and reports whether every relay has accepted or
// refused it. The event has the low priority of progress, so that it does not delay
// answers.
func publishAnnouncement(ctx context.Context, client *nostr.Client, e *nostr.Event) bool {
	d := client.Publish(nostr.Progress, e)
	wait, cancel := context.WithTimeout(ctx, announceWait)
	defer cancel()
	_ = d.Wait(wait) // ignore the error: the receipts below have the result
	return !slices.ContainsFunc(d.Relays(), func(r nostr.Receipt) bool {
		return r.State == nostr.Pending || r.State == nostr.Dropped
	})
}

// fetchNewest returns our newest announcement that a relay has; nil if no relay returns one.
func (a *announcer) fetchNewest(ctx context.Context, set *setup, client *nostr.Client) (newest *nostr.Event) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	events, err := client.FetchSoon(ctx, askGrace, nostr.Filter{
		Authors: []string{set.key.PublicKey()}, Kinds: []int{dvm.KindAnnouncement}, Tags: map[string][]string{"d": {announcementID}},
	})
	if err != nil {
		a.log.Debug("not every relay has said whether there is an announcement", "error", err)
	}
	for _, e := range events {
		if newest == nil || e.CreatedAt > newest.CreatedAt {
			newest = e
		}
	}
	return newest
}

// nextTime returns a time after the times of all announcements so far. If two announcements had the
// same time, a relay might keep the older one.
func (a *announcer) nextTime(newest *nostr.Event) time.Time {
	at := time.Now().Unix()
	if newest != nil && newest.CreatedAt >= at && newest.CreatedAt < at+3600 { // ignore a time further in the future, which is a mistake
		at = newest.CreatedAt + 1
	}
	a.last = max(at, a.last+1)
	return time.Unix(a.last, 0)
}
