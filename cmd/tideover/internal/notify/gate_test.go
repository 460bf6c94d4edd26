package notify_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/notify"
)

func about(subject string) notify.Message {
	return notify.Message{Event: notify.GaveUp, Subject: subject, Text: "text"}
}

func newGate(t testing.TB, atMost string, dedupe time.Duration) *notify.Gate {
	t.Helper()
	n := &notify.Spec{Dedupe: dedupe}
	if atMost != "" {
		var err error
		if n.AtMost, err = notify.ParseRate(atMost); err != nil {
			t.Fatal(err)
		}
	}
	return notify.NewGate(n)
}

func TestGate(t *testing.T) {
	dead := func(run string) notify.Message {
		return notify.Message{Event: notify.DeadLetter, Subject: "a", Run: run, Text: "text"}
	}
	step := dead("1")
	step.Event = notify.GaveUp
	type call struct {
		after time.Duration // since the call before
		m     notify.Message
		held  notify.Held
		text  string // text of the message if it is sent
	}
	for _, c := range []struct {
		name   string
		atMost string
		dedupe time.Duration
		calls  []call
	}{
		{"no limits", "", 0, []call{{0, about("a"), notify.NotHeld, "text"}, {0, about("a"), notify.NotHeld, "text"}}},
		{"the same again", "", 10 * time.Minute, []call{
			{0, about("a"), notify.NotHeld, "text"},
			{time.Minute, about("a"), notify.Duplicate, ""},
			{0, about("a"), notify.Duplicate, ""},
			{0, about("b"), notify.NotHeld, "text\nand 2 more since 15:05"},
			{9 * time.Minute, about("a"), notify.NotHeld, "text"},
		}},
		{"another event", "", time.Hour, []call{
			{0, about("a"), notify.NotHeld, "text"},
			{0, notify.Message{Event: notify.Resumed, Subject: "a", Text: "text"}, notify.NotHeld, "text"},
		}},
		{"too many", "2/h", 0, []call{
			{0, about("a"), notify.NotHeld, "text"},
			{30 * time.Minute, about("b"), notify.NotHeld, "text"},
			{29 * time.Minute, about("c"), notify.TooMany, ""},
			{time.Minute, about("d"), notify.NotHeld, "text\nand 1 more since 16:03"},
			{29 * time.Minute, about("e"), notify.TooMany, ""},
			{time.Minute, about("f"), notify.NotHeld, "text\nand 1 more since 16:33"},
		}},
		{"a test", "1/h", time.Hour, []call{
			{0, about("a"), notify.NotHeld, "text"},
			{0, notify.Message{Event: notify.Test, Text: "t"}, notify.NotHeld, "t"},
			{0, notify.Message{Event: notify.Test, Text: "t"}, notify.NotHeld, "t"},
		}},
		{"a run's dead letter after its step", "", time.Hour, []call{
			{0, step, notify.NotHeld, "text"},
			{0, dead("1"), notify.Duplicate, ""},
			{0, about("b"), notify.NotHeld, "text"}, // the text does not count the message before: it was about the same end of a run
			{0, dead("2"), notify.Duplicate, ""},
			{0, about("c"), notify.NotHeld, "text\nand 1 more since 15:04"},
		}},
		{"a run's dead letter after its step, with any dedupe", "", 0, []call{
			{0, step, notify.NotHeld, "text"},
			{time.Second, dead("1"), notify.Duplicate, ""},
			{0, about("b"), notify.NotHeld, "text"},
			{0, dead("2"), notify.NotHeld, "text"},
			{time.Second, dead("1"), notify.NotHeld, "text"}, // the run was retried and ended again, without a step that gave up
		}},
		{"a run's dead letter before its step", "", 0, []call{
			{0, dead("1"), notify.NotHeld, "text"}, {time.Second, step, notify.Duplicate, ""}, {0, step, notify.NotHeld, "text"},
		}},
		{"a dead letter long after", "", 0, []call{{0, step, notify.NotHeld, "text"}, {2 * time.Hour, dead("1"), notify.NotHeld, "text"}}},
		{"a run whose messages were all dropped counts once", "1/h", 0, []call{
			{0, about("a"), notify.NotHeld, "text"},
			{0, step, notify.TooMany, ""},
			{0, dead("1"), notify.Duplicate, ""},
			{time.Hour, about("b"), notify.NotHeld, "text\nand 1 more since 15:04"},
		}},
		{"the clock was put back", "1/h", time.Hour, []call{
			{0, about("a"), notify.NotHeld, "text"}, {-24 * time.Hour, about("a"), notify.NotHeld, "text"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, now := newGate(t, c.atMost, c.dedupe), at
			for i, call := range c.calls {
				now = now.Add(call.after)
				m, held := g.Admit(call.m, now)
				if held != call.held || held == notify.NotHeld && m.Text != call.text {
					t.Errorf("call %d: Admit(%s %s) = %q, %v, want %q, %v", i, call.m.Event, call.m.Subject, m.Text, held, call.text, call.held)
				}
			}
		})
	}
}

// TestTheGateKeepsItsWord sends random messages. The gate must never admit more than the
// rate in any period, nor the same message twice within the time of dedupe.
func TestTheGateKeepsItsWord(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	g, now := newGate(t, "7/m", 20*time.Second), at
	var sent []time.Time
	last := map[string]time.Time{}
	for range 5000 {
		now = now.Add(time.Duration(r.IntN(4000)) * time.Millisecond)
		subject := fmt.Sprint(r.IntN(20))
		if _, held := g.Admit(about(subject), now); held != notify.NotHeld {
			continue
		}
		sent = append(sent, now)
		if n := len(sent); n > 7 && now.Sub(sent[n-8]) < time.Minute {
			t.Fatalf("eight in %v", now.Sub(sent[n-8]))
		}
		if before, ok := last[subject]; ok && now.Sub(before) < 20*time.Second {
			t.Fatalf("%s twice in %v", subject, now.Sub(before))
		}
		last[subject] = now
	}
}

func TestTheGateForgets(t *testing.T) {
	g := newGate(t, "", time.Hour)
	for i := range 1100 {
		if _, held := g.Admit(about(fmt.Sprint(i)), at.Add(time.Duration(i))); held != notify.NotHeld {
			t.Fatalf("message %d is held back: %v", i, held)
		}
	}
	if n := g.Remembered(); n > 1024 {
		t.Errorf("it remembers %d", n)
	}
	if _, held := g.Admit(about("1099"), at.Add(time.Minute)); held != notify.Duplicate {
		t.Errorf("it has forgotten the newest: %v", held)
	}
}

func TestTheGateForgetsRuns(t *testing.T) {
	g := newGate(t, "", 0)
	m := about("a")
	for i := range 1100 {
		m.Run = fmt.Sprint(i)
		if _, held := g.Admit(m, at.Add(time.Duration(i))); held != notify.NotHeld {
			t.Fatalf("message %d is held back: %v", i, held)
		}
	}
	if n := g.Remembered(); n > 1024 {
		t.Errorf("it remembers %d", n)
	}
	m.Event = notify.DeadLetter
	if _, held := g.Admit(m, at.Add(time.Minute)); held != notify.Duplicate {
		t.Errorf("it has forgotten the newest: %v", held)
	}
}

func BenchmarkGate(b *testing.B) {
	g := newGate(b, "5/h", 10*time.Minute)
	for i := 0; b.Loop(); i++ {
		g.Admit(about("a"), at.Add(time.Duration(i)*time.Millisecond))
	}
}

func TestEachQuestionIsSent(t *testing.T) {
	g := notify.NewGate(&notify.Spec{Dedupe: time.Hour})
	ask := notify.Message{Event: notify.Asked, Subject: "deploy", Run: "r1", Step: "a"}
	other, second := ask, ask
	other.Run, second.Step = "r2", "b"
	for _, m := range []notify.Message{ask, other, second} {
		if _, held := g.Admit(m, at); held != notify.NotHeld {
			t.Errorf("%+v: %v", m, held)
		}
	}
	if _, held := g.Admit(ask, at.Add(time.Minute)); held != notify.Duplicate {
		t.Errorf("the same question again: %v", held)
	}
}
