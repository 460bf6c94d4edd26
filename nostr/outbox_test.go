package nostr

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
)

// Tests of the state machines: the time is an argument, nothing is sent.

var start = time.Unix(1_800_000_000, 0)

// longest is a random source with which full jitter gives the longest delay.
func longest() uint64 { return math.MaxUint64 }

func testPace(t testing.TB) pace {
	t.Helper()
	p, err := retry.Parse(defaultPace)
	if err != nil {
		t.Fatal(err)
	}
	return pace{policy: p, random: longest}
}

func testOutbox(t testing.TB, limit int) *outbox {
	t.Helper()
	o := newOutbox(limit, 10*time.Second, testPace(t))
	return &o
}

func letters(names ...string) (list []encodedEvent) {
	for _, n := range names {
		list = append(list, encodedEvent{n, []byte(n)})
	}
	return list
}

func put(t testing.TB, o *outbox, class Class, now time.Time, names ...string) []*item {
	t.Helper()
	items, err := o.add(class, letters(names...), now)
	if err != nil {
		t.Fatalf("add %v: %v", names, err)
	}
	return items
}

// wantDue checks what is sent now, or when due must be called again.
func wantDue(t testing.TB, o *outbox, now time.Time, frame string, next time.Duration) {
	t.Helper()
	got, at, err := o.due(now)
	if string(got) != frame || err != nil || at.Sub(now).Round(time.Millisecond) != next {
		t.Fatalf("due: %q, in %v, %v, want %q, %v", got, at.Sub(now), err, frame, next)
	}
}

func answerTo(id string, ok bool, text string) *Message {
	return &Message{Type: TypeOK, ID: id, OK: ok, Text: text}
}

func TestOutboxSendsOneAtATime(t *testing.T) {
	t.Parallel()
	o := testOutbox(t, 10)
	items := put(t, o, Result, start, "a", "b")
	wantDue(t, o, start, "a", 10*time.Second)
	wantDue(t, o, start.Add(time.Second), "", 9*time.Second)
	o.handleOK(answerTo("b", true, ""), start) // not sent yet
	o.handleOK(answerTo("a", true, ""), start)
	wantDue(t, o, start, "b", 10*time.Second)
	o.handleOK(answerTo("b", false, "duplicate: I have it"), start)
	for _, it := range items {
		if <-it.done; it.state != Acknowledged {
			t.Errorf("%s is %v, want acknowledged", it.id, it.state)
		}
	}
}

func TestOutboxWaitsAsThePolicySays(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"rate-limited: slow", "error: disk"} {
		o, now := testOutbox(t, 10), start
		put(t, o, Result, now, "a", "b")
		for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			wantDue(t, o, now, "a", 10*time.Second)
			o.handleOK(answerTo("a", false, text), now)
			wantDue(t, o, now, "", wait*time.Second)
			now = now.Add(wait * time.Second)
		}
		wantDue(t, o, now, "a", 10*time.Second)
		o.handleOK(answerTo("a", true, ""), now)
		wantDue(t, o, now, "b", 10*time.Second)
		o.handleOK(answerTo("b", false, text), now)
		wantDue(t, o, now, "", time.Second) // from the beginning
	}
}

func TestOutboxSendsAgainWhatIsNotAnswered(t *testing.T) {
	t.Parallel()
	o, now := testOutbox(t, 10), start
	items := put(t, o, Result, now, "a")
	for _, wait := range []time.Duration{1, 2} {
		wantDue(t, o, now, "a", 10*time.Second)
		now = now.Add(10 * time.Second)
		wantDue(t, o, now, "", wait*time.Second)
		now = now.Add(wait * time.Second)
	}
	wantDue(t, o, now, "a", 10*time.Second)
	now = now.Add(10 * time.Second)
	if _, _, err := o.due(now); err == nil {
		t.Fatal("due after the third time: nil, want an error that ends the link")
	}
	o.linkLost()
	wantDue(t, o, now, "a", 10*time.Second)
	now = now.Add(10 * time.Second)
	wantDue(t, o, now, "", 4*time.Second)
	o.handleOK(answerTo("a", true, "late"), now)
	if <-items[0].done; items[0].state != Acknowledged {
		t.Errorf("a late answer: %v, want acknowledged", items[0].state)
	}
}

func TestOutboxHoldsUntilTheRelayKnowsUs(t *testing.T) {
	t.Parallel()
	o := testOutbox(t, 10)
	put(t, o, Result, start, "a")
	wantDue(t, o, start, "a", 10*time.Second)
	if !o.handleOK(answerTo("a", false, "auth-required: who?"), start) {
		t.Fatal("answered: false, want it to ask for AUTH")
	}
	if frame, at, err := o.due(start.Add(time.Hour)); frame != nil || !at.IsZero() || err != nil {
		t.Fatalf("due while held: %q, %v, %v, want nothing", frame, at, err)
	}
	o.release()
	wantDue(t, o, start, "a", 10*time.Second)
}

func TestOutboxForgetsProgressAfterFiveMinutes(t *testing.T) {
	t.Parallel()
	o := testOutbox(t, 10)
	items := put(t, o, Progress, start, "p")
	put(t, o, Result, start, "r")
	late := start.Add(5 * time.Minute)
	if at := o.nextExpiry(); !at.Equal(late) {
		t.Errorf("nextExpiry: %v, want %v", at, late)
	}
	o.expire(late.Add(-1))
	if len(o.queue) != 2 {
		t.Fatal("progress was dropped before its time")
	}
	wantDue(t, o, late, "r", 10*time.Second)
	if <-items[0].done; items[0].state != Dropped || !errors.Is(items[0].err, ErrStale) {
		t.Errorf("progress: %v, %v, want dropped as stale", items[0].state, items[0].err)
	}
	wantDue(t, o, late.Add(24*time.Hour), "", time.Second) // results are kept
}

