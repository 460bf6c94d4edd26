package dvm_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// fakeLink is a link without relays, for synctest bubbles: it stores what is
// published, and answers from its stored events.
type fakeLink struct {
	mu        sync.Mutex
	published []*nostr.Event
	classes   []nostr.Class
	at        []time.Time
	subs      map[string][]nostr.Filter
	asked     int // subscriptions that were made
	fetched   int
	grace     time.Duration
	shelf     []*nostr.Event // events that Fetch returns
	deaf      bool           // Fetch fails
	sloppy    bool           // FetchSoon returns events that do not match
}

func (d *fakeLink) Publish(class nostr.Class, events ...*nostr.Event) *nostr.Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range events {
		d.published, d.classes, d.at = append(d.published, e), append(d.classes, class), append(d.at, time.Now())
	}
	return new(nostr.Delivery)
}

func (d *fakeLink) Subscribe(name string, _ time.Time, filters ...nostr.Filter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.subs == nil {
		d.subs = map[string][]nostr.Filter{}
	}
	d.subs[name] = filters
	d.asked++
}

func (d *fakeLink) Unsubscribe(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.subs, name)
}

func (d *fakeLink) FetchSoon(_ context.Context, grace time.Duration, filters ...nostr.Filter) (list []*nostr.Event, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fetched++
	d.grace = grace
	if d.deaf {
		return nil, errors.New("no relay answers")
	}
	for _, e := range d.shelf {
		for _, f := range filters {
			if d.sloppy || f.Matches(e) {
				list = append(list, e)
				break
			}
		}
	}
	return list, nil
}

// events returns the published events.
func (d *fakeLink) events() []*nostr.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*nostr.Event(nil), d.published...)
}

// wants returns the filters of the subscription.
func (d *fakeLink) wants(name string) []nostr.Filter {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.subs[name]
}

// texts returns the texts of the published events, with the seconds since the
// start.
func (d *fakeLink) texts(start time.Time) (list []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, e := range d.published {
		if err := e.Verify(); err != nil || e.PubKey != ours.PublicKey() {
			list = append(list, "not an event of ours")
		}
		text := e.Content
		if e.Kind != dvm.KindFeedback {
			text = "result " + e.Content
		}
		list = append(list, d.at[i].Sub(start).String()+" "+e.Tags.Find("status").Value()+" "+text)
	}
	return list
}

// newRunner returns a runner that publishes to the fake link and is closed when
// the test ends.
func newRunner(t *testing.T, d *fakeLink, h dvm.Handler, change ...func(*dvm.RunnerConfig)) *dvm.Runner {
	t.Helper()
	cfg := dvm.RunnerConfig{Link: d, Key: ours, Handler: h}
	for _, f := range change {
		f(&cfg)
	}
	r, err := dvm.NewRunner(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func start(t *testing.T, jobs dvm.Jobs, r *dvm.Request) {
	t.Helper()
	if err := jobs.Start(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}
