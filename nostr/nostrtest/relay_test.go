package nostrtest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
)

func TestAPublishedEventIsAnsweredStoredAndPushed(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	a, b := dial(t, r), dial(t, r)
	a.send(`["REQ","mine",{"kinds":[1]},{"authors":["%s"]}]`, key(t, 1).PublicKey())
	a.send(`["REQ","other",{"kinds":[2]}]`)
	a.want("EOSE mine", "EOSE other")
	b.send(`["REQ","all",{}]`)
	b.want("EOSE all")
	a.publish(newNote(t, 100, "hello"))
	a.want("OK true", "EVENT mine hello") // once, though both filters want it
	b.want("EVENT all hello")
	a.quiet()
	if got := stored(r); !slices.Equal(got, []string{"hello"}) {
		t.Errorf("Events: got %v, want hello", got)
	}
}

func TestStoredEventsComeNewestFirst(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	for _, e := range []*nostr.Event{newNote(t, 200, "b"), newNote(t, 300, "c"), newNote(t, 100, "a")} {
		r.Inject(e)
	}
	for _, c := range []struct {
		name, filter string
		want         []string
	}{
		{"all of them", `{}`, []string{"c", "b", "a"}},
		{"a limit takes the newest", `{"limit":2}`, []string{"c", "b"}},
		{"a time bounds them", `{"since":150,"until":250}`, []string{"b"}},
		{"each filter has a limit of its own", `{"limit":1},{"until":150}`, []string{"c", "a"}},
		{"what two filters want comes once", `{"kinds":[1]},{"limit":2}`, []string{"c", "b", "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			link := dial(t, r)
			link.send(`["REQ","s",%s]`, c.filter)
			for _, content := range c.want {
				link.want("EVENT s " + content)
			}
			link.want("EOSE s")
		})
	}
}

func TestEventsThatAreNotKept(t *testing.T) {
	t.Parallel()
	forged := *newNote(t, 100, "x")
	forged.Content = "y"
	unsigned := *newNote(t, 100, "x")
	unsigned.Sig = strings.Repeat("0", 128)
	for _, c := range []struct {
		name  string
		event *nostr.Event
		want  string
	}{
		{"an ephemeral one is accepted", sign(t, 1, nostr.Event{Kind: 20000}), "OK true"},
		{"one with another id", &forged, "OK false invalid"},
		{"one that is not signed", &unsigned, "OK false invalid"},
		{"one that is for AUTH", sign(t, 1, nostr.Event{Kind: nostr.KindAuth}), "OK false invalid"},
		{
			"one too large to be delivered",
			sign(t, 1, nostr.Event{Tags: nostr.Tags{{"x", strings.Repeat("x", nostr.MaxFrame-700)}}}),
			"OK false invalid",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := nostrtest.New(t)
			link := dial(t, r)
			link.publish(c.event)
			link.want(c.want)
			if n := len(r.Events()); n != 0 {
				t.Errorf("%d events are stored, want none", n)
			}
		})
	}
}

func TestAnEphemeralEventIsPushed(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	link := dial(t, r)
	link.send(`["REQ","s",{}]`)
	link.publish(sign(t, 1, nostr.Event{Kind: 29999, Content: "gone"}))
	link.want("EOSE s", "OK true", "EVENT s gone")
}

func TestAKnownEventIsADuplicate(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	link := dial(t, r)
	link.send(`["REQ","s",{}]`)
	link.publish(newNote(t, 100, "a"))
	link.publish(newNote(t, 100, "a"))
	link.want("EOSE s", "OK true", "EVENT s a", "OK true duplicate")
	link.quiet()
	if n := len(r.Events()); n != 1 {
		t.Errorf("%d events are stored, want 1", n)
	}
}

func TestADeletionDeletesWhatItsAuthorWrote(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	mine, other := newNote(t, 100, "mine"), sign(t, 2, nostr.Event{Kind: 1, Content: "other"})
	link := dial(t, r)
	link.publish(mine)
	link.publish(other)
	link.want("OK true", "OK true")
	link.send(`["REQ","s",{"kinds":[5]}]`)
	link.want("EOSE s")
	link.publish(sign(t, 1, nostr.Event{Kind: 5, Content: "del", Tags: nostr.Tags{{"e", mine.ID}, {"e", other.ID}}}))
	link.want("OK true", "EVENT s del")
	if got := stored(r); !slices.Equal(got, []string{"other", "del"}) {
		t.Errorf("Events: got %v, want other and del", got)
	}
	link.publish(mine)
	link.want("OK false blocked")
}

func TestAClosedSubscriptionGetsNothing(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	link := dial(t, r)
	link.send(`["REQ","s",{}]`)
	link.send(`["CLOSE","s"]`)
	link.publish(newNote(t, 100, "a"))
	link.want("EOSE s", "OK true")
	link.quiet()
}

func TestInjectedEventsAreNotVerified(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	link := dial(t, r)
	link.send(`["REQ","s",{}]`)
	link.want("EOSE s")
	genuine := newNote(t, 100, "real")
	forged := *genuine
	forged.Content = "forged"
	r.Inject(genuine)
	r.Inject(&forged)
	deletion := *sign(t, 1, nostr.Event{Kind: 5, Content: "forged deletion", Tags: nostr.Tags{{"e", genuine.ID}}})
	deletion.CreatedAt++
	r.Inject(&deletion)
	forged.Content = "changed by the caller later"
	link.want("EVENT s real", "EVENT s forged", "EVENT s forged deletion")
	if got := stored(r); !slices.Equal(got, []string{"real", "forged", "forged deletion"}) {
		t.Errorf("Events: got %v", got)
	}
}

func TestRawTextGoesToEveryLink(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	a, b := dial(t, r), dial(t, r)
	a.quiet() // is a link by now
	b.quiet()
	r.Raw("\x00 anything")
	for _, link := range []*client{a, b} {
		if got := link.frame(); got != "\x00 anything" {
			t.Errorf("got %q", got)
		}
	}
}

func TestTheLogOfMessagesIsBounded(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t, nostrtest.KeepReceived(2))
	link := dial(t, r)
	link.send(`["CLOSE","a"]`)
	link.send(`nonsense`)
	link.send(`["CLOSE","c"]`)
	link.want("NOTICE")
	r.Await(t, func([]*nostr.Event) bool { return last(r).Frame == `["CLOSE","c"]` })
	got := r.Received()
	if len(got) != 2 || got[0].Frame != "nonsense" || got[0].Message != nil || got[1].Message.Sub != "c" || got[1].Link != 1 {
		t.Errorf("Received: got %+v", got)
	}
}

func last(r *nostrtest.Relay) (m nostrtest.Received) {
	if list := r.Received(); len(list) > 0 {
		m = list[len(list)-1]
	}
	return m
}

func TestStoredEventsAreBounded(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t, nostrtest.KeepEvents(2))
	for i, content := range []string{"a", "b", "c"} {
		r.Inject(newNote(t, int64(100-i), content))
	}
	if got := stored(r); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("Events: got %v, want b and c", got)
	}
	link := dial(t, r)
	link.publish(newNote(t, 100, "a")) // was forgotten
	link.want("OK true")
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	err := r.Wait(ctx, func([]*nostr.Event) bool {
		if asked++; asked == 1 {
			r.Inject(newNote(t, 100, "a")) // Wait notices an event that arrives during the check
		} else {
			cancel()
		}
		return false
	})
	if !errors.Is(err, context.Canceled) || asked != 2 {
		t.Errorf("Wait: got %v after %d times, want canceled after 2", err, asked)
	}
}
