package nostr_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
)

func TestNewClientReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := nostr.NewClient(nostr.ClientConfig{
		Relays: []string{
			"wss://relay.example", "http://relay.example", "wss://me:secret@relay.example", "wss://",
			"wss://RELAY.example:443/", "wss://other.example/#x", "%zz", "wss://relay.example?token=1",
		},
		Outbox: -1, DialTimeout: -1, Reconnect: policy(t, "fixed(1s) attempts=3"), Resend: policy(t, quick+" total-timeout=1s"),
	})
	if err == nil {
		t.Fatal("NewClient: nil, want an error")
	}
	for _, want := range []string{
		"relays[1]: want an address that begins with ws://", "relays[2]: user and password", "relays[3]: the host is missing",
		"relays[4]: the same as relays[0]", "relays[5]: a fragment", "relays[6]: not a URL", "relays[7]: the same as relays[0]",
		"outbox: -1 is negative", "dial timeout:", "reconnect: attempts: want unlimited", "resend: total-timeout:",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("NewClient: %v\nwant it to say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("NewClient: %v\nwant no password", err)
	}
	if _, err := nostr.NewClient(nostr.ClientConfig{}); err == nil || !strings.Contains(err.Error(), "relays: the list is empty") {
		t.Errorf("NewClient without relays: %v", err)
	}
}

func TestARelayThatIsAwayAtTheStartLosesNothing(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	r.Stop()
	var box inbox
	c := client(t, func(cfg *nostr.ClientConfig) { cfg.Handle, cfg.Stored = box.handle, box.eose }, r)
	c.Subscribe("jobs", time.Now().Add(-10*time.Minute), nostr.Filter{Kinds: []int{7000}})
	run(t, c)
	d := c.Publish(nostr.Result, newEvent(t, "mine"))
	testwait.Until(t, "a dial fails", func() bool { return c.Status()[0].Error != "" })
	r.Inject(newEvent(t, "sent meanwhile"))
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	wait(t, d)
	testwait.Until(t, "the job arrives", func() bool { return box.has("sent meanwhile") })
	testwait.Until(t, "the stored events were all handled", func() bool { return box.eoses() == 1 })
}

func TestWhatIsSentDuringAnOutageArrivesAfterIt(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	var box inbox
	c := client(t, func(cfg *nostr.ClientConfig) { cfg.Handle, cfg.Stored = box.handle, box.eose }, r)
	begin := time.Now().Add(-10 * time.Minute)
	c.Subscribe("jobs", begin, nostr.Filter{Kinds: []int{7000}})
	up := time.Now()
	run(t, c)
	testwait.Until(t, "subscribed", func() bool { return box.eoses() == 1 })
	r.Stop()
	r.Inject(newEvent(t, "sent meanwhile"))
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the job arrives", func() bool { return box.has("sent meanwhile") })

	since := asked(r)
	if got := since[0].Since; got != begin.Unix() {
		t.Errorf("first asked for since %d, want %d", got, begin.Unix())
	}
	// real clock: what has passed since is measured, and may be long
	first, last := up.Add(-2*time.Minute).Unix(), time.Now().Add(-2*time.Minute).Unix()
	if got := since[len(since)-1].Since; got < first || got > last {
		t.Errorf("asked for since %d after the outage, want the last contact - 2 min, from %d to %d", got, first, last)
	}
}

func TestASubscriptionThatTheRelayClosesIsMadeAgain(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"rate-limited: slow down", "error: shutting down", "no reason"} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{CloseReq: text, CloseReqNext: 3}))
			var box inbox
			c := client(t, func(cfg *nostr.ClientConfig) { cfg.Handle, cfg.Stored = box.handle, box.eose }, r)
			c.Subscribe("jobs", time.Time{}, nostr.Filter{Kinds: []int{7000}})
			run(t, c)
			testwait.Until(t, "subscribed", func() bool { return box.eoses() == 1 })
			r.Inject(newEvent(t, "job"))
			testwait.Until(t, "the job arrives", func() bool { return box.has("job") })
			if got := c.Status()[0]; got.Links != 1 || !got.Healthy() {
				t.Errorf("Status: %+v, want one healthy link", got)
			}
		})
	}
}

