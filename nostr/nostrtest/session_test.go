package nostrtest

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/nostr"
)

// drain removes and returns the frames that are queued for a client, without those that
// are due later.
func drain(s *session) (list []string) {
	for {
		f, _, ok := s.core.next(s)
		if !ok {
			return list
		}
		list = append(list, string(f.bytes()))
	}
}

func TestFramesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, frame, want string }{
		{"no JSON", `{`, `["NOTICE","invalid: `},
		{"an unknown type", `["COUNT","s",{}]`, `["NOTICE","invalid: `},
		{"an event that is none", `["EVENT",{}]`, `["NOTICE","invalid: `},
		{
			"an event with an empty id",
			`["EVENT",{"id":"","pubkey":"","created_at":0,"kind":1,"tags":[],"content":"","sig":""}]`,
			`["NOTICE","invalid: `,
		},
		{"a request without a filter", `["REQ","s"]`, `["CLOSED","s","invalid: `},
		{"a filter that is not known", `["REQ","s",{"search":"x"}]`, `["CLOSED","s","invalid: `},
		{"a subscription without a name", `["REQ","",{}]`, `["NOTICE","invalid: `},
		{"a name too long", `["REQ","` + strings.Repeat("n", 65) + `",{}]`, `["NOTICE","invalid: `},
		{"a close of nothing", `["CLOSE"]`, `["NOTICE","invalid: `},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			core := newCore(newOptions(nil))
			s := core.addSession()
			if !core.receive(s, []byte(c.frame)) {
				t.Error("the link is broken")
			}
			if got := drain(s); len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
				t.Errorf("receive(%s): got %q, want %s", c.frame, got, c.want)
			}
		})
	}
}

func TestSubscriptionsAreBounded(t *testing.T) {
	t.Parallel()
	core := newCore(newOptions(nil))
	s := core.addSession()
	for i := range maxSubs + 1 {
		core.receive(s, fmt.Appendf(nil, `["REQ","%d",{}]`, i))
	}
	core.receive(s, []byte(`["REQ","0",{}]`)) // replaces one
	got := drain(s)
	if len(got) != maxSubs+2 || !strings.HasPrefix(got[maxSubs], `["CLOSED","100","error: `) || got[maxSubs+1] != `["EOSE","0"]` {
		t.Errorf("got %q", got[max(len(got)-2, 0):])
	}
}

func TestAClientThatDoesNotReadIsDropped(t *testing.T) {
	t.Parallel()
	core := newCore(newOptions([]Option{KeepEvents(1)}))
	s := core.addSession()
	for range core.maxQueue {
		core.raw("x")
	}
	if s.ended() {
		t.Fatal("dropped too early")
	}
	core.raw("x")
	if !s.ended() || len(core.sessions) != 0 || len(drain(s)) != 0 {
		t.Error("not dropped")
	}
	if core.receive(s, []byte(`["REQ","s",{}]`)) || len(core.received.list) != 0 {
		t.Error("what it sends is still taken")
	}
}

func TestAnAnswerComesWhenItIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core := newCore(newOptions([]Option{WithFaults(Faults{OKDelay: 3 * time.Second})}))
		s := core.addSession()
		core.update(func() {
			s.answer(&nostr.Event{ID: "a"}, true, "")
			s.notice("n")
		})
		if got := drain(s); len(got) != 1 || got[0] != `["NOTICE","n"]` {
			t.Fatalf("at once: got %q", got)
		}
		_, wait, ok := core.next(s)
		if ok || wait != 3*time.Second {
			t.Fatalf("next: got %v, %v, want to wait 3s", wait, ok)
		}
		time.Sleep(wait)
		if got := drain(s); len(got) != 1 || got[0] != `["OK","a",true,""]` {
			t.Errorf("later: got %q", got)
		}
	})
}

func TestGarbageIsNoMessage(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := 0; !seen[garbage(i)]; i++ {
		seen[garbage(i)] = true
		if m, err := nostr.ParseRelayMessage([]byte(garbage(i))); err == nil {
			t.Errorf("garbage(%d) = %s is a message: %+v", i, garbage(i), m)
		}
	}
	if len(seen) < 10 {
		t.Errorf("there are only %d kinds of garbage", len(seen))
	}
}

func TestTheLogIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	r := received{limit: 1000}
	frame := strings.Repeat("x", maxReceivedBytes/4)
	for range 9 {
		r.add(Received{Frame: frame})
	}
	if len(r.list) != 4 || r.bytes != maxReceivedBytes {
		t.Errorf("%d messages of %d bytes are kept", len(r.list), r.bytes)
	}
}