func TestOutboxDoesNotDropWhatIsInFlight(t *testing.T) {
	t.Parallel()
	o := testOutbox(t, 2)
	put(t, o, Progress, start, "p1", "p2")
	late := start.Add(5*time.Minute - time.Second)
	wantDue(t, o, late, "p1", 10*time.Second)
	wantDue(t, o, late, "", time.Second)                      // until p2 is too old
	wantDue(t, o, late.Add(2*time.Second), "", 8*time.Second) // until p1 should be answered
	put(t, o, Progress, late, "p3")
	put(t, o, Result, start, "r1")
	if o.queue[0].id != "p1" || o.queue[1].id != "r1" {
		t.Errorf("the queue is %s, %s, want p1, r1", o.queue[0].id, o.queue[1].id)
	}
	if _, err := o.add(Result, letters("r2"), late); !errors.Is(err, ErrFull) {
		t.Errorf("add: %v, want ErrFull", err)
	}
}

func TestOutboxTakesABatchWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	o := testOutbox(t, 3)
	put(t, o, Result, start, "r")
	put(t, o, Progress, start, "p")
	if _, err := o.add(Result, letters("a", "b", "c"), start); !errors.Is(err, ErrFull) {
		t.Fatalf("add: %v, want ErrFull", err)
	}
	if len(o.queue) != 2 || len(o.byID) != 2 {
		t.Errorf("%d queued, %d known, want 2 and nothing dropped", len(o.queue), len(o.byID))
	}
	put(t, o, Result, start, "a", "b")
}

func TestOutboxKeepsProgressThatIsPublishedAsAResult(t *testing.T) {
	t.Parallel()
	o := testOutbox(t, 3)
	put(t, o, Progress, start, "a")
	put(t, o, Result, start, "a")
	o.expire(start.Add(time.Hour))
	if len(o.queue) != 1 {
		t.Errorf("%d queued, want 1", len(o.queue))
	}
}

func TestOutboxLeavesTheWaitThatTheRelayAskedFor(t *testing.T) {
	t.Parallel()
	o := testOutbox(t, 3)
	put(t, o, Progress, start, "p")
	put(t, o, Result, start, "r")
	late := start.Add(5*time.Minute - time.Second/2)
	wantDue(t, o, late, "p", 10*time.Second)
	o.handleOK(answerTo("p", false, "rate-limited:"), late)
	now := start.Add(5 * time.Minute)
	wantDue(t, o, now, "", time.Second/2)
	wantDue(t, o, now.Add(time.Second/2), "r", 10*time.Second)
}

// Results arrive in the order of publishing, and the outbox stays within its
// limits, for any answers of the relay and any broken links.
func TestOutboxKeepsOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 0))
		o, now := testOutbox(t, 8), start
		var relay []string // in order of first arrival
		var items []*item
		for n := 0; n < 30 || len(o.queue) > 0; {
			now = now.Add(time.Duration(random.IntN(20000)) * time.Millisecond)
			if got, err := o.add(Class(random.IntN(2)), letters(fmt.Sprintf("%03d", n)), now); n < 30 && err == nil {
				items = append(items, got...)
			} else if err == nil {
				o.drop(got[0], ErrStopped)
			}
			n++
			frame, _, err := o.due(now)
			if err != nil || random.IntN(10) == 0 {
				o.linkLost()
				continue
			}
			if id := string(frame); id != "" {
				relay = deliver(o, relay, id, random, now)
			}
			if len(o.queue) > 8 {
				t.Fatalf("seed %d: %d queued, want 8 at most", seed, len(o.queue))
			}
		}
		checkOrder(t, seed, relay, items)
	}
}

// deliver simulates a relay that accepts an event or not, and answers or not.
func deliver(o *outbox, relay []string, id string, random *rand.Rand, now time.Time) []string {
	switch random.IntN(5) {
	case 0:
		o.handleOK(answerTo(id, false, "rate-limited: slow"), now)
		return relay
	case 1:
		return relay // lost
	}
	if !strings.Contains(strings.Join(relay, " "), id) {
		relay = append(relay, id)
	}
	if random.IntN(3) > 0 {
		o.handleOK(answerTo(id, true, ""), now)
	}
	return relay
}

func checkOrder(t *testing.T, seed uint64, relay []string, items []*item) {
	t.Helper()
	for i := 1; i < len(relay); i++ {
		if relay[i] <= relay[i-1] {
			t.Fatalf("seed %d: the relay got %v, want them in order", seed, relay)
		}
	}
	for _, it := range items {
		on := strings.Contains(strings.Join(relay, " "), it.id)
		switch <-it.done; {
		case it.state == Acknowledged && !on:
			t.Fatalf("seed %d: %s is acknowledged and not there", seed, it.id)
		case it.class == Result && it.state != Acknowledged:
			t.Fatalf("seed %d: result %s is %v", seed, it.id, it.state)
		}
	}
}

func TestAnOutboxIsFullOfBytesToo(t *testing.T) {
	t.Parallel()
	o := testOutbox(t, 1024)
	big := func(name string) []encodedEvent { return []encodedEvent{{name, make([]byte, maxBytes/2)}} }
	old, err := o.add(Progress, big("old"), start)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.add(Result, big("a"), start); err != nil {
		t.Fatal(err)
	}
	if _, err := o.add(Result, big("b"), start); err != nil {
		t.Fatal(err)
	}
	if old[0].state != Dropped {
		t.Errorf("the oldest progress is %v, want %v", old[0].state, Dropped)
	}
	if _, err := o.add(Result, letters("c"), start); !errors.Is(err, ErrFull) {
		t.Errorf("add: %v, want ErrFull", err)
	}
}
