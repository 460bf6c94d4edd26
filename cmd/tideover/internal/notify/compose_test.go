package notify_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/retry"
)

var here = notify.Place{Host: "box", Page: "http://127.0.0.1:7878/", Zone: time.UTC}

func TestCompose(t *testing.T) {
	failed := errors.New("exit code 1: API Error:\n  overloaded")
	for _, c := range []struct {
		name        string
		e           retry.Event
		event       notify.Event
		title, text string
	}{
		{
			"a command gave up", retry.Event{Kind: retry.GaveUp, Attempt: 5, Attempts: 5, Elapsed: 42 * time.Minute, Reason: retry.StopAttempts, Err: failed},
			notify.GaveUp, "nightly gave up", "5 attempts in 42m; last: exit code 1: API Error: overloaded",
		},
		{
			"a command gave up soon", retry.Event{Kind: retry.GaveUp, Attempt: 3, Attempts: 3, Elapsed: 3_480 * time.Millisecond, Reason: retry.StopAttempts, Err: failed},
			notify.GaveUp, "nightly gave up", "3 attempts in 3.5s; last: exit code 1: API Error: overloaded",
		},
		{
			"for another reason", retry.Event{Kind: retry.GaveUp, Attempt: 1, Reason: retry.StopPermanent, Err: failed},
			notify.GaveUp, "nightly gave up", "1 attempt; permanent failure; last: exit code 1: API Error: overloaded",
		},
		{
			"a step gave up", retry.Event{Kind: retry.GaveUp, Run: "r1", Step: "fetch", Attempt: 3, Reason: retry.StopAttempts},
			notify.GaveUp, "nightly gave up", "step fetch: 3 attempts",
		},
		{
			"a run gave up", retry.Event{Kind: retry.GaveUp, Run: "r1", Reason: retry.StopTimeout, Err: failed},
			notify.DeadLetter, "nightly gave up", "timeout of the run reached; last: exit code 1: API Error: overloaded",
		},
		{
			"a wait", retry.Event{Kind: retry.Waiting, Attempt: 2, Attempts: 6, Delay: 3*time.Hour + 20*time.Minute, Until: at.Add(200 * time.Minute), By: retry.ByServer, Err: failed},
			notify.Waiting, "nightly waits 3h20m", "until 18:24 UTC, as the server asked\nattempt 2 of 6 failed\nlast: exit code 1: API Error: overloaded",
		},
		{
			"a wait of a run that was retried", retry.Event{Kind: retry.Waiting, Attempt: 7, Attempts: 6, Delay: time.Hour, Until: at.Add(time.Hour)},
			notify.Waiting, "nightly waits 1h", "until 16:04 UTC\nattempt 7 failed",
		},
		{
			"a wait into another day", retry.Event{Kind: retry.Waiting, Attempt: 2, Attempts: retry.Unlimited, Delay: 52 * time.Hour, Until: at.Add(52 * time.Hour)},
			notify.Waiting, "nightly waits 2d4h", "until Sun 4 Jan 19:04 UTC\nattempt 2 failed",
		},
		{"resumed", retry.Event{Kind: retry.Resumed, Run: "r1", Note: "alice"}, notify.Resumed, "nightly continues", "resumed by alice"},
		{"a workflow is resumed", retry.Event{Kind: retry.Resumed, Note: "workflow nightly, by ann"}, notify.Resumed, "nightly continues", "resumed: workflow nightly, by ann"},
		{"a schedule is resumed", retry.Event{Kind: retry.Resumed, Note: "schedule daily, by ann"}, notify.Resumed, "nightly continues", "resumed: schedule daily, by ann"},
		{"resumed without a name", retry.Event{Kind: retry.Resumed}, notify.Resumed, "nightly continues", "resumed"},
		{"a breaker opens", retry.Event{Kind: retry.BreakerOpened, Delay: 30 * time.Second}, notify.BreakerOpen, "nightly is failing", "the breaker is open: no requests are sent for 30s"},
		{"a breaker closes", retry.Event{Kind: retry.BreakerClosed}, notify.Recovered, "nightly works again", "the breaker is closed"},
		{"a storm begins", retry.Event{Kind: retry.StormBegan, Note: "workflow nightly: 3.0 attempts for each first one"}, notify.Storm, "nightly: retry storm", "workflow nightly: 3.0 attempts for each first one"},
		{
			"a scheduled start is refused", retry.Event{Kind: retry.StartRefused, Note: "schedule nightly", Err: errors.New("input: no key")},
			notify.StartRefused, "nightly: a scheduled start was refused", "schedule nightly\ninput: no key",
		},
		{
			"a run asks", retry.Event{Kind: retry.Asked, Run: "r1", Step: "deploy", Note: "Deploy 1.2\nto all? (approve, reject)", Until: at.Add(200 * time.Minute)},
			notify.Asked, "nightly asks a question", "Deploy 1.2 to all? (approve, reject)\nto be answered until 18:24 UTC",
		},
		{"a run asks without a deadline", retry.Event{Kind: retry.Asked, Run: "r1", Step: "deploy", Note: "Now? (yes, no)"}, notify.Asked, "nightly asks a question", "Now? (yes, no)"},
		{"a storm ends", retry.Event{Kind: retry.StormEnded, Note: "calm"}, notify.Recovered, "nightly: the retry storm is over", "calm"},
		{"succeeded", retry.Event{Kind: retry.Succeeded, Attempt: 1, Elapsed: 90 * time.Second}, notify.Succeeded, "nightly succeeded", "it took 1m30s"},
		{"recovered", retry.Event{Kind: retry.Succeeded, Attempt: 3, Elapsed: 90 * time.Second}, notify.Recovered, "nightly works again", "attempt 3 succeeded after 1m30s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.e.Name, c.e.Time = "nightly", at
			m, ok := notify.Compose(c.e, here)
			if !ok || m.Event != c.event || m.Title != c.title || m.Text != c.text {
				t.Errorf("Compose = %v\n%s: %s\n%s\nwant\n%s: %s\n%s", ok, m.Event, m.Title, m.Text, c.event, c.title, c.text)
			}
			if want := map[bool]string{true: "http://127.0.0.1:7878/runs/r1"}[c.e.Run != ""]; m.URL != want || m.Subject != "nightly" || m.Host != "box" {
				t.Errorf("URL %q, subject %q, host %q", m.URL, m.Subject, m.Host)
			}
			if strings.Count(m.Text, "\n") > 2 {
				t.Errorf("more than three lines: %q", m.Text)
			}
		})
	}
}

