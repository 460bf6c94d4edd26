package nostrtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tideover/tideover/nostr"
)

// patience is how long Await waits: far longer than anything takes that works.
const patience = 30 * time.Second

// Wait waits until the condition holds for what is stored. It is asked at once and
// then whenever something has happened at the relay: an event, a message, a link, a
// change. It may ask the relay for more. The error is that of the context.
func (r *Relay) Wait(ctx context.Context, holds func(stored []*nostr.Event) bool) error {
	for {
		changed := r.core.look(func() {})
		if holds(r.Events()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("relay: waiting with %d events stored: %w", len(r.Events()), context.Cause(ctx))
		}
	}
}

// Await is [Relay.Wait] for tests: it ends the test if the condition does not hold
// within 30 seconds. It is called from the test's own goroutine.
func (r *Relay) Await(tb testing.TB, holds func(stored []*nostr.Event) bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if err := r.Wait(ctx, holds); err != nil {
		tb.Fatal(err)
	}
}
