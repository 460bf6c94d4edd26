package dvm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// fakeJobs implements Jobs; it only records the jobs.
type fakeJobs struct {
	mu        sync.Mutex
	started   []*dvm.Request
	cancelled []string
	active    []dvm.ActiveJob
	err       error         // what Start returns
	wall      chan struct{} // Start waits until it is closed
}

func (l *fakeJobs) Start(_ context.Context, r *dvm.Request) error {
	if l.wall != nil {
		<-l.wall
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	l.started = append(l.started, r)
	l.active = append(l.active, dvm.ActiveJob{ID: r.ID, Customer: r.Customer, Created: r.Created})
	return nil
}

func (l *fakeJobs) Cancel(_ context.Context, id, by string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancelled = append(l.cancelled, id)
	l.active = slices.DeleteFunc(l.active, func(j dvm.ActiveJob) bool { return j.ID == id && j.Customer == by })
	return nil
}

func (l *fakeJobs) Active() []dvm.ActiveJob {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.active)
}

// testProvider is a provider in a synctest bubble.
type testProvider struct {
	*dvm.Provider
	fakeLink fakeLink
	jobs     fakeJobs
	seen     []dvm.Intake
}

const relay = "wss://relay.example"

// newTestProvider returns a provider whose relay has sent all stored events. It
// stops at the end of the bubble.
func newTestProvider(t *testing.T, change ...func(*dvm.Config)) *testProvider {
	t.Helper()
	o := new(testProvider)
	cfg := dvm.Config{Link: &o.fakeLink, Key: ours, Jobs: &o.jobs, Observer: func(i dvm.Intake) { o.seen = append(o.seen, i) }}
	for _, f := range change {
		f(&cfg)
	}
	p, err := dvm.NewProvider(cfg)
	if err != nil {
		t.Fatal(err)
	}
	o.Provider = p
	c, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- p.Run(c) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(o.fakeLink.subs) != 0 {
			t.Errorf("subscriptions are left: %v", o.fakeLink.subs)
		}
	})
	synctest.Wait()
	p.Stored(relay, "jobs")
	return o
}

// deliver passes the event to the provider, and waits until it is handled.
func (o *testProvider) deliver(t *testing.T, e *nostr.Event) {
	t.Helper()
	if err := o.Handle(relay, e); err != nil {
		t.Errorf("Handle: %v", err)
	}
	synctest.Wait()
}

// advance lets time pass, with everything that is due in it.
//
// real clock: it runs in a bubble.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestAProviderAsksForItsKinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			open bool
			want string
		}{{false, fmt.Sprintf(`{"kinds":[5100,5900],"#p":["%s"]}`, ours.PublicKey())}, {true, `{"kinds":[5100,5900]}`}} {
			o := newTestProvider(t, func(cfg *dvm.Config) {
				cfg.Kinds = map[int]dvm.Rules{5900: {}, 5100: {}}
				cfg.Gate.Open = c.open
			})
			got, _ := o.fakeLink.wants("jobs")[0].MarshalJSON()
			if string(got) != c.want {
				t.Errorf("it asks for %s, want %s", got, c.want)
			}
		}
	})
}

func TestARequestIsStartedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t)
		e := newRequest(t, time.Now())
		for range 5 {
			o.deliver(t, e)
		}
		o.Stored("wss://other.example", "jobs")
		if err := o.Handle("wss://other.example", e); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(o.jobs.started) != 1 || o.jobs.started[0].Relay != relay || o.fakeLink.fetched != 0 {
			t.Errorf("started %d, asked %d times", len(o.jobs.started), o.fakeLink.fetched)
		}
		if s := o.Stats(); s[dvm.Seen] != 5 || s[dvm.Accepted] != 1 || len(s) != 2 {
			t.Errorf("Stats = %v", s)
		}
		if len(o.seen) != 6 || o.seen[0] != (dvm.Intake{Relay: relay, ID: e.ID, Customer: e.PubKey, Verdict: dvm.Accepted}) {
			t.Errorf("observed: %v", o.seen)
		}
	})
}

