package nostr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A question is answered with so much at most.
const (
	maxFetched      = 4096
	maxFetchedBytes = 32 << 20
)

var errTooMuch = errors.New("the answer is too big; ask for less")

// Fetch returns the stored events that match one of the filters, from all relays,
// each once and verified. It waits until every relay has answered or the context
// ends; a relay that is away is not waited for, one that is being dialled is. The
// error names the relays that did not answer, or not fully; what there is is
// returned beside it.
func (c *Client) Fetch(ctx context.Context, filters ...Filter) ([]*Event, error) {
	return c.FetchSoon(ctx, 0, filters...)
}

var errGrace = errors.New("another relay has answered, and this one took too long")

// FetchSoon is Fetch for whom one relay is nearly enough: when the first has
// answered, the others are waited for so long. 0 means until the context ends.
func (c *Client) FetchSoon(ctx context.Context, grace time.Duration, filters ...Filter) ([]*Event, error) {
	a := newAnswer(c.Relays())
	c.mu.Lock()
	s := c.newStanding("fetch", time.Time{}, filters)
	c.mu.Unlock()
	for _, r := range c.relays {
		r.ask(s, a)
	}
	gaveUp := a.wait(ctx, grace)
	if gaveUp != nil {
		for _, r := range c.relays {
			r.forget(a)
		}
	}
	return a.result(gaveUp)
}

// answer gathers what relays answer to a question.
type answer struct {
	done  chan struct{} // closed when no relay is left
	first chan struct{} // closed when one has answered

	mu     sync.Mutex
	began  bool     // one has
	left   []string // relays that have not answered
	ids    map[string]bool
	events []*Event
	bytes  int
	errs   []error
	over   bool // nobody listens any more
}

func newAnswer(relays []string) *answer {
	return &answer{done: make(chan struct{}), first: make(chan struct{}), left: relays, ids: map[string]bool{}}
}

// wait waits for the relays, and returns why it did not wait for all of them.
func (a *answer) wait(ctx context.Context, grace time.Duration) error {
	var over <-chan time.Time
	if grace > 0 {
		select {
		case <-a.first:
		case <-a.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		over = timer.C
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

// add takes an event. An error says that it is not a good one.
func (a *answer) add(e *Event) error {
	if !a.wants(e.ID) {
		return nil
	}
	// Without the lock: relays need not wait for each other.
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

// wants reports whether the event is news and there is room for it.
func (a *answer) wants(id string) bool {
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

// finish notes that the relay sends nothing more.
func (a *answer) finish(relay string, err error) {
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

func (a *answer) result(gaveUp error) ([]*Event, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	for _, relay := range a.left {
		a.errs = append(a.errs, fmt.Errorf("fetch from %s: no answer: %w", relay, gaveUp))
	}
	return a.events, errors.Join(a.errs...)
}
