package dvm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

func newGate(tb testing.TB, change ...func(*dvm.GateConfig)) *dvm.Gate {
	tb.Helper()
	cfg := dvm.GateConfig{Kinds: []int{5900}, Key: ours.PublicKey()}
	for _, f := range change {
		f(&cfg)
	}
	g, err := dvm.NewGate(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

func TestTheGate(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) func(*nostr.Event) {
		return func(e *nostr.Event) { e.CreatedAt = morning.Add(d).Unix() }
	}
	expires := func(d time.Duration) func(*nostr.Event) {
		return tagged(nostr.Tag{"expiration", fmt.Sprint(morning.Add(d).Unix())})
	}
	to := func(tags ...nostr.Tag) func(*nostr.Event) { return func(e *nostr.Event) { e.Tags = tags } }
	open := func(c *dvm.GateConfig) { c.Open = true }
	none := func(*dvm.GateConfig) {}
	for _, c := range []struct {
		name   string
		cfg    func(*dvm.GateConfig)
		change func(*nostr.Event)
		want   dvm.Verdict
	}{
		{"one that is right", none, at(0), dvm.Accepted},
		{"another kind", none, func(e *nostr.Event) { e.Kind = 5100 }, dvm.WrongKind},
		{"for another provider", none, to(nostr.Tag{"p", stranger.PublicKey()}), dvm.NotOurs},
		{"for no provider", none, to(), dvm.NotOurs},
		{"for no provider, at an open gate", open, to(), dvm.Accepted},
		{"for us and others", none, to(nostr.Tag{"p", stranger.PublicKey()}, nostr.Tag{"p", ours.PublicKey()}), dvm.Accepted},
		{"ten minutes old", none, at(-10 * time.Minute), dvm.Accepted},
		{"older", none, at(-10*time.Minute - time.Second), dvm.Stale},
		{"very old", none, func(e *nostr.Event) { e.CreatedAt = 0 }, dvm.Stale},
		{"two minutes ahead", none, at(2 * time.Minute), dvm.Accepted},
		{"further ahead", none, at(2*time.Minute + time.Second), dvm.Future},
		{"at the end of time", none, func(e *nostr.Event) { e.CreatedAt = 1 << 53 }, dvm.Future},
		{"expired", none, expires(0), dvm.Expired},
		{"not yet expired", none, expires(time.Second), dvm.Accepted},
		{"an expiration that is none", none, tagged(nostr.Tag{"expiration", "soon"}), dvm.Accepted},
		{"on the list", func(c *dvm.GateConfig) { c.Customers = []string{customer.PublicKey()} }, at(0), dvm.Accepted},
		{"not on the list", func(c *dvm.GateConfig) { c.Customers = []string{stranger.PublicKey()} }, at(0), dvm.Stranger},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t, c.cfg)
			e := newRequest(t, morning, c.change)
			if got := g.Check(e, morning); got != c.want {
				t.Errorf("Check = %v, want %v", got, c.want)
			}
			if c.want == dvm.Accepted {
				if got := g.Check(e, morning); got != dvm.Seen {
					t.Errorf("the second time: %v, want seen", got)
				}
			} else if got := g.Stats(); got[c.want] != 1 || len(got) != 1 {
				t.Errorf("Stats = %v", got)
			}
		})
	}
}

func TestOurOwnEventsAreNotForUs(t *testing.T) {
	t.Parallel()
	e := signed(t, newRequest(t, morning), ours)
	if got := newGate(t, func(c *dvm.GateConfig) { c.Open = true }).Check(e, morning); got != dvm.OwnKey {
		t.Errorf("Check = %v, want own-key", got)
	}
}

func TestAForgedEventDoesNotKeepTheRealOneOut(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	genuine := newRequest(t, morning)
	forged := *genuine
	forged.Sig = strings.Repeat("0", 127) + "1"
	for range 10 {
		if got := g.Check(&forged, morning); got != dvm.Forged {
			t.Fatalf("Check = %v, want forged", got)
		}
	}
	if got := g.Check(genuine, morning); got != dvm.Accepted {
		t.Errorf("the real one: %v, want accepted", got)
	}
	if got := g.Admit(genuine.PubKey, morning); got != dvm.Accepted {
		t.Errorf("the forged ones counted: %v", got)
	}
}

func TestAnIDIsRememberedForAQuarterOfAnHour(t *testing.T) {
	t.Parallel()
	g := newGate(t, func(c *dvm.GateConfig) { c.MaxAge = 13 * time.Minute })
	e := newRequest(t, morning.Add(2*time.Minute))
	for _, c := range []struct {
		at   time.Duration
		want dvm.Verdict
	}{{0, dvm.Accepted}, {15*time.Minute - 1, dvm.Seen}, {15 * time.Minute, dvm.Accepted}} {
		if got := g.Check(e, morning.Add(c.at)); got != c.want {
			t.Errorf("after %v: %v, want %v", c.at, got, c.want)
		}
	}
}

func TestAForgottenRequestIsTakenAgain(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	a, b := newRequest(t, morning), newRequest(t, morning.Add(time.Second))
	g.Check(a, morning)
	g.Check(b, morning)
	g.Forget(a.ID)
	g.Forget("no id")
	if x, y := g.Check(a, morning), g.Check(b, morning); x != dvm.Accepted || y != dvm.Seen {
		t.Errorf("forgotten: %v, the other: %v", x, y)
	}
}