func TestWhatIsNotARequestForUsIsDroppedInSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t)
		now := time.Now()
		forged := newRequest(t, now)
		forged.Sig = strings.Repeat("0", 128)
		for _, e := range []*nostr.Event{
			forged, newRequest(t, now.Add(-time.Hour)), newRequest(t, now.Add(time.Hour)), signed(t, newRequest(t, now), ours),
			newRequest(t, now, func(e *nostr.Event) { e.Kind = 5001 }), newRequest(t, now, func(e *nostr.Event) { e.Tags = nil }),
		} {
			o.Handle(relay, e)
			synctest.Wait()
		}
		if len(o.jobs.started) != 0 || len(o.fakeLink.events()) != 0 {
			t.Errorf("started %v, said %v", o.jobs.started, o.fakeLink.events())
		}
		for _, v := range []dvm.Verdict{dvm.Forged, dvm.Stale, dvm.Future, dvm.OwnKey, dvm.WrongKind, dvm.NotOurs} {
			if o.Stats()[v] != 1 {
				t.Errorf("%v: %d, want 1", v, o.Stats()[v])
			}
		}
	})
}

func TestARelayIsToldOfForgedEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t)
		forged := newRequest(t, time.Now())
		forged.Sig = strings.Repeat("0", 128)
		o.deliver(t, forged)
		if err := o.Handle("wss://other.example", forged); err != nil {
			t.Errorf("an honest relay gets an error: %v", err)
		}
		if err := o.Handle(relay, forged); err == nil {
			t.Error("the relay is not told")
		}
	})
}

func TestInvalidRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t, func(c *dvm.Config) { c.Gate.Burst = 100 })
		for _, v := range []string{"0", "-5", "abc", "1.5", "1e3", "30s", ""} {
			o.deliver(t, newRequest(t, time.Now(), withTimeout(v)))
		}
		o.deliver(t, newRequest(t, time.Now(), withTimeout("30"), withTimeout("30")))
		if len(o.jobs.started) != 0 || o.Stats()[dvm.Invalid] != 8 {
			t.Errorf("started %v; %v", o.jobs.started, o.Stats())
		}
		testfile.Golden(t, "testdata/invalid.jsonl", lines(o.fakeLink.events()))
	})
}

func TestAFloodIsToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t)
		for i := range 30 {
			o.deliver(t, newRequest(t, time.Now(), func(e *nostr.Event) { e.Content = fmt.Sprint(i) }))
		}
		if len(o.jobs.started) != 5 {
			t.Errorf("%d were started, want 5", len(o.jobs.started))
		}
		testfile.Golden(t, "testdata/overloaded.jsonl", lines(o.fakeLink.events()))
		if s := o.Stats(); s[dvm.Overloaded] != 1 || s[dvm.Limited] != 24 {
			t.Errorf("Stats = %v", s)
		}
		// The requests that were dropped silently are not lost: a relay sends them again.
		advance(6 * time.Second)
		late := newRequest(t, time.Now(), withTimeout("5"))
		o.deliver(t, newRequest(t, time.Now(), withTimeout("6")))
		o.deliver(t, late)
		if len(o.jobs.started) != 6 || o.Stats()[dvm.Limited] != 25 {
			t.Errorf("%d were started, want one more; %v", len(o.jobs.started), o.Stats())
		}
		advance(6 * time.Second)
		o.deliver(t, late)
		if len(o.jobs.started) != 7 {
			t.Errorf("%d were started, want another", len(o.jobs.started))
		}
		advance(time.Minute)
		o.deliver(t, newRequest(t, time.Now().Add(-time.Minute), func(e *nostr.Event) { e.Content = "20" }))
		advance(time.Second) // the provider first asks the relays whether the request was answered
		if len(o.jobs.started) != 8 {
			t.Errorf("%d were started, want the last one too", len(o.jobs.started))
		}
	})
}