func TestNobodyIsToldOfTheRest(t *testing.T) {
	for kind := retry.AttemptStarted; kind <= retry.NeedsHandler; kind++ {
		if slices.Contains([]retry.EventKind{retry.GaveUp, retry.Waiting, retry.Resumed, retry.BreakerOpened, retry.BreakerClosed}, kind) {
			continue
		}
		if m, ok := notify.Compose(retry.Event{Kind: kind, Step: "a", Attempt: 1}, here); ok {
			t.Errorf("Compose(%v) = %+v", kind, m)
		}
	}
}

func TestTheSameEventIsTheSameMessage(t *testing.T) {
	e := retry.Event{Kind: retry.GaveUp, Time: at, Name: "a", Run: "r", Attempt: 1}
	first, _ := notify.Compose(e, here)
	again, _ := notify.Compose(e, notify.Place{})
	e.Attempt = 2
	other, _ := notify.Compose(e, here)
	if first.ID != again.ID || first.ID == other.ID || len(first.ID) != 32 {
		t.Errorf("ids %q, %q and %q", first.ID, again.ID, other.ID)
	}
}

func TestALongErrorIsCut(t *testing.T) {
	m, _ := notify.Compose(retry.Event{Kind: retry.GaveUp, Name: strings.Repeat("n", 9999), Attempt: 1, Err: errors.New(strings.Repeat("é\xff\n", 99_999))}, here)
	if n := len([]rune(m.Title + m.Text)); n > 1000 || !strings.HasSuffix(m.Line, "…") {
		t.Errorf("%d characters", n)
	}
}

