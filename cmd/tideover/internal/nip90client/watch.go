package nip90client

import (
	"context"
	"strconv"

	"github.com/tideover/tideover/internal/recentset"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// Watch selects the events of NIP-90 that are shown to an observer.
type Watch struct {
	Kinds    []int  // kinds of requests
	Provider string // public key in hex; "" means all providers

	shown *recentset.Set // ids of the requests that were shown
}

// Filters returns the filters for the subscription at relays.
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

// Wants reports whether to show an entry. Feedback does not state the kind of its request,
// so without a Provider it is shown only if its request was shown. A cancellation does not
// state the provider, so with a Provider it is shown only if its request was shown.
func (w *Watch) Wants(x *Entry) bool {
	if w.shown == nil {
		w.shown = new(recentset.New(maxRecent))
	}
	switch x.Type {
	case TypeRequest:
		w.shown.Add(x.ID)
		return true
	case TypeFeedback:
		return w.Provider != "" || w.shown.Has(x.Request)
	case TypeCancel:
		return w.Provider == "" || w.shown.Has(x.Request)
	default:
		return true
	}
}

// Run calls show for the events that arrive, until the context ends or show returns an
// error. It calls missed with the number of events that were dropped because the inbox
// was full.
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