func TestNoRoomIsAnsweredOnceAndTriedAgainOtherwise(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t)
		o.jobs.err = fmt.Errorf("wrapped: %w", dvm.ErrOverloaded)
		first, second := newRequest(t, time.Now()), newRequest(t, time.Now(), withTimeout("5"))
		o.deliver(t, first)
		o.deliver(t, second)
		if got := o.fakeLink.texts(time.Now()); len(got) != 2 || got[0] != "0s error OVERLOADED: no room for another job; try again later" {
			t.Errorf("told %v", got)
		}
		o.jobs.err = nil
		o.deliver(t, first) // was answered
		o.deliver(t, second)
		if len(o.jobs.started) != 1 || o.jobs.started[0].ID != second.ID {
			t.Errorf("started %v, want the second", o.jobs.started)
		}
	})
}

func TestNoRoomIsNotToldWhereOthersMayHaveSome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t, func(c *dvm.Config) { c.Shared = true })
		o.jobs.err = dvm.ErrOverloaded
		e := newRequest(t, time.Now())
		o.deliver(t, e)
		o.jobs.err = nil
		o.deliver(t, e)
		if len(o.jobs.started) != 1 || len(o.fakeLink.events()) != 0 {
			t.Errorf("started %v, said %v, want it done the second time and nothing said", o.jobs.started, o.fakeLink.events())
		}
	})
}

func TestAJobThatIsNotRecordedIsTakenAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t)
		o.jobs.err = errors.New("disk full")
		e := newRequest(t, time.Now())
		o.deliver(t, e)
		o.jobs.err = nil
		o.deliver(t, e)
		if len(o.jobs.started) != 1 || len(o.fakeLink.events()) != 0 || o.Stats()[dvm.Unrecorded] != 1 {
			t.Errorf("started %v, said %v, %v", o.jobs.started, o.fakeLink.events(), o.Stats())
		}
	})
}

func TestAJobThatCanNotBeRecordedIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t)
		o.jobs.err = fmt.Errorf("start: %w", &dvm.InvalidError{Tag: "content", Value: "600000", Want: "want less"})
		e := newRequest(t, time.Now())
		o.deliver(t, e)
		o.deliver(t, e)
		if got := o.fakeLink.texts(time.Now()); len(got) != 2 || got[0] != `0s error INVALID_REQUEST: content "600000": want less` || o.Stats()[dvm.Invalid] != 1 {
			t.Errorf("told %v, %v", got, o.Stats())
		}
	})
}

// TestBacklog tests requests that an earlier process may have answered.
func TestBacklog(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		kind    int // kind of the event that relays have about the request; 0 means none
		by      nostr.SecretKey
		status  string
		deaf    bool
		started int
	}{
		{name: "not answered", started: 1},
		{name: "no relay knows", deaf: true, started: 1},
		{name: "a result", kind: 6900, by: ours, status: "success"},
		{name: "a failure", kind: 7000, by: ours, status: "error"},
		{name: "it was begun only", kind: 7000, by: ours, status: "processing", started: 1},
		{name: "another provider's result", kind: 6900, by: stranger, status: "success", started: 1},
		{name: "withdrawn", kind: 5, by: customer},
		{name: "withdrawn by another customer", kind: 5, by: stranger, started: 1},
	} {
		for _, old := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, old %v", c.name, old), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					o := newTestProvider(t)
					o.fakeLink.deaf, o.fakeLink.sloppy = c.deaf, old
					from, at := relay, time.Now().Add(-time.Minute)
					if !old {
						from, at = "wss://just-connected.example", time.Now()
					}
					e := newRequest(t, at)
					if c.kind != 0 {
						about := &nostr.Event{Kind: c.kind, CreatedAt: time.Now().Unix(), Tags: nostr.Tags{{"e", e.ID}, {"status", c.status}}}
						o.fakeLink.shelf = append(o.fakeLink.shelf, signed(t, about, c.by))
					}
					if err := o.Handle(from, e); err != nil {
						t.Error(err)
					}
					advance(time.Second)
					if len(o.jobs.started) != c.started || o.fakeLink.fetched != 1 || o.Stats()[dvm.Answered] != uint64(1-c.started) {
						t.Errorf("started %d, asked %d times, %v; want %d started", len(o.jobs.started), o.fakeLink.fetched, o.Stats(), c.started)
					}
				})
			})
		}
	}
}

func TestABigBacklogIsTakenOldestFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t, func(c *dvm.Config) { c.Gate.Burst = 100 })
		for i := range 20 { // the newest first, as relays do
			o.deliver(t, newRequest(t, time.Now().Add(time.Duration(-60-i)*time.Second)))
		}
		advance(2 * time.Second)
		if len(o.jobs.started) != 20 || o.fakeLink.fetched != 2 {
			t.Fatalf("started %d, asked %d times", len(o.jobs.started), o.fakeLink.fetched)
		}
		if !slices.IsSortedFunc(o.jobs.started[:16], func(a, b *dvm.Request) int { return a.Created.Compare(b.Created) }) {
			t.Error("not the oldest first")
		}
	})
}

func TestABacklogThatIsTooBigComesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t, func(c *dvm.Config) { c.Gate.Burst = 300 })
		o.jobs.wall = make(chan struct{})
		var list []*nostr.Event
		for i := range 150 {
			list = append(list, newRequest(t, time.Now().Add(-time.Minute), func(e *nostr.Event) { e.Content = fmt.Sprint(i) }))
			o.deliver(t, list[i])
		}
		advance(time.Second)
		dropped := o.Stats()[dvm.Dropped]
		close(o.jobs.wall)
		advance(time.Second)
		for _, e := range list {
			o.deliver(t, e)
		}
		advance(time.Second)
		if dropped == 0 || len(o.jobs.started) != len(list) {
			t.Errorf("%d were dropped, in the end %d of %d are started", dropped, len(o.jobs.started), len(list))
		}
	})
}

// TestAnsweredJobsDoNotCount: a customer whose jobs are all done is not refused
// after a restart.
func TestAnsweredJobsDoNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t)
		var list []*nostr.Event
		for i := range 12 {
			e := newRequest(t, time.Now().Add(time.Duration(-60-i)*time.Second))
			list = append(list, e)
			o.fakeLink.shelf = append(o.fakeLink.shelf, signed(t, &nostr.Event{Kind: 6900, CreatedAt: e.CreatedAt, Tags: nostr.Tags{{"e", e.ID}}}, ours))
		}
		for _, e := range list {
			o.deliver(t, e)
		}
		o.deliver(t, newRequest(t, time.Now(), withTimeout("5")))
		advance(2 * time.Second)
		if len(o.jobs.started) != 1 || len(o.fakeLink.events()) != 0 || o.Stats()[dvm.Answered] != 12 {
			t.Errorf("started %d, said %v, %v", len(o.jobs.started), o.fakeLink.texts(time.Now()), o.Stats())
		}
	})
}

func TestTheCustomerCancels(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t)
		e := newRequest(t, time.Now())
		o.deliver(t, e)
		advance(time.Second)
		want := fmt.Sprintf(`{"authors":["%s"],"kinds":[5],"#e":["%s"]}`, customer.PublicKey(), e.ID)
		if got, _ := o.fakeLink.wants("cancel-1")[0].MarshalJSON(); string(got) != want {
			t.Errorf("it asks for %s, want %s", got, want)
		}
		withdrawal := func(key nostr.SecretKey) *nostr.Event {
			return signed(t, &nostr.Event{Kind: 5, CreatedAt: time.Now().Unix(), Tags: nostr.Tags{{"e", "x"}, {"e", e.ID}}}, key)
		}
		forged := withdrawal(customer)
		forged.Sig = strings.Repeat("0", 128)
		o.deliver(t, withdrawal(stranger))
		o.deliver(t, forged)
		if len(o.jobs.cancelled) != 0 {
			t.Errorf("cancelled: %v", o.jobs.cancelled)
		}
		o.Handle(relay, withdrawal(customer)) // returns the error for the forged event before
		synctest.Wait()
		if len(o.jobs.cancelled) != 1 || o.jobs.cancelled[0] != e.ID {
			t.Errorf("cancelled: %v, want %s", o.jobs.cancelled, e.ID)
		}
		if s := o.Stats(); s[dvm.Withdrawn] != 1 || s[dvm.Forged] != 1 || s[dvm.NotOurs] != 1 {
			t.Errorf("Stats = %v", s)
		}
		advance(time.Second)
		if got := o.fakeLink.wants("cancel-1"); got != nil {
			t.Errorf("it still asks for %v", got)
		}
	})
}

func TestManyJobsAreOneSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t)
		before := o.fakeLink.asked
		o.jobs.mu.Lock()
		for i := range 247 {
			o.jobs.active = append(o.jobs.active, dvm.ActiveJob{ID: fmt.Sprint(i), Customer: "x", Created: time.Now()})
		}
		o.jobs.mu.Unlock()
		for _, timeout := range []string{"1", "2", "3"} {
			o.deliver(t, newRequest(t, time.Now(), withTimeout(timeout)))
		}
		advance(time.Second)
		if got := o.fakeLink.wants("cancel-1"); len(got) != 3 || o.fakeLink.asked != before+1 {
			t.Errorf("%d filters in %d subscriptions", len(got), o.fakeLink.asked-before)
		}
		// The end of a job has no signal; the regular refresh detects it.
		o.jobs.mu.Lock()
		o.jobs.active = o.jobs.active[:7]
		o.jobs.mu.Unlock()
		advance(time.Minute)
		if got := o.fakeLink.wants("cancel-1"); len(got) != 1 || len(got[0].Tags["e"]) != 7 {
			t.Errorf("later it asks for %v", got)
		}
	})
}

func TestJobsOfAnEarlierProcessAreWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l fakeJobs
		l.active = []dvm.ActiveJob{{ID: "x", Customer: "y", Created: time.Now()}}
		o := newTestProvider(t, func(c *dvm.Config) { c.Jobs = &l })
		if got := o.fakeLink.wants("cancel-1"); len(got) != 1 {
			t.Errorf("it asks for %v", got)
		}
	})
}

func TestAReaderDoesNotWaitLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newTestProvider(t, func(c *dvm.Config) { c.Gate.Burst = 300 })
		o.jobs.wall = make(chan struct{})
		before := time.Now()
		for i := range 70 {
			o.deliver(t, newRequest(t, time.Now(), func(e *nostr.Event) { e.Content = fmt.Sprint(i) }))
		}
		// One event waits in Start and 64 are queued; for each other one its reader waited
		// for a moment.
		if got, want := time.Since(before), 5*100*time.Millisecond; got != want || o.Stats()[dvm.Dropped] != 5 {
			t.Errorf("the reader waited for %v, want %v; %v", got, want, o.Stats())
		}
		close(o.jobs.wall)
		synctest.Wait()
		if len(o.jobs.started) != 65 {
			t.Errorf("started %d, want 65", len(o.jobs.started))
		}
	})
}

func TestAProviderThatHasEndedTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d fakeLink
		p, err := dvm.NewProvider(dvm.Config{Link: &d, Key: ours, Jobs: new(fakeJobs)})
		if err != nil {
			t.Fatal(err)
		}
		c, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Run(c); err != nil {
			t.Error(err)
		}
		if err := p.Run(c); err == nil {
			t.Error("it runs again")
		}
		before := time.Now()
		e := newRequest(t, before)
		for range 100 {
			p.Handle(relay, e)
		}
		if d := time.Since(before); d != 0 {
			t.Errorf("readers wait for %v", d)
		}
	})
}

func TestNewProviderSaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := dvm.NewProvider(dvm.Config{Kinds: map[int]dvm.Rules{1: {DefaultTimeout: -1}}})
	for _, want := range []string{"kinds: 1 is not", "kinds[1]: default-timeout", "key: want", "link: nil", "jobs: nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewProvider: %v; want %q in it", err, want)
		}
	}
}
