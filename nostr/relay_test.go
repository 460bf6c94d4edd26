package nostr

import (
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/retry"
)

// testRelay returns a relay whose link is up, without a socket.
func testRelay(t testing.TB, change func(*ClientConfig)) *relay {
	t.Helper()
	key, err := ParseSecretKey(strings.Repeat("1", 64))
	if err != nil {
		t.Fatal(err)
	}
	cfg := ClientConfig{Relays: []string{"wss://relay.example"}, Key: key}
	if change != nil {
		change(&cfg)
	}
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := c.relays[0]
	r.pace.random, r.outbox.pace.random = longest, longest
	r.setPhase(linkUp, start)
	return r
}

// wantSent checks the types of all messages that are due now.
func wantSent(t testing.TB, r *relay, now time.Time, types ...string) (list []*Message) {
	t.Helper()
	var got []string
	for {
		frame, _, err := r.due(now)
		if err != nil {
			t.Fatalf("due: %v", err)
		}
		if frame == nil {
			break
		}
		m, err := ParseClientMessage(frame)
		if err != nil {
			t.Fatalf("due: %s: %v", frame, err)
		}
		got, list = append(got, m.Type), append(list, m)
	}
	if strings.Join(got, " ") != strings.Join(types, " ") {
		t.Fatalf("sent %v, want %v", got, types)
	}
	return list
}

func deliverMessage(t testing.TB, r *relay, now time.Time, m Message) {
	t.Helper()
	if err := (relayReceiver{r}).receive(&m, now); err != nil {
		t.Fatalf("receive %+v: %v", m, err)
	}
}

func signed(t testing.TB, r *relay, content string) *Event {
	t.Helper()
	e := &Event{Kind: 7000, CreatedAt: start.Unix(), Content: content}
	if err := e.Sign(r.cfg.Key); err != nil {
		t.Fatal(err)
	}
	return e
}

func publish(t testing.TB, r *relay, e *Event) *item {
	t.Helper()
	l, err := encodeEvent(e)
	if err != nil {
		t.Fatal(err)
	}
	return r.publish(Result, []encodedEvent{l}, start).items[0]
}

func subscribe(r *relay) {
	r.subscribe(newSubscriptionSpec(1, "jobs", start, []Filter{{Kinds: []int{7000}}}))
}

func TestRelaySaysWhoWeAreAndSendsAgain(t *testing.T) {
	t.Parallel()
	r := testRelay(t, nil)
	subscribe(r)
	it := publish(t, r, signed(t, r, "x"))
	wantSent(t, r, start, TypeReq, TypeEvent)
	deliverMessage(t, r, start, Message{Type: TypeClosed, Sub: "1:jobs", Text: "auth-required: who?"})
	wantSent(t, r, start) // the challenge has not come
	deliverMessage(t, r, start, Message{Type: TypeAuth, Text: "challenge"})
	said := wantSent(t, r, start, TypeAuth)[0].Event
	if err := said.Verify(); err != nil || said.Kind != KindAuth ||
		said.Tags.Find("challenge").Value() != "challenge" || said.Tags.Find("relay").Value() != "wss://relay.example" {
		t.Fatalf("said %+v, %v", said, err)
	}
	deliverMessage(t, r, start, Message{Type: TypeOK, ID: said.ID, OK: true})
	wantSent(t, r, start, TypeReq)

	// The event was sent before we were authenticated, and must not be refused
	// for that.
	deliverMessage(t, r, start.Add(time.Second), Message{Type: TypeOK, ID: it.id, Text: "auth-required: who?"})
	wantSent(t, r, start.Add(time.Second), TypeEvent)
	deliverMessage(t, r, start.Add(2*time.Second), Message{Type: TypeOK, ID: it.id, Text: "auth-required: not you"})
	wantSent(t, r, start.Add(2*time.Second))
	if <-it.done; it.state != Refused {
		t.Errorf("the event is %v, want refused: AUTH is said once", it.state)
	}
}

