package nostr_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
)

func TestPublishIsDoneWhenEveryRelayHasSaidSo(t *testing.T) {
	t.Parallel()
	a, b := nostrtest.New(t), nostrtest.New(t)
	c := client(t, nil, a, b)
	run(t, c)
	d := c.Publish(nostr.Result, newEvent(t, "1"), newEvent(t, "2"))
	wait(t, d)
	for _, r := range []*nostrtest.Relay{a, b} {
		if got := contents(r); got != "1 2" {
			t.Errorf("%s has %q, want %q", r.URL(), got, "1 2")
		}
	}
	for _, got := range d.Relays() {
		if got.State != nostr.Acknowledged || got.Err != nil {
			t.Errorf("Relays: %+v, want acknowledged", got)
		}
	}
}

func TestAnEventIsNotDoneBeforeItsOK(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{SwallowOK: nostrtest.Always}))
	c := client(t, nil, r)
	run(t, c)
	d := c.Publish(nostr.Result, newEvent(t, "1"))
	r.Await(t, func(stored []*nostr.Event) bool { return len(stored) == 1 })

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Wait(ended); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), r.URL()) {
		t.Errorf("Wait: %v, want it canceled and the relay named", err)
	}
	if got := d.Relays()[0].State; got != nostr.Pending {
		t.Errorf("the relay has the event and has not said so: %v, want pending", got)
	}
	if err := c.Flush(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Flush: %v, want it canceled", err)
	}
}

func TestAnEventWithoutAnAnswerIsSentAgain(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{SwallowOK: 5}))
	c := client(t, func(cfg *nostr.ClientConfig) { cfg.OKTimeout = 100 * time.Millisecond }, r)
	run(t, c)
	wait(t, c.Publish(nostr.Result, newEvent(t, "1"), newEvent(t, "2")))
	if got := contents(r); got != "1 2" {
		t.Errorf("the relay has %q, want %q", got, "1 2")
	}
}

func TestPublishSurvivesACutBetweenSendAndOK(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]nostrtest.Faults{
		"after the event was stored":  {DropBeforeOK: 3},
		"before the event was stored": {DropEvent: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := nostrtest.New(t, nostrtest.WithFaults(faults))
			c := client(t, nil, r)
			run(t, c)
			wait(t, c.Publish(nostr.Result, newEvent(t, "1"), newEvent(t, "2"), newEvent(t, "3")))
			if got := contents(r); got != "1 2 3" {
				t.Errorf("the relay has %q, want %q", got, "1 2 3")
			}
			if got := c.Status()[0]; got.Links != 4 || got.Acknowledged != 3 {
				t.Errorf("Status: %d links, %d acknowledged, want 4, 3", got.Links, got.Acknowledged)
			}
		})
	}
}

func TestOrderIsKeptOnTwoRelaysOfWhichOneFails(t *testing.T) {
	t.Parallel()
	good := nostrtest.New(t)
	bad := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{Reject: "rate-limited: slow down", RejectNext: 7}))
	c := client(t, nil, good, bad)
	run(t, c)
	var want []string
	var last *nostr.Delivery
	for i := range 30 {
		want = append(want, fmt.Sprint(i))
		last = c.Publish(nostr.Result, newEvent(t, fmt.Sprint(i)))
		switch i {
		case 10:
			bad.Cut()
		case 20:
			bad.Change(func(f *nostrtest.Faults) { f.Reject, f.RejectNext, f.DropBeforeOK = "error: disk", 4, 2 })
		}
	}
	wait(t, last)
	for _, r := range []*nostrtest.Relay{good, bad} {
		if got := contents(r); got != strings.Join(want, " ") {
			t.Errorf("%s has %s, want 0 to 29 in order", r.URL(), got)
		}
	}
}

