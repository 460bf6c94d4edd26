package tracing

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/retry"
)

var start = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

// at returns the event with a time that is the given number of seconds after the start.
func at(seconds int, e retry.Event) retry.Event {
	e.Time = start.Add(time.Duration(seconds) * time.Second)
	return e
}

var errBusy = errors.New("busy")

// run returns the events of a run whose first attempt fails.
func run() []retry.Event {
	of := func(s int, e retry.Event) retry.Event { e.Name, e.Run = "order", "01K9"; return at(s, e) }
	return []retry.Event{
		of(0, retry.Event{Kind: retry.RunStarted}),
		of(1, retry.Event{Kind: retry.AttemptStarted, Step: "charge", Attempt: 1}),
		of(3, retry.Event{Kind: retry.AttemptFailed, Step: "charge", Attempt: 1, Err: errBusy}),
		of(3, retry.Event{Kind: retry.Waiting, Step: "charge", Attempt: 1, Delay: 5 * time.Second, Until: start.Add(8 * time.Second), By: retry.ByServer}),
		of(8, retry.Event{Kind: retry.AttemptStarted, Step: "charge", Attempt: 2}),
		of(9, retry.Event{Kind: retry.Succeeded, Step: "charge", Attempt: 2}),
		of(9, retry.Event{Kind: retry.Succeeded}),
	}
}

// request returns the events of a request to the gateway, which sends no event at the start
// of an attempt.
func request() []retry.Event {
	of := func(s int, e retry.Event) retry.Event { e.Name, e.Call = "gateway/openai", 7; return at(s, e) }
	return []retry.Event{
		of(2, retry.Event{Kind: retry.AttemptFailed, Attempt: 1, Elapsed: 2 * time.Second, Err: errBusy}),
		of(2, retry.Event{Kind: retry.Waiting, Attempt: 1, Elapsed: 2 * time.Second, Delay: time.Second, Until: start.Add(3 * time.Second)}),
		of(6, retry.Event{Kind: retry.AttemptFailed, Attempt: 2, Elapsed: 6 * time.Second, Err: errBusy}),
		of(6, retry.Event{Kind: retry.GaveUp, Attempt: 2, Elapsed: 6 * time.Second, Reason: retry.StopAttempts, Err: errBusy}),
	}
}

// TestSpans compares the spans of the events with the golden file.
func TestSpans(t *testing.T) {
	t.Parallel()
	f := NewFold("salt")
	var all []Span
	for _, ev := range append(run(), request()...) {
		all = append(all, f.Add(ev)...)
	}
	if len(f.open) != 0 {
		t.Errorf("%d traces are left", len(f.open))
	}
	got, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	testfile.Golden(t, "testdata/spans.json", got)
}

// TestATraceGoesOnElsewhere passes the first events of a run to one process and the rest to
// another. The spans must belong to the same trace.
func TestATraceGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	a, b := NewFold("a"), NewFold("b")
	var all []Span
	for i, ev := range run() {
		if i < 4 {
			all = append(all, a.Add(ev)...)
		} else {
			all = append(all, b.Add(ev)...)
		}
	}
	if len(all) != 3 || all[0].TraceID != all[2].TraceID || all[0].ParentID != all[2].SpanID || all[1].SpanID == all[0].SpanID {
		t.Errorf("spans %+v", all)
	}
	for _, ev := range request() {
		a.Add(ev)
	}
	one, other := a.Add(request()[0]), b.Add(request()[0])
	if one[0].TraceID == other[0].TraceID {
		t.Error("requests of two processes are one trace")
	}
}

func TestWhatIsNoCallIsNoSpan(t *testing.T) {
	t.Parallel()
	f := NewFold("")
	for _, ev := range []retry.Event{
		{Kind: retry.BreakerOpened, Name: "gateway/openai"}, {Kind: retry.StormBegan, Name: "order"}, {Kind: retry.AttemptFailed, Name: "x", Call: 3},
	} {
		if got := f.Add(ev); len(got) > 0 || len(f.open) > 0 {
			t.Errorf("%v makes %+v", ev.Kind, got)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	f := NewFold("")
	for i := range maxOpen + 100 {
		f.Add(retry.Event{Kind: retry.RunStarted, Name: "order", Run: fmt.Sprint(i)})
	}
	for i := range 1000 {
		f.Add(retry.Event{Kind: retry.Waiting, Name: "order", Run: "one", Attempt: i})
		f.Add(retry.Event{Kind: retry.AttemptStarted, Name: "order", Run: "one", Attempt: i})
	}
	if one := f.open["run one"]; len(f.open) > maxOpen || len(one.waits) > maxEvents || len(one.attempts) > maxEvents {
		t.Errorf("%d open, %d waits, %d attempts", len(f.open), len(one.waits), len(one.attempts))
	}
}

func TestACancellationIsNoFailure(t *testing.T) {
	t.Parallel()
	got := NewFold("").Add(at(1, retry.Event{Kind: retry.Canceled, Name: "order", Run: "r", Note: "alice"}))
	text, err := json.Marshal(got)
	if err != nil || len(got) != 1 || got[0].Status != nil || !strings.Contains(string(text), `"canceled"`) {
		t.Errorf("%s, %v", text, err)
	}
}

// A request that fails over before its first attempt, or is hedged, and then succeeds has no
// event for its end. It must not stay open.
func TestSuccessesAtOnceAreForgotten(t *testing.T) {
	t.Parallel()
	f := NewFold("salt")
	for _, kind := range []retry.EventKind{retry.FailedOver, retry.HedgeStarted} {
		if spans := f.Add(at(1, retry.Event{Kind: kind, Name: "gateway/openai", Call: 8})); len(spans) != 0 || len(f.open) != 0 {
			t.Errorf("%v: %d spans, and %d traces are left", kind, len(spans), len(f.open))
		}
	}
}
