package nip90client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// Times of a customer, and the name of its subscription.
const (
	forOthers = 2 * time.Second         // wait for the other relays after one has accepted the request
	forCancel = 5 * time.Second         // wait for the provider's answer to a cancellation
	pollEvery = 50 * time.Millisecond   // interval for reading receipts, which do not signal changes
	lookEvery = time.Second             // interval for checking whether relays reject the subscription
	answers   = "nip90-request-answers" // name of the subscription
)

// ClockSlip is how far the clock of a provider may be behind. The subscription for answers
// starts this long before the request.
const ClockSlip = 10 * time.Minute

// Link has the functions of a relay client that a customer needs.
type Link interface {
	// Subscribe subscribes on all relays.
	Subscribe(name string, since time.Time, filters ...nostr.Filter)
	// Publish sends an event to all relays, and returns a function that returns their receipts.
	Publish(e *nostr.Event) (receipts func() []nostr.Receipt)
	// Refusals returns the relays that refuse the subscription, with the reasons that they state.
	Refusals(name string) map[string]string
}

// Over returns a link that uses the client.
func Over(c *nostr.Client) Link { return overClient{c} }

type overClient struct{ *nostr.Client }

func (o overClient) Publish(e *nostr.Event) func() []nostr.Receipt {
	return o.Client.Publish(nostr.Result, e).Relays
}

// Customer publishes one request and waits for the answer. It calls Sent, Show and Taken
// one at a time.
type Customer struct {
	Link   Link
	Inbox  *Inbox // gets the answers to the request
	Key    nostr.SecretKey
	Wait   time.Duration         // longest wait for a result
	Detach bool                  // return after the request is sent, without waiting for a result
	Sent   func([]nostr.Receipt) // is called with the receipts of all relays when one has accepted the request
	Show   func(*Entry)          // is called for each answer
	Taken  func()                // is called when the request is canceled

	talk     Talk
	answered bool      // an answer has arrived
	deadline time.Time // end of Wait
}

// Outcome is how a request ended.
type Outcome struct {
	Ending   Ending
	Entry    *Entry            // the answer that ended the request; nil if none did
	Receipts []nostr.Receipt   // of the request
	Closed   map[string]string // for Unreadable: the reason of each relay
}

// Ask publishes the request and waits for its end. If the context ends first, it cancels
// the request.
func (c *Customer) Ask(ctx context.Context, request *nostr.Event) (Outcome, error) {
	c.deadline = time.Now().Add(c.Wait)
	since := time.Unix(request.CreatedAt, 0).Add(-ClockSlip)
	c.Link.Subscribe(answers, since, Answers(request))
	receipts := c.Link.Publish(request)

	ending, over := c.deliver(ctx, receipts)
	out := Outcome{Ending: ending}
	if !over {
		c.Sent(receipts())
		if out.Ending = Detached; !c.Detach {
			out = c.listen(ctx, len(receipts()))
		}
	}
	if out.Ending == Interrupted {
		if err := c.takeBack(request); err != nil {
			return out, err
		}
	}
	out.Receipts = receipts()
	return out, nil
}

// deliver waits until a relay has accepted the request, and then up to forOthers for the
// other relays. An answer of the provider also proves that a relay has accepted the
// request. deliver returns true and the ending if the request has ended: no relay has
// accepted it, or the context has ended.
func (c *Customer) deliver(ctx context.Context, receipts func() []nostr.Receipt) (Ending, bool) {
	var first time.Time
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		now := time.Now()
		pending, taken := anyIn(receipts(), nostr.Pending), anyIn(receipts(), nostr.Acknowledged) || c.answered
		if taken && first.IsZero() {
			first = now
		}
		switch {
		case taken && (!pending || now.Sub(first) >= forOthers):
			return "", false
		case !pending || !taken && !now.Before(c.deadline):
			return NotAccepted, true
		}
		select {
		case <-tick.C:
		case <-c.Inbox.Arrived():
			c.answered = true
		case <-ctx.Done():
			return Interrupted, true
		}
	}
}

func anyIn(list []nostr.Receipt, s nostr.State) bool {
	return slices.ContainsFunc(list, func(r nostr.Receipt) bool { return r.State == s })
}

// listen shows answers until one ends the request, the deadline passes, or all relays
// refuse the subscription. relays is the number of relays.
func (c *Customer) listen(ctx context.Context, relays int) Outcome {
	if c.answered {
		pause(ctx, ReorderDelay)
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		if out, over := c.take(); over {
			return out
		}
		now := time.Now()
		failed, until := c.talk.Failed()
		switch {
		case ctx.Err() != nil:
			return Outcome{Ending: Interrupted}
		case failed != nil && !now.Before(until):
			return Outcome{Ending: Failed, Entry: failed}
		case !now.Before(c.deadline):
			return Outcome{Ending: NoAnswer}
		}
		next := c.deadline
		if failed != nil && until.Before(next) {
			next = until
		}
		if closed := c.wait(ctx, time.Until(next), look.C, relays); closed != nil {
			return Outcome{Ending: Unreadable, Closed: closed}
		}
	}
}

