package nostrtest_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
)

// hour is a delay that no test waits for.
const hour = time.Hour

func TestFaultsOfPublishing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		faults nostrtest.Faults
		want   []string // answers to the events a, b, c, in this order
		stored []string
	}{
		{"none", nostrtest.Faults{}, []string{"OK true", "OK true", "OK true"}, []string{"a", "b", "c"}},
		{
			"all are rejected", nostrtest.Faults{Reject: "rate-limited: slow down"},
			[]string{"OK false rate-limited", "OK false rate-limited", "OK false rate-limited"}, nil,
		},
		{
			"the next two are rejected", nostrtest.Faults{Reject: "error: no", RejectNext: 2},
			[]string{"OK false error", "OK false error", "OK true"}, []string{"c"},
		},
		{
			"the next is not answered", nostrtest.Faults{SwallowOK: 1},
			[]string{"OK true", "OK true"}, []string{"a", "b", "c"},
		},
		{"none is ever answered", nostrtest.Faults{SwallowOK: nostrtest.Always}, nil, []string{"a", "b", "c"}},
		{"answers come too late", nostrtest.Faults{OKDelay: hour}, nil, []string{"a", "b", "c"}},
		{"answers come later", nostrtest.Faults{OKDelay: 1}, []string{"OK true", "OK true", "OK true"}, []string{"a", "b", "c"}},
		{
			"only another kind meets them",
			nostrtest.Faults{Kinds: []int{2}, Reject: "error: no", OKDelay: hour, SwallowOK: 1, DropBeforeOK: 1, DropEvent: 1},
			[]string{"OK true", "OK true", "OK true"}, []string{"a", "b", "c"},
		},
		{
			"this kind meets them", nostrtest.Faults{Kinds: []int{2, 1}, Reject: "error: no", RejectNext: 1},
			[]string{"OK false error", "OK true", "OK true"}, []string{"b", "c"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := nostrtest.New(t, nostrtest.WithFaults(c.faults))
			link := dial(t, r)
			for _, content := range []string{"a", "b", "c"} {
				link.publish(newNote(t, 100, content))
			}
			link.want(c.want...)
			link.quiet()
			if got := stored(r); !slices.Equal(got, c.stored) {
				t.Errorf("Events: got %v, want %v", got, c.stored)
			}
		})
	}
}

func TestFaultsThatBreakTheLinkOfAPublisher(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		faults nostrtest.Faults
		stored int
		again  string // the answer to the second try
	}{
		{"before the event is stored", nostrtest.Faults{DropEvent: 1}, 0, "OK true"},
		{"after it is stored", nostrtest.Faults{DropBeforeOK: 1}, 1, "OK true duplicate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := nostrtest.New(t, nostrtest.WithFaults(c.faults))
			witness, link := dial(t, r), dial(t, r)
			witness.send(`["REQ","s",{}]`)
			witness.want("EOSE s")
			link.publish(newNote(t, 100, "a"))
			if err := link.lost(); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the link ended with %v, want a reset", err)
			}
			if n := len(r.Events()); n != c.stored {
				t.Errorf("%d events are stored, want %d", n, c.stored)
			}
			link = dial(t, r)
			link.publish(newNote(t, 100, "a"))
			link.want(c.again)
			witness.want("EVENT s a")
			witness.quiet()
		})
	}
}

func TestALateAnswerIsOvertakenByEvents(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{OKDelay: hour}))
	link := dial(t, r)
	link.send(`["REQ","s",{}]`)
	link.publish(newNote(t, 100, "a"))
	link.want("EOSE s", "EVENT s a")
}

func TestFaultsOfSubscribing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		faults nostrtest.Faults
		want   []string // what two requests are answered
	}{
		{"none", nostrtest.Faults{}, []string{"EVENT s a", "EOSE s", "EVENT s a", "EOSE s"}},
		{"they are closed", nostrtest.Faults{CloseReq: "blocked: no"}, []string{"CLOSED s blocked", "CLOSED s blocked"}},
		{
			"one is closed", nostrtest.Faults{CloseReq: "error: no", CloseReqNext: 1},
			[]string{"CLOSED s error", "EVENT s a", "EOSE s"},
		},
		{"the end is not said", nostrtest.Faults{NoEOSE: true}, []string{"EVENT s a", "EVENT s a"}},
		{
			"each event comes three times", nostrtest.Faults{Repeat: 3},
			[]string{"EVENT s a", "EVENT s a", "EVENT s a", "EOSE s", "EVENT s a", "EVENT s a", "EVENT s a", "EOSE s"},
		},
		{
			"garbage comes after every second message", nostrtest.Faults{GarbageEvery: 2},
			[]string{"EVENT s a", "EOSE s", "malformed", "EVENT s a", "EOSE s", "malformed"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := nostrtest.New(t, nostrtest.WithFaults(c.faults))
			r.Inject(newNote(t, 100, "a"))
			link := dial(t, r)
			link.send(`["REQ","s",{}]`)
			link.send(`["REQ","s",{}]`)
			link.want(c.want...)
			r.Change(func(f *nostrtest.Faults) { *f = nostrtest.Faults{} })
			link.quiet()
		})
	}
}

func TestAClosedRequestIsNoSubscription(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	link := dial(t, r)
	link.send(`["REQ","s",{}]`)
	link.want("EOSE s")
	r.Change(func(f *nostrtest.Faults) { f.CloseReq = "error: no" })
	link.send(`["REQ","s",{}]`)
	link.want("CLOSED s error")
	r.Change(func(f *nostrtest.Faults) { f.CloseReq = "" })
	r.Inject(newNote(t, 100, "a"))
	link.quiet()
}

func TestEventsThatArriveSpoiled(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		faults nostrtest.Faults
		want   error
	}{
		{"not at all", nostrtest.Faults{}, nil},
		{"with another content", nostrtest.Faults{TamperContent: true}, nostr.ErrID},
		{"with another signature", nostrtest.Faults{BadSignature: true}, nostr.ErrSignature},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := nostrtest.New(t, nostrtest.WithFaults(c.faults))
			r.Inject(newNote(t, 100, "stored"))
			link := dial(t, r)
			link.send(`["REQ","s",{}]`)
			first, _ := link.frame(), link.frame()
			r.Inject(newNote(t, 100, "pushed"))
			for _, text := range []string{first, link.frame()} {
				m, err := nostr.ParseRelayMessage([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Event.Verify(); !errors.Is(err, c.want) {
					t.Errorf("Verify of %s: got %v, want %v", text, err, c.want)
				}
			}
			for _, e := range r.Events() {
				if err := e.Verify(); err != nil {
					t.Errorf("what is stored was spoiled: %v", err)
				}
			}
		})
	}
}

func TestShuffledEventsComeInTheOrderOfTheSeed(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	for i := range 20 {
		r.Inject(newNote(t, int64(i), string(rune('a'+i))))
	}
	order := func(seed uint64) (list []string) {
		r.Change(func(f *nostrtest.Faults) { f.Shuffle = seed })
		link := dial(t, r)
		link.send(`["REQ","s",{}]`)
		for range 20 {
			list = append(list, brief(t, link.frame()))
		}
		link.want("EOSE s")
		return list
	}
	straight, one, other := order(0), order(1), order(2)
	if slices.Equal(straight, one) || slices.Equal(one, other) || !slices.Equal(one, order(1)) {
		t.Errorf("seed 1 gives %v, seed 2 %v", one, other)
	}
	slices.Sort(straight)
	if got := slices.Sorted(slices.Values(one)); !slices.Equal(got, straight) {
		t.Errorf("seed 1 gives %v, want all of %v", got, straight)
	}
}
