package nostr

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Client talks to several relays at once, and goes on doing so: links that break
// are made again, subscriptions survive them, and what is published is sent until
// each relay has answered. Everything may be called from several goroutines, and
// before Run.
type Client struct {
	cfg    ClientConfig
	relays []*relay
	ran    atomic.Bool

	mu     sync.Mutex // all relays get subscriptions and events in the same order
	number int        // of the last subscription
}

// NewClient returns a client. The error has all problems of the configuration.
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

// Run keeps links to all relays until the context ends, and returns nil after
// everything that it started has ended, a call of Handle included. What is in the outboxes then is dropped;
// see [Client.Flush]. It can be called once.
func (c *Client) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return errors.New("run: the client has run already")
	}
	var group sync.WaitGroup
	for _, r := range c.relays {
		group.Go(func() { r.run(ctx) })
	}
	group.Wait()
	return nil
}

// Subscribe asks all relays for events that match one of the filters and are not
// older than since, stored ones and those to come; a zero since means of any age.
// It takes the place of the subscription of that name. After an outage a relay is
// asked for what came meanwhile, beginning an overlap before it.
func (c *Client) Subscribe(name string, since time.Time, filters ...Filter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.newStanding(name, since, filters)
	for _, r := range c.relays {
		r.subscribe(s)
	}
}

func (c *Client) newStanding(name string, since time.Time, filters []Filter) *standing {
	c.number++
	return newStanding(c.number, name, since, filters)
}

// Unsubscribe ends the subscription of the name, if there is one. An event of it
// may still be handled.
func (c *Client) Unsubscribe(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.relays {
		r.unsubscribe(name)
	}
}

// Refusals returns the relays that refuse the subscription of the name, and what they
// said. They are asked again after five minutes.
func (c *Client) Refusals(name string) map[string]string {
	list := map[string]string{}
	for _, r := range c.relays {
		if text, refused := r.refusal(name); refused {
			list[r.name] = text
		}
	}
	return list
}

// Publish puts signed events into the outbox of every relay, all of them or none,
// to be sent in this order. It does not wait. An event that an outbox has, or that
// the relay has acknowledged lately, is not sent again; the Delivery waits for the
// answer to it all the same.
//
// Progress is dropped after five minutes, and the oldest of it when an outbox is
// full; so is a refusal when there is no progress left to drop. A result is never
// dropped; if there is no room for it, the relay's part of the Delivery is ErrFull.
// Published again, an event that was dropped goes before those after it.
func (c *Client) Publish(class Class, events ...*Event) *Delivery {
	letters := make([]letter, len(events))
	var errs []error
	for i, e := range events {
		var err error
		letters[i], err = newLetter(e)
		errs = append(errs, err)
	}
	bad := errors.Join(errs...)
	c.mu.Lock()
	defer c.mu.Unlock()
	d := new(Delivery)
	for _, r := range c.relays {
		p := part{relay: r.name, err: bad}
		if bad == nil {
			p = r.publish(class, letters, time.Now())
		}
		d.parts = append(d.parts, p)
	}
	return d
}

// Flush waits until all outboxes are empty. The error names the relays whose are
// not.
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

// Status returns how the relays are, in the order of the configuration.
func (c *Client) Status() []RelayStatus {
	list := make([]RelayStatus, len(c.relays))
	for i, r := range c.relays {
		list[i] = r.status(time.Now())
	}
	return list
}