func TestRelayThatAsksAgainWhoWeAreGetsAnotherLink(t *testing.T) {
	t.Parallel()
	r := testRelay(t, nil)
	it := publish(t, r, signed(t, r, "x"))
	wantSent(t, r, start, TypeEvent)
	deliverMessage(t, r, start, Message{Type: TypeAuth, Text: "one"})
	deliverMessage(t, r, start, Message{Type: TypeOK, ID: it.id, Text: "auth-required:"})
	said := wantSent(t, r, start, TypeAuth)[0].Event
	deliverMessage(t, r, start, Message{Type: TypeOK, ID: said.ID, OK: true})
	wantSent(t, r, start.Add(time.Second), TypeEvent)
	deliverMessage(t, r, start.Add(time.Second), Message{Type: TypeAuth, Text: "two"})
	err := relayReceiver{r}.receive(&Message{Type: TypeOK, ID: it.id, Text: "auth-required:"}, start.Add(time.Second))
	if !errors.Is(err, errChallenged) {
		t.Fatalf("receive: %v, want the link to end", err)
	}
	r.linkLost(err, start.Add(time.Second))
	r.setPhase(linkUp, start.Add(2*time.Second))
	wantSent(t, r, start.Add(2*time.Second), TypeEvent)
}

func TestRelayThatDeniesUs(t *testing.T) {
	t.Parallel()
	r := testRelay(t, nil)
	subscribe(r)
	it := publish(t, r, signed(t, r, "x"))
	wantSent(t, r, start, TypeReq, TypeEvent)
	deliverMessage(t, r, start, Message{Type: TypeAuth, Text: "one"})
	deliverMessage(t, r, start, Message{Type: TypeOK, ID: it.id, Text: "auth-required:"})
	deliverMessage(t, r, start, Message{Type: TypeClosed, Sub: "1:jobs", Text: "auth-required:"})
	said := wantSent(t, r, start, TypeAuth)[0].Event
	deliverMessage(t, r, start, Message{Type: TypeOK, ID: said.ID, Text: "restricted: not you"})
	wantSent(t, r, start)
	if <-it.done; it.state != Refused || !strings.Contains(it.err.Error(), "not you") {
		t.Errorf("the event is %v, %v, want refused", it.state, it.err)
	}
	if got := r.status(start); got.Healthy() || !strings.Contains(got.Trouble, "not you") {
		t.Errorf("status: %+v, want it unhealthy", got)
	}
	wantSent(t, r, start.Add(quarantine), TypeReq)
}

func TestRelayThatCanNotBeToldEndsTheLink(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(*relay, string) error{
		"because there is no challenge": func(r *relay, _ string) error {
			_, _, err := r.due(start.Add(10 * time.Second))
			return err
		},
		"because it is busy": func(r *relay, _ string) error {
			_ = relayReceiver{r}.receive(&Message{Type: TypeAuth, Text: "one"}, start)
			frame, _, _ := r.due(start)
			m, err := ParseClientMessage(frame)
			if err != nil {
				t.Fatal(err)
			}
			return relayReceiver{r}.receive(&Message{Type: TypeOK, ID: m.Event.ID, Text: "error: busy"}, start)
		},
	} {
		r := testRelay(t, nil)
		it := publish(t, r, signed(t, r, "x"))
		wantSent(t, r, start, TypeEvent)
		deliverMessage(t, r, start, Message{Type: TypeOK, ID: it.id, Text: "auth-required:"})
		if err := then(r, it.id); err == nil {
			t.Errorf("%s: nil, want an error", name)
		}
		if it.state != Pending {
			t.Errorf("%s: the event is %v, want pending", name, it.state)
		}
	}
}

func TestRelayThatCanNotTakeEventsIsUnhealthyMeanwhile(t *testing.T) {
	t.Parallel()
	r := testRelay(t, nil)
	it := publish(t, r, signed(t, r, "x"))
	wantSent(t, r, start, TypeEvent)
	deliverMessage(t, r, start, Message{Type: TypeOK, ID: it.id, Text: "rate-limited:\x1b slow"})
	if got := r.status(start); got.Healthy() || got.Trouble != "events: rate-limited: slow" {
		t.Errorf("status: %+v, want trouble with events", got)
	}
	wantSent(t, r, start.Add(time.Minute), TypeEvent)
	deliverMessage(t, r, start, Message{Type: TypeOK, ID: it.id, OK: true})
	if got := r.status(start); !got.Healthy() || got.Acknowledged != 1 {
		t.Errorf("status: %+v, want it healthy again", got)
	}
}

