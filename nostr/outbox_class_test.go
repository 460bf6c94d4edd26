package nostr

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestOutboxDropsProgressThenRefusalsAndNeverResults(t *testing.T) {
	t.Parallel()
	o := testOutbox(t, 4)
	put(t, o, Result, start, "result")
	refusals := put(t, o, Refusal, start, "refusal1", "refusal2")
	progress := put(t, o, Progress, start, "progress")
	put(t, o, Result, start, "b")
	if progress[0].state != Dropped || refusals[0].state != Pending {
		t.Fatalf("progress is %v, the first refusal %v; want dropped, pending", progress[0].state, refusals[0].state)
	}
	put(t, o, Result, start, "c")
	if refusals[0].state != Dropped || refusals[1].state != Pending {
		t.Fatalf("refusals are %v, %v; want dropped, pending", refusals[0].state, refusals[1].state)
	}
	put(t, o, Result, start, "d")
	if _, err := o.add(Refusal, letters("refusal3"), start); !errors.Is(err, ErrFull) {
		t.Errorf("add to an outbox full of results: %v, want ErrFull", err)
	}
	if got := queued(o); got != "result b c d" {
		t.Errorf("queued: %s, want all results", got)
	}
}

func TestOutboxForgetsRefusalsAfterFiveMinutes(t *testing.T) {
	t.Parallel()
	o := testOutbox(t, 4)
	put(t, o, Refusal, start, "a")
	put(t, o, Result, start, "b")
	o.expire(start.Add(maxProgressAge - 1))
	if got := queued(o); got != "a b" {
		t.Errorf("queued: %s, want both", got)
	}
	o.expire(start.Add(maxProgressAge))
	if got := queued(o); got != "b" {
		t.Errorf("queued: %s, want the result", got)
	}
}

func queued(o *outbox) string {
	var ids []string
	for _, it := range o.queue {
		ids = append(ids, it.id)
	}
	return strings.Join(ids, " ")
}

func TestOutboxPutsWhatWasDroppedBeforeWhatFollowsIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		before []string
		sent   bool // the first of them was
		batch  string
		want   string
	}{
		{"nothing is there", nil, false, "a b c", "a b c"},
		{"all are", []string{"a", "b", "c"}, false, "a b c", "a b c"},
		{"the first ones are missing", []string{"x", "c", "y"}, false, "a b c d", "x a b c y d"},
		{"one between is missing", []string{"a", "x", "c"}, false, "a b c", "a x b c"},
		{"what was sent stays first", []string{"c", "x"}, true, "a b c d", "c a b x d"},
		{"twice in a batch", nil, false, "a a b", "a b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := testOutbox(t, 10)
			put(t, o, Progress, start, c.before...)
			if c.sent {
				wantDue(t, o, start, c.before[0], 10*time.Second)
			}
			put(t, o, Result, start, strings.Fields(c.batch)...)
			if got := queued(o); got != c.want {
				t.Errorf("queued: %s, want %s", got, c.want)
			}
		})
	}
}

func TestOutboxExpiresWhatIsOldWhereverItIs(t *testing.T) {
	t.Parallel()
	o := testOutbox(t, 10)
	put(t, o, Progress, start, "b")
	put(t, o, Progress, start.Add(time.Minute), "a", "b")
	o.expire(start.Add(maxProgressAge))
	if got := queued(o); got != "a" {
		t.Errorf("queued: %s, want the one that is not old", got)
	}
}

func TestAnEventThatIsAlwaysAnErrorDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	o, now := testOutbox(t, 10), start
	poison := put(t, o, Result, now, "poison", "next")[0]
	for n := range maxErrors {
		if poison.state != Pending {
			t.Fatalf("it is %v after %d tries, want pending", poison.state, n)
		}
		now = now.Add(time.Minute)
		wantDue(t, o, now, "poison", 10*time.Second)
		o.handleOK(answerTo("poison", false, "error: could not save this one"), now)
	}
	refused, ok := errors.AsType[*RefusedError](poison.err)
	if poison.state != Refused || !ok || refused.Text != "error: could not save this one" {
		t.Fatalf("it is %v, %v; want refused", poison.state, poison.err)
	}
	wantDue(t, o, now, "next", 10*time.Second)
}

func TestAnEventThatIsThrottledIsGivenUpAfterAnHour(t *testing.T) {
	t.Parallel()
	o, now := testOutbox(t, 10), start
	it := put(t, o, Result, now, "a")[0]
	throttle := func(later time.Duration) {
		t.Helper()
		now = now.Add(later)
		wantDue(t, o, now, "a", 10*time.Second)
		o.handleOK(answerTo("a", false, "rate-limited: slow down"), now)
	}
	throttle(0)
	throttle(2 * time.Hour) // an outage; two answers say little
	for range maxErrors - 3 {
		throttle(time.Minute)
	}
	if it.state != Pending {
		t.Fatalf("it is %v, want pending", it.state)
	}
	if throttle(time.Minute); it.state != Refused {
		t.Errorf("it is %v, want refused", it.state)
	}
}
