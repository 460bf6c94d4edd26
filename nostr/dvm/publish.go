package dvm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/nostr"
)

// Publisher publishes events. [nostr.Client] implements it.
type Publisher interface {
	Publish(class nostr.Class, events ...*nostr.Event) *nostr.Delivery
}

// Link is the connection of a provider to relays. [nostr.Client] implements it.
type Link interface {
	Publisher
	Subscribe(name string, since time.Time, filters ...nostr.Filter)
	Unsubscribe(name string)
	FetchSoon(ctx context.Context, grace time.Duration, filters ...nostr.Filter) ([]*nostr.Event, error)
}

// Publish signs events of [Answers] and publishes them in order. The end of a job is
// published as a result, which is never dropped, everything else as progress. It does
// not wait for relays. The error says which event cannot be published at all, or
// which relay's outbox is full.
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

var errNowhere = errors.New("the outboxes of all relays are full")

// classOf returns the class of an event of a job, which says whether an outbox may
// drop it.
func classOf(e *nostr.Event) nostr.Class {
	if e.Kind == KindFeedback && e.Tags.Find("status").Value() != StatusError {
		return nostr.Progress
	}
	return nostr.Result
}

// isTerminal reports whether an event of ours is the end of a job.
func isTerminal(e *nostr.Event) bool { return classOf(e) == nostr.Result }
