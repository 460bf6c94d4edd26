package nip90client

import (
	"context"
	"strconv"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// Watch decides what of all that passes is shown.
type Watch struct {
	Kinds    []int  // of requests
	Provider string // public key in hex; empty means all

	shown recentIDs // requests
}

// Filters returns what to ask relays for.
func (w *Watch) Filters() []nostr.Filter {
	var results []int
	var kinds []string
	for _, k := range w.Kinds {
		results = append(results, ResultKind(k))
		kinds = append(kinds, strconv.Itoa(k))
	}
	requests := nostr.Filter{Kinds: w.Kinds}
	answers := nostr.Filter{Kinds: append(results, dvm.KindFeedback)}
	offers := nostr.Filter{Kinds: []int{dvm.KindAnnouncement}, Tags: map[string][]string{"k": kinds}}
	if w.Provider != "" {
		offers.Authors = []string{w.Provider}
		requests.Tags = map[string][]string{"p": {w.Provider}}
		answers.Authors = []string{w.Provider}
	}
	cancels := nostr.Filter{Kinds: []int{dvm.KindDelete}, Tags: map[string][]string{"k": kinds}}
	return []nostr.Filter{requests, answers, cancels, offers}
}

// Wants reports whether to show an entry. Feedback does not say of which kind its
// request is, and a cancellation not for whom it is: they belong to what was shown.
func (w *Watch) Wants(x *Entry) bool {
	switch x.Type {
	case TypeRequest:
		w.shown.add(x.ID)
		return true
	case TypeFeedback:
		return w.Provider != "" || w.shown.known[x.Request]
	case TypeCancel:
		return w.Provider == "" || w.shown.known[x.Request]
	default:
		return true
	}
}

// Run shows what comes until the context ends or something can't be shown. Missed is
// told how many events there was no room for.
func (w *Watch) Run(ctx context.Context, inbox *Inbox, show func(*Entry) error, missed func(int)) error {
	for {
		select {
		case <-inbox.Arrived():
		case <-ctx.Done():
			return nil
		}
		pause(ctx, ReorderDelay)
		list, lost := inbox.Take()
		for i := range list {
			if !w.Wants(&list[i]) {
				continue
			}
			if err := show(&list[i]); err != nil {
				return err
			}
		}
		if lost > 0 {
			missed(lost)
		}
	}
}