func TestAFullGateRefusesAndForgetsNothing(t *testing.T) {
	t.Parallel()
	g := newGate(t, func(c *dvm.GateConfig) { c.SeenMost = 3 })
	var list []*nostr.Event
	for i := range 4 {
		list = append(list, newRequest(t, morning.Add(time.Duration(-i)*time.Second)))
	}
	for i, want := range []dvm.Verdict{dvm.Accepted, dvm.Accepted, dvm.Accepted, dvm.Full} {
		if got := g.Check(list[i], morning); got != want {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
	if got := g.Check(list[0], morning); got != dvm.Seen {
		t.Errorf("the first one: %v, want seen", got)
	}
	g.Forget(list[2].ID) // the last: its place is free
	if got := g.Check(list[3], morning); got != dvm.Accepted {
		t.Errorf("after one was forgotten: %v", got)
	}
}

func TestRoomIsMadeByTimeOnly(t *testing.T) {
	t.Parallel()
	g := newGate(t, func(c *dvm.GateConfig) { c.SeenMost = 4 })
	// One in five minutes: four fit into a quarter of an hour, for ever.
	for i := range 12 {
		now := morning.Add(time.Duration(i) * 5 * time.Minute)
		e := newRequest(t, now)
		if got := g.Check(e, now); got != dvm.Accepted {
			t.Fatalf("%d: %v, want accepted", i, got)
		}
		if got := g.Check(e, now.Add(time.Minute)); got != dvm.Seen {
			t.Fatalf("%d, again: %v, want seen", i, got)
		}
	}
}

func TestAForgottenRequestThatCameAgainIsRememberedForItsTime(t *testing.T) {
	t.Parallel()
	g := newGate(t, func(c *dvm.GateConfig) { c.MaxAge = 13 * time.Minute })
	a, b := newRequest(t, after(120)), newRequest(t, after(119))
	g.Check(a, morning)
	g.Check(b, morning)
	g.Forget(a.ID)
	if got := g.Check(a, after(600)); got != dvm.Accepted {
		t.Fatalf("Check = %v, want accepted", got)
	}
	// The id was stored twice: the first time has expired, the second has not.
	if got := g.Check(a, after(900)); got != dvm.Seen {
		t.Errorf("Check = %v, want seen", got)
	}
}

func TestVerdictsHaveNames(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for v := dvm.WrongKind; v <= dvm.Withdrawn; v++ {
		text, err := v.MarshalText()
		if err != nil || len(text) == 0 || names[string(text)] {
			t.Errorf("%d is called %q, %v", v, text, err)
		}
		names[string(text)] = true
	}
	if got := (dvm.Withdrawn + 1).String(); got != "unknown" {
		t.Errorf("what is none is called %q", got)
	}
}

func TestACustomerMayAskTenTimesAMinute(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	admitted := map[dvm.Verdict]int{}
	for s := range 120 {
		admitted[g.Admit("a", after(float64(s)))]++
	}
	// The burst, and one in six seconds.
	if got := admitted[dvm.Accepted]; got != 5+119/6 {
		t.Errorf("%d were accepted, want %d", got, 5+119/6)
	}
	if got := admitted[dvm.Overloaded]; got != 2 {
		t.Errorf("%d were told that there is no room, want one in a minute", got)
	}
	if got := g.Admit("b", after(119)); got != dvm.Accepted {
		t.Errorf("another customer: %v, want accepted", got)
	}
}

func TestWhoAsksTooOftenCostsNoSignature(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	for range 7 { // the burst, one that is notified, one that is not
		g.Admit(customer.PublicKey(), morning)
	}
	e := newRequest(t, morning)
	e.Sig = strings.Repeat("0", 128)
	if got := g.Check(e, morning); got != dvm.Limited {
		t.Errorf("Check = %v, want limited before the signature is looked at", got)
	}
	if got := g.Check(e, after(6)); got != dvm.Forged {
		t.Errorf("when the customer may ask again: %v, want forged", got)
	}
}

func TestNoRoomIsToldOnceAMinute(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	for _, c := range []struct {
		at   float64
		want dvm.Verdict
	}{{0, dvm.Overloaded}, {59, dvm.Limited}, {60, dvm.Overloaded}, {61, dvm.Limited}} {
		if got := g.Refuse("a", after(c.at)); got != c.want {
			t.Errorf("after %v s: %v, want %v", c.at, got, c.want)
		}
	}
}

func TestTheGateRemembersABoundedNumberOfCustomers(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	got := map[dvm.Verdict]int{}
	for i := range 20_000 {
		got[g.Admit(fmt.Sprint(i), morning)]++
	}
	if got[dvm.Accepted] != 8192 || got[dvm.Full] != 20_000-8192 {
		t.Errorf("in a minute: %v", got)
	}
	if got := g.Admit("late", after(61)); got != dvm.Accepted {
		t.Errorf("a minute later: %v, want accepted", got)
	}
	// A customer of the minute before is still known.
	for range 4 {
		g.Admit("0", after(62))
	}
	if got := g.Admit("0", after(62)); got != dvm.Accepted {
		t.Errorf("its burst is whole again, but: %v", got)
	}
}

func TestGateConfigSaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := dvm.NewGate(dvm.GateConfig{
		Kinds: []int{1}, Key: "x", Customers: []string{"y"}, MaxAge: time.Hour, Rate: limit.Frequency{Events: -1, Per: 1}, Burst: -1,
	})
	for _, want := range []string{"kinds: 1 is not", "key: want", "customers[0]: want", "seen-for: 15m0s is less", "rate: -1 events", "burst: -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewGate: %v; want %q in it", err, want)
		}
	}
	if _, err := dvm.NewGate(dvm.GateConfig{}); err == nil || !strings.Contains(err.Error(), "kinds: the list is empty") {
		t.Errorf("NewGate of nothing: %v", err)
	}
}
