package nip90

import (
	"context"
	"slices"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

const (
	// announcementID is the identifier of our announcement. It never changes, so that
	// each announcement takes the place of the one before.
	announcementID = "tideover-nip90"

	announceWait  = 10 * time.Minute // for relays; an outbox keeps it for less
	announceAgain = time.Hour        // for relays that did not get it
	askTime       = 20 * time.Second // that relays have to say whether there is an announcement
	askGrace      = 5 * time.Second  // for others, after the first has answered
)

// announce tells relays what is offered, or takes back what they were told, if it is
// not to be announced any more. It returns when every relay has taken or refused it, or
// when the context ends.
func (s *Service) announce(ctx context.Context, set *setup, client *nostr.Client) {
	a := dvm.Announcement{Identifier: announcementID, Name: set.Name, About: set.About}
	for _, k := range set.Kinds {
		a.Kinds = append(a.Kinds, k.Kind)
	}
	newest := s.announced(ctx, set, client, &a)
	var e *nostr.Event
	switch {
	case set.Announce:
		e = a.Event(s.announcementTime(newest))
	case newest != nil:
		e = dvm.WithdrawAnnouncement(newest, s.announcementTime(newest))
	default:
		return // there is nothing to take back
	}
	if err := e.Sign(set.key); err != nil {
		s.log.Error("the announcement can't be signed", "error", err)
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

// publishAnnouncement reports whether every relay has taken the event or refused it. It
// is published like progress, so that it never keeps an answer from a relay for long.
func publishAnnouncement(ctx context.Context, client *nostr.Client, e *nostr.Event) bool {
	d := client.Publish(nostr.Progress, e)
	wait, cancel := context.WithTimeout(ctx, announceWait)
	defer cancel()
	_ = d.Wait(wait) // the receipts say it
	return !slices.ContainsFunc(d.Relays(), func(r nostr.Receipt) bool {
		return r.State == nostr.Pending || r.State == nostr.Dropped
	})
}

// announced returns the newest announcement of ours that relays have, nil if there is
// none, or none that is known.
func (s *Service) announced(ctx context.Context, set *setup, client *nostr.Client, a *dvm.Announcement) (newest *nostr.Event) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	events, err := client.FetchSoon(ctx, askGrace, nostr.Filter{
		Authors: []string{set.key.PublicKey()}, Kinds: []int{dvm.KindAnnouncement}, Tags: map[string][]string{"d": {a.Identifier}},
	})
	if err != nil {
		s.log.Debug("not every relay has said whether there is an announcement", "error", err)
	}
	for _, e := range events {
		if newest == nil || e.CreatedAt > newest.CreatedAt {
			newest = e
		}
	}
	return newest
}

// announcementTime returns a time after that of every announcement so far: of two that
// have the same, a relay may keep the older one.
func (s *Service) announcementTime(newest *nostr.Event) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now().Unix()
	if newest != nil && newest.CreatedAt >= at && newest.CreatedAt < at+3600 { // what is dated further ahead, a mistake, waits for its time
		at = newest.CreatedAt + 1
	}
	s.announcedAt = max(at, s.announcedAt+1)
	return time.Unix(s.announcedAt, 0)
}
