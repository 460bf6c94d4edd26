package control

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

func TestWhatIsSaidOfEvents(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, c := range []struct {
		event  retry.Event
		number int
		want   string
	}{
		{retry.Event{Kind: retry.RunStarted}, 0, "Run started"},
		{retry.Event{Kind: retry.AttemptStarted, Step: "a", Attempt: 2, Attempts: retry.Unlimited}, 0, "Attempt 2 of a started"},
		{retry.Event{Kind: retry.AttemptStarted, Step: "a", Attempt: 3, Attempts: 3}, 0, "Attempt 3/3 of a started"},
		{retry.Event{Kind: retry.AttemptStarted, Step: "a", Attempt: 4, Attempts: 3}, 0, "Attempt 4 of a started"},
		{retry.Event{Kind: retry.AttemptFailed, Step: "a", Attempt: 1, Attempts: 3, Err: errors.New("attempt timed out after 2s")}, 0, "Operation timed out after 2000ms"},
		{retry.Event{Kind: retry.AttemptFailed, Step: "a", Attempt: 1, Attempts: 3, Err: errors.New("attempt timed out after 1m1.5s: asked twice")}, 0, "Operation timed out after 61500ms"},
		{retry.Event{Kind: retry.AttemptFailed, Step: "a", Attempt: 1, Attempts: 3, Err: errors.New(`Post "http://x/y": attempt timed out after 1.5s`)}, 0, "Operation timed out after 1500ms"},
		{retry.Event{Kind: retry.AttemptFailed, Step: "a", Attempt: 1, Attempts: 3, Err: errors.New("attempt timed out after lunch")}, 0, "Attempt 1/3 of a failed: attempt timed out after lunch"},
		{retry.Event{Kind: retry.AttemptFailed, Step: "a", Attempt: 1, Attempts: 3, Err: boom, Note: "the run was over"}, 0, "Attempt 1/3 of a ended after the run: boom"},
		{retry.Event{Kind: retry.Waiting, Attempts: 4, Err: boom}, 1, "Retry 1/3 after error: boom"},
		{retry.Event{Kind: retry.Waiting, Attempts: retry.Unlimited, Err: boom}, 7, "Retry 7 after error: boom"},
		{retry.Event{Kind: retry.Waiting, Attempts: 4, Err: boom}, 0, "Retry after error: boom"},
		{retry.Event{Kind: retry.Waiting, Step: "a", Delay: time.Minute, Note: "not ready"}, 0, "Next attempt of a in 1m0s: not ready"},
		{retry.Event{Kind: retry.GaveUp, Reason: retry.StopLost}, 0, "Run is dead: process ended in the attempt too often"},
		{retry.Event{Kind: retry.AttemptLost, Step: "a", Attempt: 1, Attempts: 2}, 0, "Attempt 1/2 of a was lost: the process ended in it"},
		{retry.Event{Kind: retry.Canceled, Note: "eve"}, 0, "Run canceled by eve"},
		{retry.Event{Kind: retry.Resumed, Step: "a", Note: "eve"}, 0, "Wait of a ended early by eve"},
		{retry.Event{Kind: retry.Paused, Name: "report", Note: "schedule nightly, by eve"}, 0, "Paused: schedule nightly, by eve"},
		{retry.Event{Kind: retry.Resumed, Name: "report", Note: "schedule nightly, by eve"}, 0, "Resumed: schedule nightly, by eve"},
		{retry.Event{Kind: retry.NeedsHandler, Step: "a", Note: "go:x/a"}, 0, "Step a waits for a program that knows go:x/a"},
		{retry.Event{Kind: retry.BreakerOpened}, 0, "breaker opened"},
	} {
		if got := Describe(&c.event, c.number); got != c.want {
			t.Errorf("Describe(%s) = %q, want %q", c.event.Kind, got, c.want)
		}
	}
	in := Event{Seq: 3, Message: "m", Event: retry.Event{Kind: retry.Waiting, Time: time.Unix(5, 6).UTC(), Until: time.Unix(7, 0).UTC(), Err: boom, Run: "r"}}
	text, err := in.MarshalJSON()
	var out Event
	if err != nil || out.UnmarshalJSON(text) != nil || out.Seq != 3 || out.Message != "m" || out.Err.Error() != "boom" || !out.Until.Equal(in.Until) {
		t.Errorf("%s became %+v, %v", text, out, err)
	}
	if !strings.HasPrefix(string(text), `{"seq":3,"message":"m","kind":"waiting"`) {
		t.Errorf("JSON %s", text)
	}
}

func TestATimeoutIsCountedFromTheRetry(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	ended, deadline := at(100), at(100)
	i := &engine.Info{State: "dead", Created: at(0), Ended: &ended, Deadline: &deadline, Notes: []engine.Note{{At: at(90), What: "retried"}}}
	if got := TimeoutText(i); got != "Operation timed out after 10000ms" {
		t.Errorf("TimeoutText = %q", got)
	}
	i.Steps = []engine.StepInfo{{Attempts: []engine.AttemptInfo{{Started: at(1)}, {Started: at(98).Add(3 * time.Millisecond)}, {Started: at(99)}}}}
	if got := TimeoutText(i); got != "Operation timed out after 2000ms" {
		t.Errorf("of a start that was to be later: %q", got)
	}
	if ended = at(99); TimeoutText(i) != "" {
		t.Errorf("before the deadline: %q", TimeoutText(i))
	}
}

func TestAPauseIsInTheHistory(t *testing.T) {
	t.Parallel()
	list := History(&engine.Info{State: "running", Notes: []engine.Note{{What: "paused", Text: "ada"}, {What: "resumed", Text: "bob"}}})
	if len(list) != 2 || list[0].Message != "Run paused by ada" || list[1].Message != "Run resumed by bob" {
		t.Errorf("%+v", list)
	}
}

func TestEveryReasonIsInTheHistory(t *testing.T) {
	t.Parallel()
	ended := time.Unix(9, 0)
	for r := retry.StopAttempts; ; r++ {
		if _, known := retry.ParseReason(r.String()); !known {
			return // that was all
		}
		list := History(&engine.Info{State: "dead", Ended: &ended, Reason: r.String()})
		if len(list) != 1 || list[0].Reason != r || list[0].Message != "Run is dead: "+r.Error() {
			t.Errorf("%s: %+v", r, list)
		}
	}
}