func TestWants(t *testing.T) {
	on := func(words ...string) (list []notify.Trigger) {
		for _, w := range words {
			trigger, err := notify.ParseTrigger(w)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, trigger)
		}
		return list
	}
	wait := notify.Message{Event: notify.Waiting, Wait: 30 * time.Minute}
	for _, c := range []struct {
		name string
		on   []notify.Trigger
		m    notify.Message
		want bool
	}{
		{"the event", on("resumed", "gave-up"), notify.Message{Event: notify.GaveUp}, true},
		{"another event", on("resumed"), notify.Message{Event: notify.GaveUp}, false},
		{"any wait", on("waiting"), wait, true},
		{"a wait that is not longer", on("waiting>30m"), wait, false},
		{"a wait that is longer", on("waiting>29m"), wait, true},
		{"a wait without an end", on("waiting>30m"), notify.Message{Event: notify.Waiting}, true},
		{"one of two", on("waiting>1h", "waiting>1m"), wait, true},
		{"a test", nil, notify.Message{Event: notify.Test}, true},
	} {
		if got := notify.Wants(c.on, c.m); got != c.want {
			t.Errorf("%s: Wants(%v, %v) = %v", c.name, c.on, c.m.Event, got)
		}
	}
}

// A command that succeeds after failures has one message, for notifiers on recovered and on succeeded.
func TestSuccessAfterFailures(t *testing.T) {
	for _, c := range []struct {
		name               string
		e                  retry.Event
		recovered, success bool
	}{
		{"a command, at once", retry.Event{Kind: retry.Succeeded, Attempt: 1}, false, true},
		{"a command, after failures", retry.Event{Kind: retry.Succeeded, Attempt: 3}, true, true},
		{"a step, after failures", retry.Event{Kind: retry.Succeeded, Run: "r", Step: "a", Attempt: 3}, true, false},
		{"a run", retry.Event{Kind: retry.Succeeded, Run: "r"}, false, true},
	} {
		m, ok := notify.Compose(c.e, here)
		for on, want := range map[notify.Event]bool{notify.Recovered: c.recovered, notify.Succeeded: c.success} {
			if got := ok && notify.Wants([]notify.Trigger{{Event: string(on)}}, m); got != want {
				t.Errorf("%s: a notifier on %s sends it: %v, want %v", c.name, on, got, want)
			}
		}
	}
}

func TestALimitOnAScreenIsToldAsOneMessage(t *testing.T) {
	e := retry.Event{Kind: retry.Progressed, Time: at, Name: "todo", Step: "todo", Run: "r", Attempt: 3, Attempts: 6}
	limit := notify.ScreenLimit{Line: "You've hit your limit · resets 3pm", Until: at.Add(90 * time.Minute), At: at}
	m := notify.ComposeLimit(e, limit, here)
	if m.Event != notify.Waiting || m.Title != "todo has reached a limit" || m.Wait != 90*time.Minute || m.Line != limit.Line || m.Attempt != 0 ||
		!strings.HasPrefix(m.Text, "until ") || !strings.HasSuffix(m.Text, "; the session is interactive and still open\nit says: "+limit.Line) {
		t.Errorf("the message is %+v", m)
	}
	e.Time = at.Add(time.Minute)
	if again := notify.ComposeLimit(e, limit, here); again.ID != m.ID {
		t.Errorf("the message of the same limit has another id: %+v", again)
	}
	final, endless := limit, limit
	final.Final, endless.Until = true, time.Time{}
	for text, l := range map[string]notify.ScreenLimit{"waiting does not help; ": final, "no end is stated; ": endless} {
		if m := notify.ComposeLimit(e, l, here); !strings.HasPrefix(m.Text, text) || m.Wait != 0 {
			t.Errorf("the message is %+v, want %q", m, text)
		}
	}
	limit.Typed = at.Add(2 * time.Hour)
	if typed := notify.ComposeLimit(e, limit, here); typed.Event != notify.Resumed || typed.ID == m.ID || !strings.Contains(typed.Text, "was typed") {
		t.Errorf("the message is %+v", typed)
	}
}

func TestTheTestMessageSaysWhatItIs(t *testing.T) {
	m := notify.TestMessage("phone", at, here)
	if m.Event != notify.Test || m.ID == "" || !strings.Contains(m.Title, "phone") || m.Text == "" {
		t.Errorf("TestMessage = %+v", m)
	}
}