func TestRelayThatDoesNotAnswerAuthIsAskedOn(t *testing.T) {
	t.Parallel()
	r := testRelay(t, nil)
	it := publish(t, r, signed(t, r, "x"))
	wantSent(t, r, start, TypeEvent)
	deliverMessage(t, r, start, Message{Type: TypeAuth, Text: "one"})
	deliverMessage(t, r, start, Message{Type: TypeOK, ID: it.id, Text: "auth-required:"})
	wantSent(t, r, start, TypeAuth)
	wantSent(t, r, start.Add(9*time.Second))
	wantSent(t, r, start.Add(10*time.Second), TypeEvent)
}

func TestReconnectWaitsByThePolicyAndStartsAgainAfterAMinuteUp(t *testing.T) {
	t.Parallel()
	r, now := testRelay(t, nil), start
	lost := func(up, want time.Duration) {
		t.Helper()
		r.setPhase(linkUp, now)
		now = now.Add(up)
		if got := r.linkLost(net.ErrClosed, now).Round(time.Millisecond); got != want {
			t.Errorf("after %v up: wait %v, want %v", up, got, want)
		}
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		lost(59*time.Second, want*time.Second)
	}
	lost(60*time.Second, time.Second)
	if got := r.linkLost(net.ErrClosed, now).Round(time.Millisecond); got != 2*time.Second {
		t.Errorf("after a dial that failed: wait %v, want 2s", got)
	}
	r.setPhase(linkUp, now)
	if got := r.linkLost(errFlood, now); got != 5*time.Minute {
		t.Errorf("after a flood: wait %v, want 5m", got)
	}
}

func TestOffencesAreTooManyWhenMoreThanAHundredInAMinute(t *testing.T) {
	t.Parallel()
	o := newOffences(maxOffences)
	now := start
	for range 1000 { // 100 in each minute
		now = now.Add(600 * time.Millisecond)
		if o.add(now) {
			t.Fatal("100 in a minute are too many, want them not to be")
		}
	}
	if now = now.Add(599 * time.Millisecond); !o.add(now) {
		t.Error("the 101st within a minute is not too many, want it to be")
	}
}

func TestPauseDropsProgressThatGetsOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := testRelay(t, nil)
		l, err := encodeEvent(signed(t, r, "x"))
		if err != nil {
			t.Fatal(err)
		}
		it := r.publish(Progress, []encodedEvent{l}, time.Now()).items[0]
		begin := time.Now()
		go relayLink{r}.waitToRedial(t.Context(), time.Hour)
		if <-it.done; time.Since(begin) != 5*time.Minute || !errors.Is(it.err, ErrStale) {
			t.Errorf("dropped after %v, %v, want 5m, stale", time.Since(begin), it.err)
		}
		time.Sleep(time.Hour)
	})
}

func TestPausesThatWouldNotBeAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"fixed(1s) attempts=3", "fixed(1s)", "exponential(1s..60s) attempts=unlimited attempt-timeout=1s",
		"exponential(1s..60s) attempts=unlimited hedge=1s", "exponential(1s..60s) attempts=unlimited budget=ratio(0.1)",
	} {
		p, err := retry.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkPace("reconnect", p); err == nil || !strings.HasPrefix(err.Error(), "reconnect: ") {
			t.Errorf("checkPace(%s): %v, want an error", text, err)
		}
	}
	if err := checkPace("x", retry.Policy{Attempts: retry.Unlimited}); err == nil {
		t.Error("checkPace without a delay: nil, want an error")
	}
}

