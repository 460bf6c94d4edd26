package dvm_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// failing returns a history of failed attempts.
func failing(n int, every time.Duration) *dvm.History {
	h := &dvm.History{MaxRetries: -1}
	for i := range n {
		at := morning.Add(time.Duration(i) * every)
		h.Attempts = append(h.Attempts, dvm.Attempt{Started: at, Ended: at, Error: "no", Retry: true, Wait: every})
	}
	return h
}

// retries returns the numbers of the published retries.
func retries(events []nostr.Event) (list []string) {
	for _, e := range events {
		if t := e.Tags.Find("retry"); t != nil {
			list = append(list, t.Value())
		}
	}
	return list
}

func TestOfManyRetriesSomeAreTold(t *testing.T) {
	t.Parallel()
	r := newParsedRequest(t, morning)
	h := failing(40_000, 2*time.Second)
	h.Outcome = &dvm.Outcome{State: dvm.Failed, At: morning.Add(80_000 * time.Second)}
	events := dvm.Answers(r, h)
	got := retries(events)
	if len(got) != 50 || got[39] != "40" {
		t.Fatalf("%d retries are published: %v; want 50", len(got), got)
	}
	equal(t, "the last ones", got[40:], strings.Fields("64 128 256 512 1024 2048 4096 8192 16384 32768"))
	for _, e := range events[len(events)-2:] {
		signed(t, &e, ours) // fails for a result that is too long
		if e.Tags.Find("status").Value() != dvm.StatusError {
			t.Errorf("it ends with %v", e.Tags)
		}
	}
}

func TestFeedbackIsNeverDatedFarAhead(t *testing.T) {
	t.Parallel()
	r := newParsedRequest(t, morning)
	h := failing(120, 0) // all at once
	for i := range h.Attempts {
		h.Attempts[i].Number = 1 // so that no retry is omitted because of its number
	}
	h.Outcome = &dvm.Outcome{State: dvm.Failed, At: morning}
	var before []nostr.Event
	for n := range len(h.Attempts) {
		short := dvm.History{MaxRetries: h.MaxRetries, Attempts: h.Attempts[:n]}
		events := dvm.Answers(r, &short)
		if len(events) < len(before) || len(before) > 0 && !reflect.DeepEqual(events[:len(before)], before) {
			t.Fatalf("attempt %d takes something back", n)
		}
		before = events
	}
	events := dvm.Answers(r, h)
	for i, e := range events {
		if ahead := e.CreatedAt - morning.Unix(); ahead > 61 || i > 0 && ahead < events[i-1].CreatedAt-morning.Unix() {
			t.Errorf("event %d is dated %ds ahead", i, ahead)
		}
	}
	if got := summaries(events); !strings.Contains(got[len(got)-1], "RETRY_EXHAUSTED") {
		t.Errorf("it ends with %s", got[len(got)-1])
	}
}

func TestFeedbackThatWouldBeDatedTooFarAheadIsLeftOut(t *testing.T) {
	t.Parallel()
	r := newParsedRequest(t, morning)
	h := &dvm.History{MaxRetries: 3, Attempts: []dvm.Attempt{
		{Started: after(0), Ended: after(100), Error: "a", Retry: true},
		{Started: after(1), Ended: after(40), Error: "b", Retry: true}, // 61 s before the last feedback
		{Started: after(1), Ended: after(41), Error: "c", Retry: true},
	}, Outcome: &dvm.Outcome{State: dvm.Cancelled, At: after(30)}}
	equal(t, "the events", summaries(dvm.Answers(r, h)), []string{
		"0 processing Started", "100 processing Retry 1/3 after error: a", "101 processing Retry 3/3 after error: c", "102 error cancelled",
	})
}

func TestAHistoryWithoutItsMiddleCountsOn(t *testing.T) {
	t.Parallel()
	r := newParsedRequest(t, morning)
	attempt := func(n int) dvm.Attempt {
		return dvm.Attempt{Number: n, Started: after(float64(n)), Ended: after(float64(n)), Error: "no", Retry: true, Wait: time.Second}
	}
	next := attempt(0)
	next.Ended = after(40)
	h := &dvm.History{MaxRetries: 99, Attempts: []dvm.Attempt{attempt(1), attempt(2), attempt(30), next}, Outcome: &dvm.Outcome{State: dvm.Failed, At: after(50)}}
	equal(t, "the retries", retries(dvm.Answers(r, h)), strings.Fields("1 2 30 31"))
	if got := h.Metadata(r).AttemptNumber; got != 30 {
		t.Errorf("the last attempt is %d, want 30", got)
	}
	h.Attempts[1].Lost = true
	equal(t, "the retries", retries(dvm.Answers(r, h)), strings.Fields("1 30 31"))
}

func TestARefusalIsTheSameFromEveryProcess(t *testing.T) {
	t.Parallel()
	a, b := newParsedRequest(t, morning), newParsedRequest(t, morning)
	a.Relay, b.Relay = "wss://a.example", "wss://b.example"
	one, two := dvm.Refusal(a, dvm.CodeInvalid, "no", a.Created), dvm.Refusal(b, dvm.CodeInvalid, "no", b.Created)
	if !reflect.DeepEqual(one, two) {
		t.Errorf("refusals are\n%v and\n%v", one, two)
	}
	for _, e := range one {
		if e.CreatedAt != morning.Unix() || e.Tags.Find("request") != nil || e.Tags.Find("i") != nil {
			t.Errorf("it is dated %d and says %v", e.CreatedAt-morning.Unix(), e.Tags)
		}
	}
}
