package nostr_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
)

func TestAuthIsSaidOnceOnALinkWhenItIsAskedFor(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{AuthRequired: true}))
	var box inbox
	c := client(t, func(cfg *nostr.ClientConfig) { cfg.Handle, cfg.Stored = box.handle, box.eose }, r)
	c.Subscribe("jobs", time.Time{}, nostr.Filter{Kinds: []int{7000}})
	c.Subscribe("more", time.Time{}, nostr.Filter{Kinds: []int{1}})
	d := c.Publish(nostr.Result, newEvent(t, "1"), newEvent(t, "2"))
	run(t, c)
	wait(t, d)
	testwait.Until(t, "subscribed", func() bool { return box.eoses() == 2 && box.has("2") })
	if got := received(r, nostr.TypeAuth); got != 1 {
		t.Errorf("AUTH was sent %d times, want once", got)
	}
	r.Cut()
	wait(t, c.Publish(nostr.Result, newEvent(t, "3")))
	if got := received(r, nostr.TypeAuth); got != 2 {
		t.Errorf("AUTH was sent %d times on two links, want twice", got)
	}
}

func TestAuthWithoutAKeyIsARefusal(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{AuthRequired: true}))
	c := client(t, func(cfg *nostr.ClientConfig) { cfg.Key = nostr.SecretKey{} }, r)
	c.Subscribe("jobs", time.Time{}, nostr.Filter{Kinds: []int{7000}})
	run(t, c)
	if err := c.Publish(nostr.Result, newEvent(t, "1")).Wait(testwait.Context(t)); !strings.Contains(refused(err), "no key is configured") {
		t.Errorf("Wait: %v, want it refused for want of a key", err)
	}
	testwait.Until(t, "the subscription is refused", func() bool { return c.Status()[0].Trouble != "" })
}

func TestAuthenticatesOnlyIfRequired(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	c := client(t, nil, r)
	run(t, c)
	testwait.Until(t, "up", func() bool { return c.Status()[0].Up })
	r.Raw(`["AUTH","challenge"]`)
	wait(t, c.Publish(nostr.Result, newEvent(t, "1")))
	if got := received(r, nostr.TypeAuth); got != 0 {
		t.Errorf("AUTH was sent %d times, want never", got)
	}
}

func TestGarbageIsCountedAndDropped(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	var box inbox
	c := client(t, func(cfg *nostr.ClientConfig) { cfg.Handle = box.handle }, r)
	c.Subscribe("jobs", time.Time{}, nostr.Filter{Kinds: []int{7000}})
	run(t, c)
	testwait.Until(t, "subscribed", func() bool { return len(asked(r)) == 1 })
	garbage := []string{
		``, `null`, `{}`, `[]`, `[null]`, `["EVENT"]`, `["EVENT","1:jobs",null]`, `["EVENT","1:jobs",{"tags":[null]}]`,
		`["OK"]`, `["OK",1,2]`, `["CLOSED"]`, `["EOSE",{}]`, `["AUTH"]`, `["WHAT","x"]`, strings.Repeat("[", 100000), "\xff",
	}
	for _, g := range garbage {
		r.Raw(g)
	}
	r.Raw(`["EVENT","unknown",` + string(newEvent(t, "unknown").AppendJSON(nil)) + `]`)
	r.Raw(`["OK","nothing",true]`)
	r.Raw(`["CLOSED","unknown"]`)
	r.Raw(`["NOTICE","hello"]`)
	r.Inject(newEvent(t, "job"))
	testwait.Until(t, "the job arrives", func() bool { return box.has("job") })
	got := c.Status()[0]
	if got.BadFrames != len(garbage) || got.Unknown != 1 || got.Links != 1 || box.has("unknown") {
		t.Errorf("Status: %+v, want %d bad frames, 1 unknown, 1 link", got, len(garbage))
	}
}

func TestAFrameThatIsTooBigIsSkipped(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	var box inbox
	c := client(t, func(cfg *nostr.ClientConfig) { cfg.Handle = box.handle }, r)
	c.Subscribe("jobs", time.Time{}, nostr.Filter{Kinds: []int{7000}})
	run(t, c)
	testwait.Until(t, "subscribed", func() bool { return len(asked(r)) == 1 })
	r.Raw(`["NOTICE","` + strings.Repeat("x", nostr.MaxFrame-13) + `"]`) // as big as it may be
	r.Raw(`["NOTICE","` + strings.Repeat("x", nostr.MaxFrame-12) + `"]`)
	r.Raw(`["NOTICE","` + strings.Repeat("x", 7<<20) + `"]`)
	r.Inject(newEvent(t, "job"))
	testwait.Until(t, "the job arrives", func() bool { return box.has("job") })
	if got := c.Status()[0]; got.Oversized != 2 || got.Links != 1 || got.BadFrames != 0 {
		t.Errorf("Status: %+v, want 2 oversized, 1 link", got)
	}
}

func TestAFrameWithoutEndEndsTheLink(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	c := client(t, nil, r)
	run(t, c)
	testwait.Until(t, "up", func() bool { return c.Status()[0].Up })
	r.Raw(`["NOTICE","` + strings.Repeat("x", 8<<20) + `"]`)
	testwait.Until(t, "another link", func() bool { return c.Status()[0].Links == 2 })
	if got := c.Status()[0]; got.Oversized != 1 || !strings.Contains(got.Error, "too large") {
		t.Errorf("Status: %+v, want 1 oversized", got)
	}
	wait(t, c.Publish(nostr.Result, newEvent(t, "1")))
}

