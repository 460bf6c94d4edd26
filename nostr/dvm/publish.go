package dvm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/nostr"
)

// Publisher publishes events. A [nostr.Client] is one.
type Publisher interface {
	Publish(class nostr.Class, events ...*nostr.Event) *nostr.Delivery
}

// Link is what a provider needs of relays. A [nostr.Client] is one.
type Link interface {
	Publisher
	Subscribe(name string, since time.Time, filters ...nostr.Filter)
	Unsubscribe(name string)
	FetchSoon(ctx context.Context, grace time.Duration, filters ...nostr.Filter) ([]*nostr.Event, error)
}

// Publish signs the events that [Answers] returned, or those of them that are new,
// and publishes them in their order. What ends a job is published as a result, which
// is never dropped, and all else as progress. It does not wait for relays; the error
// says what can't be published at all, or for which relay there is no room.
func Publish(to Publisher, key nostr.SecretKey, events []nostr.Event) error {
	var errs []error
	for len(events) > 0 {
		class, n := classOf(&events[0]), 1
		for n < len(events) && classOf(&events[n]) == class {
			n++
		}
		errs = append(errs, publish(to, key, class, events[:n]))
		events = events[n:]
	}
	return errors.Join(errs...)
}

// publishRefusal does the same with what [Refusal] returned, of which relays that are
// busy get less.
func publishRefusal(to Publisher, key nostr.SecretKey, events []nostr.Event) error {
	return publish(to, key, nostr.Refusal, events)
}

func publish(to Publisher, key nostr.SecretKey, class nostr.Class, events []nostr.Event) error {
	list := make([]*nostr.Event, len(events))
	for i, e := range events {
		if err := e.Sign(key); err != nil {
			return fmt.Errorf("publish an event of kind %d: %w", e.Kind, err)
		}
		list[i] = &e
	}
	var errs []error
	receipts := to.Publish(class, list...).Relays()
	full := 0
	for _, r := range receipts {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("publish to %s: %w", r.Relay, r.Err))
		}
		if errors.Is(r.Err, nostr.ErrFull) {
			full++
		}
	}
	if full > 0 && full == len(receipts) {
		errs = append(errs, errNowhere)
	}
	return errors.Join(errs...)
}

var errNowhere = errors.New("no relay has room for it")

// classOf says whether the event of a job is worth more than room in an outbox.
func classOf(e *nostr.Event) nostr.Class {
	if e.Kind == KindFeedback && e.Tags.Find("status").Value() != StatusError {
		return nostr.Progress
	}
	return nostr.Result
}

// isTerminal reports whether an event of ours is the end of a job.
func isTerminal(e *nostr.Event) bool { return classOf(e) == nostr.Result }