func TestARelayThatRefusesASubscriptionIsUnhealthy(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{CloseReq: "blocked: \x1b[31mno"}))
	c := client(t, nil, r)
	c.Subscribe("jobs", time.Time{}, nostr.Filter{Kinds: []int{7000}})
	run(t, c)
	testwait.Until(t, "refused", func() bool { return c.Status()[0].Trouble != "" })
	got := c.Status()[0]
	if got.Healthy() || !got.Up || got.Trouble != "subscription jobs: blocked: [31mno" {
		t.Errorf("Status: %+v, want it up, unhealthy, with the text made printable", got)
	}
	wait(t, c.Publish(nostr.Result, newEvent(t, "1"))) // it still takes events
	if got := len(asked(r)); got != 1 {
		t.Errorf("the relay was asked %d times, want once in five minutes", got)
	}
}

func TestSubscribeTakesThePlaceOfTheOneOfThatName(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	var box inbox
	c := client(t, func(cfg *nostr.ClientConfig) { cfg.Handle, cfg.Stored = box.handle, box.eose }, r)
	c.Subscribe("jobs", time.Time{}, nostr.Filter{Kinds: []int{1}})
	run(t, c)
	testwait.Until(t, "subscribed", func() bool { return box.eoses() == 1 })
	c.Subscribe("jobs", time.Time{}, nostr.Filter{Kinds: []int{7000}})
	testwait.Until(t, "subscribed again", func() bool { return box.eoses() == 2 })
	r.Inject(newEvent(t, "job"))
	testwait.Until(t, "the job arrives", func() bool { return box.has("job") })
	c.Unsubscribe("jobs")
	testwait.Until(t, "both were ended", func() bool { return received(r, nostr.TypeClose) == 2 })
	r.Inject(newEvent(t, "late"))
	wait(t, c.Publish(nostr.Result, newEvent(t, "1"))) // behind it
	if box.has("late") {
		t.Error("an event came after the subscription was ended")
	}
}

func TestEventsThatAreMissedAreFoundByTheSweep(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	var box inbox
	c := client(t, func(cfg *nostr.ClientConfig) {
		cfg.Handle, cfg.Stored, cfg.Sweep = box.handle, box.eose, 20*time.Millisecond
	}, r)
	c.Subscribe("jobs", time.Time{}, nostr.Filter{Kinds: []int{7000}})
	run(t, c)
	r.Inject(newEvent(t, "job"))
	testwait.Until(t, "the job came by several sweeps", func() bool { return box.count("job") >= 3 && box.eoses() >= 3 })
	if got := c.Status()[0].Links; got != 1 {
		t.Errorf("Status: %d links, want 1", got)
	}
}

func TestRunEndsAtOnceAndLeavesNothing(t *testing.T) {
	// Not parallel: it counts goroutines.
	for name, faults := range map[string]nostrtest.Faults{
		"with good relays":               {},
		"while a relay is silent":        {Mute: true},
		"while a relay is being dialled": {DialDelay: time.Hour},
		"while a relay refuses":          {RefuseDial: true},
		"while an answer is missing":     {SwallowOK: nostrtest.Always},
	} {
		t.Run(name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			r := nostrtest.New(t, nostrtest.WithFaults(faults))
			c := client(t, nil, r)
			c.Subscribe("jobs", time.Time{}, nostr.Filter{Kinds: []int{7000}})
			d := c.Publish(nostr.Result, newEvent(t, "1"))
			stop := run(t, c)
			testwait.Until(t, "it has begun", func() bool {
				s := c.Status()[0]
				return s.Up || s.Error != "" || faults.DialDelay > 0
			})
			stop()
			if err := d.Wait(testwait.Context(t)); err != nil && !errors.Is(err, nostr.ErrStopped) {
				t.Errorf("Wait: %v, want nil or ErrStopped", err)
			}
			if err := c.Publish(nostr.Result, newEvent(t, "2")).Wait(testwait.Context(t)); !errors.Is(err, nostr.ErrStopped) {
				t.Errorf("Publish after the end: %v, want ErrStopped", err)
			}
			if _, err := c.Fetch(testwait.Context(t), nostr.Filter{}); err == nil {
				t.Error("Fetch after the end: nil, want an error")
			}
			if err := c.Run(t.Context()); err == nil {
				t.Error("Run again: nil, want an error")
			}
			r.Close()
			testwait.Until(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
		})
	}
}