// wait waits until answers arrive or the duration most has passed. At each tick of look it
// checks whether all relays refuse the subscription. If so, it returns their reasons, else
// nil. relays is the number of relays.
func (c *Customer) wait(ctx context.Context, most time.Duration, look <-chan time.Time, relays int) (closed map[string]string) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		select {
		case <-c.Inbox.Arrived():
			pause(ctx, ReorderDelay)
			return nil
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil
		case <-look:
			if closed := c.Link.Refusals(answers); len(closed) >= relays {
				return closed
			}
		}
	}
}

// take shows the answers that have arrived. If an answer ends the request, take stops there
// and returns the outcome and true.
func (c *Customer) take() (Outcome, bool) {
	list, _ := c.Inbox.Take() // ignore dropped events: the inbox reserves room for results
	for i := range list {
		c.Show(&list[i])
		if ending, over := c.talk.Take(&list[i], time.Now()); over {
			return Outcome{Ending: ending, Entry: &list[i]}, true
		}
	}
	return Outcome{}, false
}

// takeBack cancels the request, and waits up to forCancel for the provider to confirm it.
func (c *Customer) takeBack(request *nostr.Event) error {
	e, err := Cancel(request, c.Key, time.Now())
	if err != nil {
		return err
	}
	c.Taken()
	relays := len(c.Link.Publish(e)())
	c.deadline = time.Now().Add(forCancel)
	c.listen(context.Background(), relays)
	return nil
}

// pause waits, at most until the context ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Describe returns the state of an event at a relay, followed by the reason if there is
// one.
func Describe(r nostr.Receipt) string {
	if why := Reason(r); why != "" {
		return r.State.String() + ": " + why
	}
	return r.State.String()
}

// Reason returns why a relay has not accepted an event, in the words of the relay; "" if
// no reason is known.
func Reason(r nostr.Receipt) string {
	if refused, ok := errors.AsType[*nostr.RefusedError](r.Err); ok {
		return refused.Text
	}
	if r.Err != nil {
		return r.Err.Error()
	}
	return r.Reason
}

// Untaken returns the receipts of the relays that have not accepted an event.
func Untaken(list []nostr.Receipt) []nostr.Receipt {
	return slices.DeleteFunc(slices.Clone(list), func(r nostr.Receipt) bool { return r.State == nostr.Acknowledged })
}

// AfterError is how long to wait for a result after feedback with the status error. A provider
// publishes both at the same time, but they may arrive over different relays.
const AfterError = 5 * time.Second

// Ending is how the wait for a result ended.
type Ending string

// The endings.
const (
	Done        Ending = "done"         // the result arrived
	Partial     Ending = "partial"      // a partial result arrived
	Failed      Ending = "error"        // the provider gave up, or its result has an unknown status
	Cancelled   Ending = "cancelled"    // the provider stopped after a cancellation
	NotAccepted Ending = "not-accepted" // no relay accepted the request
	NoAnswer    Ending = "no-answer"    // no result arrived in time
	Unreadable  Ending = "unreadable"   // every relay rejects the subscription
	Detached    Ending = "detached"     // the customer does not wait for a result
	Interrupted Ending = "interrupted"  // the customer stopped waiting
)

// Talk follows the answers to a request. The zero Talk has seen no answer.
type Talk struct {
	failed *Entry    // first feedback with the status error
	until  time.Time // when failed ends the request, if no result arrives before
}

// Take processes the next answer. If the answer ends the request, over is true.
func (t *Talk) Take(x *Entry, now time.Time) (ending Ending, over bool) {
	switch {
	case x.Type == TypeResult && x.Status == dvm.StatusSuccess:
		return Done, true
	case x.Type == TypeResult && x.Status == dvm.StatusPartial:
		return Partial, true
	case x.Type == TypeResult: // an error, or an unknown status
		return Failed, true
	case x.Cancelled():
		return Cancelled, true
	case x.Status == dvm.StatusError && t.failed == nil:
		t.failed, t.until = x, now.Add(AfterError)
	}
	return "", false
}

// Failed returns the first feedback with the status error, nil if there was none. If no
// result arrives before the returned time, the feedback ends the request.
func (t *Talk) Failed() (x *Entry, until time.Time) { return t.failed, t.until }