func TestTheReasonOfALinkIsNotThatItWasClosed(t *testing.T) {
	t.Parallel()
	why := errors.New("why")
	for _, test := range []struct {
		first error
		all   []error
		want  error
	}{
		{why, []error{net.ErrClosed, why}, why},
		{net.ErrClosed, []error{net.ErrClosed, why}, why},
		{net.ErrClosed, []error{net.ErrClosed}, net.ErrClosed},
	} {
		if got := firstReason(test.first, test.all); got != test.want {
			t.Errorf("firstReason(%v, %v): %v, want %v", test.first, test.all, got, test.want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("hello\x1b[31m\n\u202eworld\xff")
	f.Add(strings.Repeat("é", 500))
	f.Fuzz(func(t *testing.T, text string) {
		got := printable(text)
		bad := func(r rune) bool { return !unicode.IsPrint(r) }
		if !utf8.ValidString(got) || len(got) > maxText+3 || strings.ContainsFunc(got, bad) {
			t.Errorf("printable(%q): %q", text, got)
		}
		if again := printable(got); len(got) <= maxText && again != got {
			t.Errorf("printable twice: %q, %q", got, again)
		}
	})
}

// A relay sends forged events as fast as it can. The cost is bounded: the link
// ends after the 101st, and there is none for five minutes. One operation is
// such a flood; checks is the number of signatures that were checked.
func BenchmarkFloodOfForgedEvents(b *testing.B) {
	checks := 0
	var forged *Event
	handle := func(_ string, e *Event) error { checks++; return e.CheckSignature() }
	for b.Loop() {
		b.StopTimer()
		r := testRelay(b, func(c *ClientConfig) { c.Handle = handle })
		subscribe(r)
		wantSent(b, r, start, TypeReq)
		if forged == nil {
			forged = signed(b, r, "forged")
			forged.Sig = signed(b, r, "other").Sig
		}
		m := &Message{Type: TypeEvent, Sub: "1:jobs", Event: forged}
		b.StartTimer()
		for n := 0; (relayReceiver{r}).receive(m, start) == nil; n++ {
			if n > maxOffences {
				b.Fatal("the link is not cut")
			}
		}
	}
	b.ReportMetric(float64(checks)/float64(b.N), "checks/op")
}

// TestRelayThatGivesNoChallengeRefuses uses a relay that requires
// authentication on each link, and never sends a challenge.
func TestRelayThatGivesNoChallengeRefuses(t *testing.T) {
	t.Parallel()
	r := testRelay(t, nil)
	it := publish(t, r, signed(t, r, "x"))
	now := start
	for link := range maxUnchallenged {
		wantSent(t, r, now, TypeEvent)
		deliverMessage(t, r, now, Message{Type: TypeOK, ID: it.id, Text: "auth-required: members only"})
		now = now.Add(r.cfg.OKTimeout)
		_, _, err := r.due(now)
		if !errors.Is(err, errNoChallenge) || it.state != Pending {
			t.Fatalf("link %d: due: %v, the event is %v", link+1, err, it.state)
		}
		now = now.Add(r.linkLost(err, now))
		r.setPhase(linkUp, now)
	}
	if <-it.done; it.state != Refused || !strings.Contains(it.err.Error(), "auth-required: members only (the relay sends no challenge)") {
		t.Errorf("the event is %v: %v, want refused", it.state, it.err)
	}
}

// TestAReceiptSaysWhyAnEventIsPending follows an event through negative answers
// and through the loss of the link.
func TestAReceiptSaysWhyAnEventIsPending(t *testing.T) {
	t.Parallel()
	r := testRelay(t, nil)
	r.setPhase(linkUp, start)
	l, err := encodeEvent(signed(t, r, "x"))
	if err != nil {
		t.Fatal(err)
	}
	p := r.publish(Result, []encodedEvent{l}, start)
	want := func(state State, reason string) {
		t.Helper()
		if got := p.receipt(); got.State != state || got.Reason != reason {
			t.Errorf("the receipt: %v, %q, want %v, %q", got.State, got.Reason, state, reason)
		}
	}
	want(Pending, "")
	wantSent(t, r, start, TypeEvent)
	deliverMessage(t, r, start, Message{Type: TypeOK, ID: l.id, Text: "rate-limited: slow\x1b down"})
	want(Pending, "rate-limited: slow down")
	wait := r.linkLost(errors.New("cut"), start)
	want(Pending, "no link: cut")
	now := start.Add(wait + time.Hour)
	r.setPhase(linkUp, now)
	want(Pending, "rate-limited: slow down")
	wantSent(t, r, now, TypeEvent)
	deliverMessage(t, r, now, Message{Type: TypeOK, ID: l.id})
	want(Pending, "refused without a reason")
	now = now.Add(time.Hour)
	wantSent(t, r, now, TypeEvent)
	deliverMessage(t, r, now, Message{Type: TypeOK, ID: l.id, OK: true})
	want(Acknowledged, "")
}
