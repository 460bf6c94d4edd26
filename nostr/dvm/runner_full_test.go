package dvm_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
	"github.com/tideover/tideover/nostr/nostrtest"
)

// fullClient returns a client whose outboxes are full until it runs.
func fullClient(t *testing.T, relays ...*nostrtest.Relay) *nostr.Client {
	t.Helper()
	cfg := nostr.ClientConfig{Key: ours, Outbox: 1, Reconnect: quick(t), Resend: quick(t)}
	for _, r := range relays {
		cfg.Relays = append(cfg.Relays, r.URL())
	}
	c, err := nostr.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.Publish(nostr.Result, signed(t, &nostr.Event{Kind: 1, CreatedAt: 1}, ours))
	return c
}

// link runs a client until the test ends.
func link(t *testing.T, c *nostr.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = c.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
}

// oneWorker returns a runner with one worker whose jobs succeed at once.
func oneWorker(t *testing.T, c *nostr.Client) *dvm.Runner {
	t.Helper()
	r, err := dvm.NewRunner(dvm.RunnerConfig{Link: c, Key: ours, Workers: 1,
		Handler: func(context.Context, *dvm.Request, func(dvm.Progress)) (dvm.Result, error) {
			return dvm.Result{Content: "precious"}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAResultIsKeptUntilThereIsRoomForIt(t *testing.T) {
	t.Parallel()
	relay := nostrtest.New(t)
	c := fullClient(t, relay)
	r := oneWorker(t, c)
	start(t, r, newParsedRequest(t, time.Now()))
	testwait.Until(t, "the job is done", func() bool { return r.Stats().Succeeded == 1 })
	if got := r.Stats().Running; got != 1 {
		t.Errorf("%d workers are busy, want the one that has the result", got)
	}
	link(t, c)
	testwait.Until(t, "the result is published", func() bool { return len(answers(relay, 6900)) == 1 })
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestARunnerThatClosesGivesUpOnAFullOutbox(t *testing.T) {
	t.Parallel()
	r := oneWorker(t, fullClient(t, nostrtest.New(t)))
	start(t, r, newParsedRequest(t, time.Now()))
	testwait.Until(t, "the job is done", func() bool { return r.Stats().Succeeded == 1 })
	ctx := testwait.Context(t)
	for range 2 { // closing twice is no harm
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

func TestARelayThatIsAwayForGoodHoldsNoWorker(t *testing.T) {
	t.Parallel()
	good, away := nostrtest.New(t), nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{RefuseDial: true}))
	c := fullClient(t, good, away)
	link(t, c)
	testwait.Until(t, "one relay has room", func() bool { return c.Status()[0].Queued == 0 })
	r := oneWorker(t, c)
	for _, timeout := range []string{"500", "501", "502"} {
		start(t, r, newParsedRequest(t, time.Now(), withTimeout(timeout)))
		testwait.Until(t, "the worker is free", func() bool { return r.Stats().Running == 0 })
		testwait.Until(t, "the relay has room", func() bool { return c.Status()[0].Queued == 0 })
	}
	if got := len(answers(good, 6900)); got != 3 {
		t.Errorf("the good relay has %d results, want 3", got)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
