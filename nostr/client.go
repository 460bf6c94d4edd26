package nostr

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Client maintains connections to several relays: it reconnects after failures,
// renews subscriptions, and sends every published event until each relay has
// answered. All methods may be called from several goroutines, and before Run.
type Client struct {
	cfg    ClientConfig
	relays []*relay
	ran    atomic.Bool

	mu     sync.Mutex // all relays get subscriptions and events in the same order
	number int        // number of the last subscription or fetch
}

// NewClient returns a client. The error lists all problems of the
// configuration.
func NewClient(cfg ClientConfig) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	list, err := cfg.check()
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg}
	for _, a := range list {
		c.relays = append(c.relays, newRelay(a, &c.cfg, rand.Uint64))
	}
	return c, nil
}

// Run maintains links to all relays until the context ends, and returns nil
// after everything that it started has ended, a call of Handle included. Events
// that are still in the outboxes are dropped; see [Client.Flush]. It can be
// called once.
func (c *Client) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return errors.New("run: the client has run already: make a new one")
	}
	var group sync.WaitGroup
	for _, r := range c.relays {
		group.Go(func() { relayLink{r}.run(ctx) })
	}
	group.Wait()
	return nil
}

// Subscribe requests the events that match one of the filters and are not older than
// since, from all relays: stored events and future ones. A zero since means events of
// any age. It replaces the subscription of the same name. When the link to a relay is
// back after an outage, the client requests the events that are at most
// ClientConfig.Overlap older than the outage.
func (c *Client) Subscribe(name string, since time.Time, filters ...Filter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.newSubscriptionSpec(name, since, filters)
	for _, r := range c.relays {
		r.subscribe(s)
	}
}

func (c *Client) newSubscriptionSpec(name string, since time.Time, filters []Filter) *subscriptionSpec {
	c.number++
	return newSubscriptionSpec(c.number, name, since, filters)
}

// Unsubscribe ends the subscription of the name, if there is one. One of its
// events may still be handled after it returns.
func (c *Client) Unsubscribe(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.relays {
		r.unsubscribe(name)
	}
}

// Refusals returns the relays that refuse the subscription of the name, each
// with the text of its refusal. The client sends the subscription to them again
// after five minutes.
func (c *Client) Refusals(name string) map[string]string {
	list := map[string]string{}
	for _, r := range c.relays {
		if text, refused := r.subscriptionRefusal(name); refused {
			list[r.name] = text
		}
	}
	return list
}

// Publish adds signed events to the outbox of every relay, all of them or none,
// to be sent in this order. It does not block. An event that is already in an
// outbox, or that the relay has acknowledged recently, is not sent again; the
// Delivery covers it nevertheless.
//
// Events of the classes Progress and Refusal are dropped after five minutes.
// When an outbox is full, it drops the oldest progress, and refusals if there is
// no progress left. A Result is never dropped; if there is no room for it, the
// relay's part of the Delivery has the error ErrFull. An event that was dropped
// and is published again is sent before the events that follow it in the call.
func (c *Client) Publish(class Class, events ...*Event) *Delivery {
	encoded := make([]encodedEvent, len(events))
	var errs []error
	for i, e := range events {
		var err error
		encoded[i], err = encodeEvent(e)
		errs = append(errs, err)
	}
	bad := errors.Join(errs...)
	c.mu.Lock()
	defer c.mu.Unlock()
	d := new(Delivery)
	for _, r := range c.relays {
		p := relayDelivery{relay: r.name, err: bad}
		if bad == nil {
			p = r.publish(class, encoded, time.Now())
		}
		d.parts = append(d.parts, p)
	}
	return d
}

// Flush waits until all outboxes are empty. The error names the relays whose
// outbox is not empty.
func (c *Client) Flush(ctx context.Context) error {
	errs := make([]error, len(c.relays))
	for i, r := range c.relays {
		errs[i] = r.flush(ctx)
	}
	return errors.Join(errs...)
}

// Relays returns the addresses of the relays as Handle and Status name them.
func (c *Client) Relays() []string {
	names := make([]string, len(c.relays))
	for i, r := range c.relays {
		names[i] = r.name
	}
	return names
}

// Status returns the state of the relays, in the order of the configuration.
func (c *Client) Status() []RelayStatus {
	list := make([]RelayStatus, len(c.relays))
	for i, r := range c.relays {
		list[i] = r.status(time.Now())
	}
	return list
}