func TestAnEventIsSentOnce(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	c := client(t, nil, r)
	e := newEvent(t, "1")
	first, second := c.Publish(nostr.Progress, e), c.Publish(nostr.Result, e, e)
	run(t, c)
	wait(t, first)
	wait(t, second)
	wait(t, c.Publish(nostr.Result, e))
	if got := received(r, nostr.TypeEvent); got != 1 {
		t.Errorf("the relay got it %d times, want once", got)
	}
}

func TestARefusedEventIsRefusedForGoodAndTheNextGoesOn(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"blocked: go away", "invalid: too old", "pow: 26", "restricted: members only", "mute: no"} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{Reject: text, RejectNext: 1}))
			other := nostrtest.New(t)
			c := client(t, nil, r, other)
			d := c.Publish(nostr.Result, newEvent(t, "1"))
			run(t, c)
			err := d.Wait(testwait.Context(t))
			if got := refused(err); got != text {
				t.Errorf("Wait: %v, want it refused with %q", err, text)
			}
			if got := d.Relays(); got[0].State != nostr.Refused || got[1].State != nostr.Acknowledged {
				t.Errorf("Relays: %+v, want refused and acknowledged", got)
			}
			wait(t, c.Publish(nostr.Result, newEvent(t, "2")))
			if got := c.Status()[0]; got.Refused != 1 || got.Acknowledged != 1 || contents(r) != "2" {
				t.Errorf("Status: %+v, the relay has %q, want one refused and 2 there", got, contents(r))
			}
		})
	}
}

func TestANoWithoutAReasonIsNotAskedForEver(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{Reject: "I don't like it"}))
	c := client(t, nil, r)
	run(t, c)
	if err := c.Publish(nostr.Result, newEvent(t, "1")).Wait(testwait.Context(t)); refused(err) == "" {
		t.Errorf("Wait: %v, want it refused", err)
	}
	if got := received(r, nostr.TypeEvent); got != 5 {
		t.Errorf("the relay was asked %d times, want 5", got)
	}
}

func TestWhatIsNotAnEventIsNotPublished(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	c := client(t, nil, r)
	changed := newEvent(t, "1")
	changed.Content = "2"
	for want, e := range map[error]*nostr.Event{nostr.ErrID: changed, nostr.ErrShape: nil} {
		d := c.Publish(nostr.Result, newEvent(t, "good"), e)
		if err := d.Wait(testwait.Context(t)); !errors.Is(err, want) || d.Relays()[0].State != nostr.Dropped {
			t.Errorf("Publish: %v, %+v, want %v", err, d.Relays(), want)
		}
	}
	if got := c.Status()[0].Queued; got != 0 {
		t.Errorf("%d events are queued, want none of a batch with a bad one", got)
	}
}

func TestAFullOutboxDropsProgressAndNeverResults(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	c := client(t, func(cfg *nostr.ClientConfig) { cfg.Outbox = 3 }, r)
	old := c.Publish(nostr.Progress, newEvent(t, "p1"))
	c.Publish(nostr.Result, newEvent(t, "r1"))
	c.Publish(nostr.Progress, newEvent(t, "p2"))
	c.Publish(nostr.Result, newEvent(t, "r2"))
	c.Publish(nostr.Result, newEvent(t, "r3"))
	if err := old.Wait(testwait.Context(t)); !errors.Is(err, nostr.ErrFull) {
		t.Errorf("the oldest progress: %v, want ErrFull", err)
	}
	for _, class := range []nostr.Class{nostr.Progress, nostr.Result} {
		if err := c.Publish(class, newEvent(t, "late")).Wait(testwait.Context(t)); !errors.Is(err, nostr.ErrFull) {
			t.Errorf("class %d into an outbox full of results: %v, want ErrFull", class, err)
		}
	}
	run(t, c)
	if err := c.Flush(testwait.Context(t)); err != nil {
		t.Fatal(err)
	}
	if got := contents(r); got != "r1 r2 r3" {
		t.Errorf("the relay has %q, want the results", got)
	}
	if got := c.Status()[0].Dropped; got != 4 {
		t.Errorf("Status: %d dropped, want 4", got)
	}
}
