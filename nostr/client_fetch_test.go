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

func TestFetchReturnsEachStoredEventOnce(t *testing.T) {
	t.Parallel()
	a, b := nostrtest.New(t), nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{Repeat: 3}))
	both := newEvent(t, "both")
	a.Inject(both)
	b.Inject(both)
	b.Inject(newEvent(t, "b"))
	c := client(t, nil, a, b)
	run(t, c)
	got, err := c.Fetch(testwait.Context(t), nostr.Filter{Kinds: []int{7000}})
	if err != nil || len(got) != 2 {
		t.Errorf("Fetch: %d events, %v, want 2, nil", len(got), err)
	}
	testwait.Until(t, "the subscriptions were ended", func() bool {
		return received(a, nostr.TypeClose) == 1 && received(b, nostr.TypeClose) == 1
	})
}

func TestFetchReturnsWhatThereIsAndNamesWhoDidNotAnswer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		faults nostrtest.Faults
		silent bool // only the end of the context ends it
		want   string
	}{
		"the relay never says that this was all": {nostrtest.Faults{NoEOSE: true}, true, "no answer"},
		"the relay is silent":                    {nostrtest.Faults{Mute: true}, true, "no answer"},
		"the relay is away":                      {nostrtest.Faults{RefuseDial: true}, false, "no link to the relay: dial: the relay answered with status 503"},
		"the relay refuses":                      {nostrtest.Faults{CloseReq: "blocked: no"}, false, "closed: blocked: no"},
		"the relay is busy":                      {nostrtest.Faults{CloseReq: "rate-limited: no"}, false, "closed: rate-limited: no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good, bad := nostrtest.New(t), nostrtest.New(t, nostrtest.WithFaults(test.faults))
			good.Inject(newEvent(t, "1"))
			c := client(t, nil, good, bad)
			run(t, c)
			ctx, cancel := context.WithCancel(testwait.Context(t))
			defer cancel()
			if test.silent {
				go func() {
					_ = good.Wait(ctx, func([]*nostr.Event) bool { return received(good, nostr.TypeClose) > 0 })
					cancel()
				}()
			}
			got, err := c.Fetch(ctx, nostr.Filter{Kinds: []int{7000}})
			if len(got) != 1 || err == nil || !strings.Contains(err.Error(), "fetch from "+bad.URL()+": "+test.want) {
				t.Errorf("Fetch: %d events, %v, want 1 and %q", len(got), err, test.want)
			}
			if test.silent && !errors.Is(err, context.Canceled) {
				t.Errorf("Fetch: %v, want it canceled", err)
			}
			if strings.Contains(err.Error(), good.URL()) {
				t.Errorf("Fetch: %v, want nothing about the relay that answered", err)
			}
		})
	}
}

func TestFetchSoonDoesNotWaitForThoseThatAreSlow(t *testing.T) {
	t.Parallel()
	good := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{Mute: true}))
	slow := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{NoEOSE: true}))
	good.Inject(newEvent(t, "1"))
	c := client(t, nil, good, slow)
	run(t, c)
	go func() { // the good one answers when the slow one has been asked
		_ = slow.Wait(t.Context(), func([]*nostr.Event) bool { return len(asked(slow)) == 1 })
		good.Change(func(f *nostrtest.Faults) { f.Mute = false })
	}()
	got, err := c.FetchSoon(testwait.Context(t), time.Millisecond, nostr.Filter{Kinds: []int{7000}})
	if len(got) != 1 || err == nil || !strings.Contains(err.Error(), "fetch from "+slow.URL()+": no answer: another relay has") {
		t.Errorf("FetchSoon: %d events, %v, want 1 and a word about the slow one", len(got), err)
	}
	testwait.Until(t, "the question is withdrawn", func() bool { return received(slow, nostr.TypeClose) == 1 })
}

func TestFetchSoonWaitsForTheFirstThatAnswers(t *testing.T) {
	t.Parallel()
	away := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{CloseReq: "blocked: no"}))
	silent := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{NoEOSE: true}))
	c := client(t, nil, away, silent)
	run(t, c)
	ctx, cancel := context.WithCancel(testwait.Context(t))
	defer cancel()
	testwait.Until(t, "both are up", func() bool { return c.Status()[0].Up && c.Status()[1].Up })
	done := make(chan error, 1)
	go func() {
		_, err := c.FetchSoon(ctx, time.Nanosecond, nostr.Filter{Kinds: []int{7000}})
		done <- err
	}()
	testwait.Until(t, "both were asked", func() bool { return len(asked(away)) == 1 && len(asked(silent)) == 1 })
	cancel() // a refusal is no answer: nothing else ends it
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("FetchSoon: %v, want it canceled", err)
	}
}

func TestFetchSaysWhoWeAreIfAsked(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{AuthRequired: true}))
	r.Inject(newEvent(t, "1"))
	c := client(t, nil, r)
	run(t, c)
	got, err := c.Fetch(testwait.Context(t), nostr.Filter{Kinds: []int{7000}})
	if err != nil || len(got) != 1 {
		t.Errorf("Fetch: %d events, %v, want 1, nil", len(got), err)
	}
	anonymous := client(t, func(cfg *nostr.ClientConfig) { cfg.Key = nostr.SecretKey{} }, r)
	run(t, anonymous)
	if got, err := anonymous.Fetch(testwait.Context(t), nostr.Filter{}); err == nil || len(got) != 0 {
		t.Errorf("Fetch without a key: %d events, %v, want an error", len(got), err)
	}
}

func TestFetchReturnsNothingForged(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]nostrtest.Faults{
		"signatures": {BadSignature: true}, "ids": {TamperContent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := nostrtest.New(t, nostrtest.WithFaults(faults))
			for i := range 10 {
				r.Inject(newEvent(t, fmt.Sprint(i)))
			}
			c := client(t, nil, r)
			run(t, c)
			got, err := c.Fetch(testwait.Context(t), nostr.Filter{Kinds: []int{7000}})
			if err != nil || len(got) != 0 || c.Status()[0].BadEvents != 10 {
				t.Errorf("Fetch: %d events, %v, %+v, want none and 10 bad ones", len(got), err, c.Status()[0])
			}
		})
	}
}