func TestALinkThatIsHalfOpenIsFoundByPing(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	c := client(t, func(cfg *nostr.ClientConfig) {
		cfg.PingEvery, cfg.PingTimeout = 10*time.Millisecond, 200*time.Millisecond
	}, r)
	run(t, c)
	testwait.Until(t, "up", func() bool { return c.Status()[0].Up })
	r.Change(func(f *nostrtest.Faults) { f.Mute = true })
	d := c.Publish(nostr.Result, newEvent(t, "1"))
	testwait.Until(t, "the link is given up", func() bool { return strings.Contains(c.Status()[0].Error, "ping") })
	if got := d.Relays()[0].State; got != nostr.Pending {
		t.Errorf("the event is %v, want pending", got)
	}
	r.Change(func(f *nostrtest.Faults) { f.Mute = false })
	wait(t, d)
}

// A peer that completes the handshake and then reads nothing fills the socket.
func TestAWriteThatStallsEndsTheLink(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	c := client(t, func(cfg *nostr.ClientConfig) {
		cfg.WriteTimeout, cfg.PingEvery, cfg.OKTimeout = 50*time.Millisecond, time.Hour, time.Hour
	}, r)
	run(t, c)
	testwait.Until(t, "up", func() bool { return c.Status()[0].Up })
	r.Change(func(f *nostrtest.Faults) { f.Mute = true })
	ids := slices.Repeat([]string{strings.Repeat("a", 64)}, 50000)
	for i := range 5 { // 16 MB, more than sockets hold
		c.Subscribe(fmt.Sprint(i), time.Time{}, nostr.Filter{IDs: ids})
	}
	testwait.Until(t, "the link is given up", func() bool { return strings.Contains(c.Status()[0].Error, "write") })
}

func TestADialThatIsNotAnsweredEnds(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := client(t, func(cfg *nostr.ClientConfig) {
		cfg.Relays, cfg.DialTimeout = []string{"ws://" + silent.Addr().String()}, 20*time.Millisecond
	})
	run(t, c)
	testwait.Until(t, "the dial fails", func() bool { return strings.Contains(c.Status()[0].Error, "dial") })
}

func TestADialThatIsRefusedIsRepeated(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{RefuseDial: true}))
	c := client(t, func(cfg *nostr.ClientConfig) { cfg.Relays = []string{r.URL() + "/?token=hunter2"} })
	run(t, c)
	testwait.Until(t, "a dial fails", func() bool { return c.Status()[0].Error == "dial: the relay answered with status 503" })
	r.Stop()
	testwait.Until(t, "the dial is refused", func() bool { return strings.Contains(c.Status()[0].Error, "refused") })
	if got := fmt.Sprintf("%+v", c.Status()); strings.Contains(got, "hunter2") {
		t.Errorf("Status: %s\nwant no token", got)
	}
	r.Change(func(f *nostrtest.Faults) { f.RefuseDial = false })
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	wait(t, c.Publish(nostr.Result, newEvent(t, "1")))
}

func TestARelayThatLiesIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, faults := range map[string]nostrtest.Faults{
		"with forged signatures":      {BadSignature: true},
		"with ids of something else":  {TamperContent: true},
		"with unrequested events":     {},
		"with what Handle won't have": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := nostrtest.New(t, nostrtest.WithFaults(faults))
			var handled atomic.Int64
			var log logbook
			c := client(t, func(cfg *nostr.ClientConfig) {
				cfg.Logger = log.logger()
				cfg.Handle = func(_ string, e *nostr.Event) error {
					handled.Add(1)
					if err := e.CheckSignature(); err != nil {
						return err
					}
					return errors.New("not for me")
				}
			}, r)
			c.Subscribe("jobs", time.Time{}, nostr.Filter{Kinds: []int{7000}})
			run(t, c)
			testwait.Until(t, "subscribed", func() bool { return len(asked(r)) == 1 })
			e := newEvent(t, "job")
			unasked := &nostr.Event{Kind: 1}
			if err := unasked.Sign(testKey(t, 1)); err != nil {
				t.Fatal(err)
			}
			testwait.Until(t, "the link is cut", func() bool { // 101 of them must come in one minute
				for range 40 {
					if strings.Contains(name, "asked for") {
						r.Raw(`["EVENT","1:jobs",` + string(unasked.AppendJSON(nil)) + `]`)
					} else {
						r.Inject(e)
					}
				}
				return strings.Contains(c.Status()[0].Error, "too many")
			})
			got := c.Status()[0]
			want := int64(got.BadEvents)
			if strings.Contains(name, "asked for") || faults.TamperContent {
				want = 0 // detected before the handler gets an event
			}
			if got.BadEvents < 101 || handled.Load() != want {
				t.Errorf("Status: %d bad events, %d handled, want 101 or more, %d", got.BadEvents, handled.Load(), want)
			}
			if !strings.Contains(log.String(), "wait=5m0s") {
				t.Errorf("the log does not say that the relay is left alone for 5 min:\n%s", log.String())
			}
		})
	}
}
