package nostrtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
)

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
// shortly before the deadline of the test binary. It is called from the test's own
// goroutine.
func (r *Relay) Await(tb testing.TB, holds func(stored []*nostr.Event) bool) {
	tb.Helper()
	if err := r.Wait(testwait.Context(tb), holds); err != nil {
		tb.Fatal(err)
	}
}
