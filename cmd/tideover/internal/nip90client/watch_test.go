package nip90client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

func TestWhatAWatchShows(t *testing.T) {
	t.Parallel()
	d := newDeal(t)
	cancel := d.by(d.customer, 5, 3, "", nostr.Tag{"k", "5900"})
	all := []*nostr.Event{d.request, d.feedback(1, "processing", ""), d.result(2, "success", ""), cancel}
	offer := (&dvm.Announcement{Identifier: "x", Kinds: []int{5900, 5901}, Name: "Adder"}).Event(time.Unix(d.request.CreatedAt-1, 0))
	if err := offer.Sign(d.provider); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		provider string
		events   []*nostr.Event
		want     string
	}{
		{"everything", "", all, "request feedback result cancel "},
		{"feedback to what was not shown", "", all[1:], "result cancel "},
		{"all of a provider", d.provider.PublicKey(), all, "request feedback result cancel "},
		{"a cancellation that may be for another provider", d.provider.PublicKey(), all[1:], "feedback result "},
		{"what providers offer", "", append([]*nostr.Event{offer}, all...), "offer request feedback result cancel "},
		{"what another provider offers", newKey(t).PublicKey(), []*nostr.Event{offer}, ""},
		{"another provider", newKey(t).PublicKey(), all, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &nip90client.Watch{Kinds: []int{5900}, Provider: c.provider}
				inbox := nip90client.NewInbox(w.Filters()...)
				for i := range c.events { // the newest first, as relays send stored events
					if err := inbox.Put(c.events[len(c.events)-1-i]); err != nil {
						t.Fatal(err)
					}
				}
				ctx, stop := context.WithTimeout(t.Context(), 2*nip90client.ReorderDelay)
				defer stop()
				got := ""
				err := w.Run(ctx, inbox, func(x *nip90client.Entry) error { got += x.Type + " "; return nil }, func(int) {})
				if err != nil || got != c.want {
					t.Errorf("shown %q, %v; want %q", got, err, c.want)
				}
			})
		})
	}
}
