package dvm_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// newParsedRequest returns a request of the time at.
func newParsedRequest(tb testing.TB, at time.Time, change ...func(*nostr.Event)) *dvm.Request {
	tb.Helper()
	r, err := dvm.Parse(newRequest(tb, at, change...), dvm.Rules{})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// after returns the time of the test's start plus seconds.
func after(seconds float64) time.Time {
	return morning.Add(time.Duration(seconds * float64(time.Second)))
}

// summaries returns the time, status and text of each event.
func summaries(events []nostr.Event) (list []string) {
	for _, e := range events {
		text := e.Content
		if e.Kind != dvm.KindFeedback {
			text = fmt.Sprintf("%d %s", e.Kind, e.Content)
		}
		list = append(list, fmt.Sprintf("%d %s %s", e.CreatedAt-morning.Unix(), e.Tags.Find("status").Value(), text))
	}
	return list
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\ngot\n\t%s\nwant\n\t%s", what, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// hangingHistory is the history of a job that hangs, with a timeout of 2 s and
// three retries.
func hangingHistory() *dvm.History {
	h := &dvm.History{MaxRetries: 3}
	start := 0.0
	for i, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 0} {
		h.Attempts = append(h.Attempts, dvm.Attempt{
			Started: after(start), Ended: after(start + 2), Error: "context deadline exceeded", TimedOut: true, Retry: i < 3, Wait: wait,
		})
		start += 2 + wait.Seconds()
	}
	h.Outcome = &dvm.Outcome{State: dvm.Failed, At: after(15)}
	return h
}

func TestTheTimelineOfAJobThatHangs(t *testing.T) {
	t.Parallel()
	r := newParsedRequest(t, morning, tagged(nostr.Tag{"timeout", "2"}))
	r.Relay = "wss://relay.example"
	events := dvm.Answers(r, hangingHistory())
	equal(t, "the events", summaries(events), []string{
		"0 processing Started",
		"2 processing Retry 1/3 after error: Operation timed out after 2000ms",
		"5 processing Retry 2/3 after error: Operation timed out after 2000ms",
		"9 processing Retry 3/3 after error: Operation timed out after 2000ms",
		"15 error TIMEOUT: Operation timed out after 2000ms",
		`15 error 6900 {"error":true,"code":"TIMEOUT","message":"Operation timed out after 2000ms",` +
			`"retry":{"attemptNumber":3,"maxRetries":3,"lastError":"Operation timed out after 2000ms","backoffHistory":[1000,2000,4000]}}`,
	})
	want := nostr.Tags{
		{"status", "processing", "Retry 1/3 after error: Operation timed out after 2000ms"},
		{"e", r.ID, "wss://relay.example"}, {"p", customer.PublicKey()}, {"retry", "1", "3", "1000"},
	}
	if got := events[1].Tags; !reflect.DeepEqual(got, want) {
		t.Errorf("the tags of the first retry are %v, want %v", got, want)
	}
	want = nostr.Tags{
		{"request", string(r.Event.AppendJSON(nil))}, {"e", r.ID, "wss://relay.example"},
		{"i", "https://example.com/sheep", "url"}, {"p", customer.PublicKey()}, {"status", "error"}, {"runtime", "15000"},
	}
	if got := events[5].Tags; !reflect.DeepEqual(got, want) {
		t.Errorf("the tags of the result are %v, want %v", got, want)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	at := func(start, end float64, a dvm.Attempt) dvm.Attempt {
		a.Started, a.Ended = after(start), after(end)
		return a
	}
	running := dvm.Attempt{Started: after(1)}
	ended := func(state dvm.State, o dvm.Outcome) *dvm.Outcome {
		o.State, o.At = state, after(9)
		return &o
	}
	const none = `"retry":{"attemptNumber":0,"maxRetries":3,"lastError":"","backoffHistory":[]}}`
	for _, c := range []struct {
		name string
		h    dvm.History
		want []string
	}{
		{"nothing yet", dvm.History{}, nil},
		{"it runs", dvm.History{Attempts: []dvm.Attempt{running}}, []string{"1 processing Started"}},
		{"a success", dvm.History{Attempts: []dvm.Attempt{at(1, 9, dvm.Attempt{})}, Outcome: ended(dvm.Succeeded, dvm.Outcome{Content: "42"})},
			[]string{"1 processing Started", "9 success 6900 42"}},
		{"a part", dvm.History{Attempts: []dvm.Attempt{at(1, 9, dvm.Attempt{})}, Outcome: ended(dvm.Succeeded, dvm.Outcome{Content: "4", Partial: true})},
			[]string{"1 processing Started", "9 partial 6900 4"}},
		{"cancelled while it runs", dvm.History{Attempts: []dvm.Attempt{running}, Outcome: ended(dvm.Cancelled, dvm.Outcome{})},
			[]string{"1 processing Started", "9 error cancelled"}},
		{"cancelled in the queue", dvm.History{Outcome: ended(dvm.Cancelled, dvm.Outcome{})}, []string{"9 error cancelled"}},
		{"the provider goes away", dvm.History{Attempts: []dvm.Attempt{running}, Outcome: ended(dvm.Cancelled, dvm.Outcome{Message: "provider shutting down"})},
			[]string{"1 processing Started", "9 error provider shutting down"}},
		{"refused", dvm.History{MaxRetries: 3, Outcome: ended(dvm.Refused, dvm.Outcome{Code: dvm.CodeOverload, Message: "come later"})},
			[]string{"9 error OVERLOADED: come later", `9 error 6900 {"error":true,"code":"OVERLOADED","message":"come later",` + none}},
		{"permanent, and told in public", dvm.History{Attempts: []dvm.Attempt{at(1, 9, dvm.Attempt{Error: "open /etc/shadow: <no>\nline 2"})}, Outcome: ended(dvm.Failed, dvm.Outcome{Code: dvm.CodePermanent})},
			[]string{"1 processing Started", "9 error PERMANENT: open …: <no> line 2",
				`9 error 6900 {"error":true,"code":"PERMANENT","message":"open …: <no> line 2","retry":{"attemptNumber":0,"maxRetries":0,"lastError":"open …: <no> line 2","backoffHistory":[]}}`}},
		{"stuck", dvm.History{MaxRetries: 3, Attempts: []dvm.Attempt{at(1, 9, dvm.Attempt{TimedOut: true, Stuck: true, Limit: time.Second})}, Outcome: ended(dvm.Failed, dvm.Outcome{Code: dvm.CodePermanent})},
			[]string{"1 processing Started", "9 error TIMEOUT: Operation timed out after 1000ms and did not stop",
				`9 error 6900 {"error":true,"code":"TIMEOUT","message":"Operation timed out after 1000ms and did not stop","retry":{"attemptNumber":0,"maxRetries":3,"lastError":"Operation timed out after 1000ms and did not stop","backoffHistory":[]}}`}},
		{"a process that ended is no retry", dvm.History{MaxRetries: 3, Attempts: []dvm.Attempt{
			at(1, 3, dvm.Attempt{Lost: true, Error: "lost", Retry: true}), at(4, 5, dvm.Attempt{Error: "no", Retry: true, Wait: time.Second}), at(6, 9, dvm.Attempt{})},
			Outcome: ended(dvm.Succeeded, dvm.Outcome{})},
			[]string{"1 processing Started", "5 processing Retry 1/3 after error: no", "9 success 6900 "}},
		{"lost too often", dvm.History{MaxRetries: 3, Attempts: []dvm.Attempt{at(1, 3, dvm.Attempt{Lost: true}), at(4, 9, dvm.Attempt{Lost: true})}, Outcome: ended(dvm.Failed, dvm.Outcome{})},
			[]string{"1 processing Started", "9 error RETRY_EXHAUSTED: The provider was interrupted",
				`9 error 6900 {"error":true,"code":"RETRY_EXHAUSTED","message":"The provider was interrupted","retry":{"attemptNumber":0,"maxRetries":3,"lastError":"The provider was interrupted","backoffHistory":[]}}`}},
		{"lost after a failure", dvm.History{MaxRetries: 3, Attempts: []dvm.Attempt{at(1, 3, dvm.Attempt{Error: "no", Retry: true, Wait: time.Second}), at(4, 9, dvm.Attempt{Lost: true})}, Outcome: ended(dvm.Failed, dvm.Outcome{})},
			[]string{"1 processing Started", "3 processing Retry 1/3 after error: no", "9 error RETRY_EXHAUSTED: no",
				`9 error 6900 {"error":true,"code":"RETRY_EXHAUSTED","message":"no","retry":{"attemptNumber":0,"maxRetries":3,"lastError":"no","backoffHistory":[1000]}}`}},
		{"failures faster than a second", dvm.History{MaxRetries: -1, Attempts: []dvm.Attempt{at(1, 1, dvm.Attempt{Error: "a", Retry: true}), at(1, 1.1, dvm.Attempt{Error: "b", Retry: true}), at(1.2, 1.3, dvm.Attempt{})}, Outcome: &dvm.Outcome{State: dvm.Succeeded, At: after(1.4)}},
			[]string{"1 processing Started", "2 processing Retry 1/unlimited after error: a", "3 processing Retry 2/unlimited after error: b", "3 success 6900 "}},
		{"before the request, by our clock", dvm.History{Attempts: []dvm.Attempt{at(-60, -50, dvm.Attempt{})}, Outcome: &dvm.Outcome{State: dvm.Succeeded, At: after(-50)}},
			[]string{"0 processing Started", "0 success 6900 "}},
		{"progress, not too often", dvm.History{Attempts: []dvm.Attempt{{Started: after(1), Progress: []dvm.Progress{
			{At: after(2), Percent: 1}, {At: after(7), Percent: 50, ETA: 1500 * time.Millisecond, Text: "half"}, {At: after(8), Percent: 51}, {At: after(20), Percent: 300}}}}},
			[]string{"1 processing Started", "7 processing half", "20 processing "}},
		{"a result that is too long", dvm.History{Attempts: []dvm.Attempt{at(1, 9, dvm.Attempt{})}, Outcome: ended(dvm.Succeeded, dvm.Outcome{Content: strings.Repeat("x", 1<<16+1)})},
			[]string{"1 processing Started", "9 error PERMANENT: The result has 65537 bytes, at most 65536 can be published",
				`9 error 6900 {"error":true,"code":"PERMANENT","message":"The result has 65537 bytes, at most 65536 can be published","retry":{"attemptNumber":0,"maxRetries":0,"lastError":"The result has 65537 bytes, at most 65536 can be published","backoffHistory":[]}}`}},
		{"a result that is no text", dvm.History{Outcome: ended(dvm.Succeeded, dvm.Outcome{Content: "\xff"})},
			[]string{"9 error PERMANENT: The result is not UTF-8",
				`9 error 6900 {"error":true,"code":"PERMANENT","message":"The result is not UTF-8","retry":{"attemptNumber":0,"maxRetries":0,"lastError":"The result is not UTF-8","backoffHistory":[]}}`}},
		{"no reason at all", dvm.History{Outcome: ended(dvm.Failed, dvm.Outcome{})},
			[]string{"9 error RETRY_EXHAUSTED: The provider gives no reason",
				`9 error 6900 {"error":true,"code":"RETRY_EXHAUSTED","message":"The provider gives no reason","retry":{"attemptNumber":0,"maxRetries":0,"lastError":"The provider gives no reason","backoffHistory":[]}}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newParsedRequest(t, morning)
			events := dvm.Answers(r, &c.h)
			equal(t, "the events", summaries(events), c.want)
			for _, e := range events {
				signed(t, &e, ours)
				if e.Tags.Find("amount") != nil {
					t.Errorf("it asks for money: %v", e.Tags)
				}
			}
		})
	}
}

func TestAReducedTimeoutIsTold(t *testing.T) {
	t.Parallel()
	r := newParsedRequest(t, morning, tagged(nostr.Tag{"timeout", "3600"}))
	equal(t, "the events", summaries(dvm.Answers(r, &dvm.History{Attempts: []dvm.Attempt{{Started: morning}}})),
		[]string{"0 processing Started; timeout reduced to the maximum of 600s"})
}

func TestAResultThatIsTooLongOnTheWireBecomesAnError(t *testing.T) {
	t.Parallel()
	r := newParsedRequest(t, morning, tagged(nostr.Tag{"i", strings.Repeat("\x01", 60<<10)}))
	h := &dvm.History{Attempts: []dvm.Attempt{{Started: morning}}, Outcome: &dvm.Outcome{State: dvm.Succeeded, At: after(1), Content: strings.Repeat("\x01", 1<<16)}}
	events := dvm.Answers(r, h)
	last := events[len(events)-1]
	if !strings.Contains(last.Content, "on the wire") || len(last.AppendJSON(nil)) > nostr.MaxFrame {
		t.Errorf("the result has %d bytes: %.200s", len(last.AppendJSON(nil)), last.Content)
	}
}

// randomHistory returns a random history after each of its steps.
func randomHistory(rnd *rand.Rand) (steps []dvm.History) {
	h := dvm.History{MaxRetries: rnd.IntN(5) - 1}
	now := morning.Add(time.Duration(rnd.IntN(20)-10) * time.Second)
	advance := func() { now = now.Add(time.Duration(rnd.IntN(8000)) * time.Millisecond) }
	snap := func() {
		text, _ := json.Marshal(h) // a copy that shares nothing
		var c dvm.History
		if err := json.Unmarshal(text, &c); err != nil {
			panic(err)
		}
		steps = append(steps, c)
	}
	snap()
	for range rnd.IntN(6) {
		advance()
		h.Attempts = append(h.Attempts, dvm.Attempt{Started: now})
		snap()
		a := &h.Attempts[len(h.Attempts)-1]
		for range rnd.IntN(4) {
			advance()
			a.Progress = append(a.Progress, dvm.Progress{At: now, Percent: rnd.IntN(100)})
			snap()
		}
		advance()
		a.Ended, a.Error = now, "error /etc/passwd"
		a.TimedOut, a.Lost = rnd.IntN(3) == 0, rnd.IntN(4) == 0
		snap()
		if !a.Lost {
			a.Retry, a.Wait = true, time.Second
			snap()
		}
	}
	advance()
	states := []dvm.State{dvm.Succeeded, dvm.Failed, dvm.Cancelled, dvm.Refused}
	h.Outcome = &dvm.Outcome{State: states[rnd.IntN(4)], At: now, Content: "done", Message: []string{"", "why"}[rnd.IntN(2)]}
	snap()
	return steps
}

func TestWhatHappensLaterOnlyAppends(t *testing.T) {
	t.Parallel()
	r := newParsedRequest(t, morning)
	for seed := range uint64(30) {
		var before []nostr.Event
		steps := randomHistory(rand.New(rand.NewPCG(seed, 0)))
		for i, h := range steps {
			events := dvm.Answers(r, &h)
			if len(events) < len(before) || len(before) > 0 && !reflect.DeepEqual(events[:len(before)], before) {
				t.Fatalf("seed %d, step %d: was\n%v, is\n%v", seed, i, summaries(before), summaries(events))
			}
			before = events
		}
		checkEvents(t, seed, before)
	}
}

// checkEvents checks the invariants of the events of a job that is over.
func checkEvents(t *testing.T, seed uint64, events []nostr.Event) {
	t.Helper()
	clock := morning.Unix() - 1
	ends := 0
	for i, e := range events {
		status := e.Tags.Find("status").Value()
		switch {
		case e.Kind == dvm.KindFeedback && e.CreatedAt <= clock, e.CreatedAt < clock:
			t.Errorf("seed %d: event %d is dated %d after %d", seed, i, e.CreatedAt, clock)
		case e.Kind == dvm.KindFeedback && status == dvm.StatusError, e.Kind != dvm.KindFeedback && status != dvm.StatusError:
			ends++
		case e.Kind != dvm.KindFeedback && i != len(events)-1:
			t.Errorf("seed %d: something follows the result", seed)
		}
		clock = e.CreatedAt
	}
	if ends != 1 {
		t.Errorf("seed %d: %d ends: %v", seed, ends, summaries(events))
	}
}
