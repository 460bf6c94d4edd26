package nostr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Limits of the events that a fetch returns.
const (
	maxFetched      = 4096
	maxFetchedBytes = 32 << 20
)

var errTooMuch = errors.New("the result is too large: use narrower filters")

// Fetch returns the stored events that match one of the filters, from all relays,
// each once and verified. It waits until every relay has answered or the context
// ends. It does not wait for a relay without a link, unless the relay is being
// dialled. The error names the relays that did not answer completely; the events of
// the other relays are returned with it.
func (c *Client) Fetch(ctx context.Context, filters ...Filter) ([]*Event, error) {
	return c.FetchSoon(ctx, 0, filters...)
}

var errGrace = errors.New("another relay has answered, and this one took longer than the grace period")

// FetchSoon is Fetch with a shorter wait: after the first relay has answered,
// it waits for the others only for the grace period. 0 means until the context
// ends.
func (c *Client) FetchSoon(ctx context.Context, grace time.Duration, filters ...Filter) ([]*Event, error) {
	a := newFetchResult(c.Relays())
	c.mu.Lock()
	s := c.newSubscriptionSpec("fetch", time.Time{}, filters)
	c.mu.Unlock()
	for _, r := range c.relays {
		r.startFetch(s, a)
	}
	gaveUp := a.wait(ctx, grace)
	if gaveUp != nil {
		for _, r := range c.relays {
			r.cancelFetch(a)
		}
	}
	return a.result(gaveUp)
}

// fetchResult collects the answers of the relays to a fetch.
type fetchResult struct {
	done  chan struct{} // closed when no relay is left
	first chan struct{} // closed when one has answered

	mu     sync.Mutex
	began  bool     // a relay has answered
	left   []string // relays that have not answered
	ids    map[string]bool
	events []*Event
	bytes  int
	errs   []error
	over   bool // the caller no longer waits
}

func newFetchResult(relays []string) *fetchResult {
	return &fetchResult{done: make(chan struct{}), first: make(chan struct{}), left: relays, ids: map[string]bool{}}
}

// wait waits until all relays have answered. If it stops waiting before that, it
// returns the reason.
func (a *fetchResult) wait(ctx context.Context, grace time.Duration) error {
	var over <-chan time.Time
	if grace > 0 {
		select {
		case <-a.first:
		case <-a.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		over = time.After(grace)
	}
	select {
	case <-a.done:
		return nil
	case <-over:
		return errGrace
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// add adds an event. An error means that the event is invalid.
func (a *fetchResult) add(e *Event) error {
	if !a.wants(e.ID) {
		return nil
	}
	// Without the lock, so that relays need not wait for each other.
	if err := e.CheckSignature(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over && !a.ids[e.ID] {
		a.ids[e.ID] = true
		a.events = append(a.events, e)
		a.bytes += len(e.AppendJSON(nil))
	}
	return nil
}

// wants reports whether the event is new and fits into the result.
func (a *fetchResult) wants(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || a.ids[id] {
		return false
	}
	full := len(a.events) >= maxFetched || a.bytes >= maxFetchedBytes
	if full && !slices.Contains(a.errs, errTooMuch) {
		a.errs = append(a.errs, errTooMuch)
	}
	return !full
}

// finish records that the relay sends nothing more.
func (a *fetchResult) finish(relay string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.left, relay)
	if i < 0 {
		return
	}
	a.left = slices.Delete(a.left, i, i+1)
	switch {
	case err != nil:
		a.errs = append(a.errs, fmt.Errorf("fetch from %s: %w", relay, err))
	case !a.began:
		a.began = true
		close(a.first)
	}
	if len(a.left) == 0 {
		close(a.done)
	}
}

// result returns the events, and an error for each relay that did not answer.
func (a *fetchResult) result(gaveUp error) ([]*Event, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	for _, relay := range a.left {
		a.errs = append(a.errs, fmt.Errorf("fetch from %s: no answer: %w", relay, gaveUp))
	}
	return a.events, errors.Join(a.errs...)
}
