package dvm_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// strangerRequest returns a signed request of the n-th stranger.
func strangerRequest(t *testing.T, n int, change ...func(*nostr.Event)) *nostr.Event {
	t.Helper()
	return signed(t, newRequest(t, time.Now(), change...), testKey(1000+n))
}

func TestRefusalsAreWorthLessThanResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t)
		o.deliver(t, strangerRequest(t, 0, withTimeout("0")))
		o.jobs.err = dvm.ErrOverloaded
		o.deliver(t, strangerRequest(t, 1))
		if len(o.fakeLink.classes) != 4 {
			t.Fatalf("told %v, want two refusals", o.fakeLink.texts(time.Now()))
		}
		for i, c := range o.fakeLink.classes {
			if c != nostr.Refusal {
				t.Errorf("event %d has the class %d, want that of a refusal", i, c)
			}
		}
	})
}

func TestStrangersAreRefusedSoManyTimesInAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t)
		var last *nostr.Event
		for n := range 100 {
			last = strangerRequest(t, n, withTimeout("0"))
			o.deliver(t, last)
		}
		if s := o.Stats(); s[dvm.Invalid] != 60 || s[dvm.Silenced] != 40 || len(o.fakeLink.events()) != 120 {
			t.Fatalf("%d events; Stats = %v; want 60 refusals and 40 that are silent", len(o.fakeLink.events()), s)
		}
		if got := o.seen[99].Verdict; got != dvm.Silenced || got.String() != "silenced" {
			t.Errorf("the last verdict is %v", got)
		}
		// The dropped request is not lost: a relay sends it again.
		advance(10 * time.Second)
		o.deliver(t, last)
		if s := o.Stats(); s[dvm.Invalid] != 61 {
			t.Errorf("Stats = %v, want one more refusal", s)
		}
		// Valid requests are still accepted.
		if o.deliver(t, strangerRequest(t, 100)); len(o.jobs.started) != 1 {
			t.Errorf("%d were started, want 1", len(o.jobs.started))
		}
	})
}

func TestTwoServersRefuseWithTheSameEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newTestProvider(t), newTestProvider(t)
		bad, flood := strangerRequest(t, 1, withTimeout("0")), []*nostr.Event{}
		for i := range 6 {
			flood = append(flood, strangerRequest(t, 2, func(e *nostr.Event) { e.Content = fmt.Sprint(i) }))
		}
		a.deliver(t, bad)
		for _, e := range flood {
			a.deliver(t, e) // the customer of the last one sends too many requests
		}
		advance(1100 * time.Millisecond) // a busy server
		b.Stored("wss://other.example", "jobs")
		b.jobs.err = dvm.ErrOverloaded // has no room
		for _, e := range []*nostr.Event{bad, flood[5]} {
			if err := b.Handle("wss://other.example", e); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if one, two := lines(a.fakeLink.events()), lines(b.fakeLink.events()); one != two || len(a.fakeLink.events()) != 4 {
			t.Errorf("one says\n%sand the other\n%s", one, two)
		}
	})
}

func TestARelayThatNeverSaysThatItIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t)
		const silent = "wss://silent.example"
		hand := func(n int) {
			if err := o.Handle(silent, strangerRequest(t, n)); err != nil {
				t.Error(err)
			}
			advance(time.Second)
		}
		hand(0)
		advance(8 * time.Second)
		hand(1)
		if o.fakeLink.fetched != 2 {
			t.Fatalf("asked %d times whether a request was answered, want 2", o.fakeLink.fetched)
		}
		hand(2)
		if o.fakeLink.fetched != 2 || len(o.jobs.started) != 3 {
			t.Errorf("asked %d times, %d started; want 2, 3", o.fakeLink.fetched, len(o.jobs.started))
		}
		if o.fakeLink.grace != 2*time.Second {
			t.Errorf("other relays are waited for %v, want 2s", o.fakeLink.grace)
		}
	})
}

func TestThousandsOfJobsAreWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l fakeJobs
		for i := range 13_000 {
			l.active = append(l.active, dvm.ActiveJob{ID: fmt.Sprintf("%064d", i), Customer: "x", Created: time.Now().Add(time.Duration(i) * time.Second)})
		}
		o := newTestProvider(t, func(c *dvm.Config) { c.Jobs = &l })
		ids := map[string]bool{}
		for name, filters := range o.fakeLink.subs {
			for _, f := range filters {
				if len(filters) > 20 || len(f.Tags["e"]) > 100 {
					t.Fatalf("%s has %d filters of %d ids", name, len(filters), len(f.Tags["e"]))
				}
				for _, id := range f.Tags["e"] {
					ids[id] = true
				}
			}
		}
		if len(ids) != 12_000 || ids[l.active[999].ID] || !ids[l.active[1000].ID] || len(o.fakeLink.subs) != 16 {
			t.Errorf("%d jobs in %d subscriptions, want the newest 12000 in 15 beside the one for requests", len(ids), len(o.fakeLink.subs))
		}
		// When a job ends, only one of the subscriptions is renewed.
		before := o.fakeLink.asked
		_ = l.Cancel(context.Background(), l.active[7000].ID, "x")
		l.mu.Lock()
		l.active = l.active[1000:]
		l.mu.Unlock()
		advance(time.Minute)
		if got := o.fakeLink.asked - before; got != 1 {
			t.Errorf("%d subscriptions were made anew, want 1", got)
		}
	})
}
