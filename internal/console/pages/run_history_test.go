package pages

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/console/pagetest"
)

// historyLines returns the history of a run as lines, with the seconds since its creation.
func historyLines(i *engine.Info) string {
	function, ops, _ := control.Operations(i)
	var lines []string
	for _, e := range newHistory(i, function, ops) {
		line := fmt.Sprintf("%.0f", e.At.Sub(i.Created).Seconds())
		for _, part := range []string{e.Step, e.What, e.Text} {
			if part != "" {
				line += " " + part
			}
		}
		if e.Failed {
			line += " !"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestHistory(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	after := func(s int) *time.Time { return new(start.Add(time.Duration(s) * time.Second)) }
	try := func(number, from, to int, outcome string) engine.AttemptInfo {
		return engine.AttemptInfo{Number: number, Started: *after(from), Ended: after(to), Outcome: outcome}
	}
	failed := func(a engine.AttemptInfo, text string, wait *engine.WaitInfo) engine.AttemptInfo {
		a.Error, a.Wait = text, wait
		return a
	}
	op := func(kind, name, status string, from, to int) engine.StepInfo {
		s := engine.StepInfo{Kind: kind, Name: name, Status: status, Called: after(from)}
		if to > 0 {
			s.Ended = after(to)
		}
		return s
	}
	with := func(s engine.StepInfo, change func(*engine.StepInfo)) engine.StepInfo {
		change(&s)
		return s
	}
	created := engine.Note{At: start, What: "started", Text: "cron"}
	gaveUp := try(3, 40, 41, "failed")
	gaveUp.Error, gaveUp.Reason = "503\nretry-after: 1", "attempts"
	for _, c := range []struct {
		name, want string
		run        engine.Info
	}{
		{"steps", `0 created by cron
10 pay attempt 1 failed after 10.0 s: 429; waits 20.0 s by server, prolonged by eve !
12 paused by ada
14 resumed by bob
20 pay wait ended early by page
21 pay attempt 2 lost after 1.00 s !
41 pay attempt 3 failed after 1.00 s: 503 …; no further attempt: attempts used up !
50 retried by page
61 pay attempt 4 succeeded after 1.00 s
62 ship attempt 1 running
70 canceled by ada`, engine.Info{State: "canceled", Ended: after(70), Steps: []engine.StepInfo{
			{Name: "pay", Status: "succeeded", Attempts: []engine.AttemptInfo{
				failed(try(1, 0, 10, "failed"), "429", &engine.WaitInfo{Delay: 20 * time.Second, Until: *after(20), By: "server", Moved: "eve", Woken: "page"}),
				try(2, 20, 21, "lost"), gaveUp, try(4, 60, 61, "succeeded"),
			}},
			{Name: "ship", Status: "running", Attempts: []engine.AttemptInfo{{Number: 1, Started: *after(62), Outcome: "running"}}},
			{Name: "tell", Status: "blocked"},
		}, Notes: []engine.Note{created, {At: *after(12), What: "paused", Text: "ada"}, {At: *after(14), What: "resumed", Text: "bob"}, {At: *after(50), What: "retried", Text: "page"}, {At: *after(70), What: "canceled", Text: "ada"}}}},
		{"a run that is dead, and was replaced", `0 created by cron
5 run gave up attempts used up !
9 replaced by page`, engine.Info{State: "replaced", Ended: after(5), Reason: "attempts", Notes: []engine.Note{created, {At: *after(9), What: "replaced", Text: "page"}}}},
		{"steps of the file", `0 created by cron
1 build attempt 1 succeeded after 1.00 s
2 scan skipped
3 hosts begins 3 items
5 hosts#1 attempt 1 failed after 1.00 s: down !
5 hosts failed 3 items: 1 succeeded, 1 failed, 1 not begun !
6 execution of the steps attempt 1 lost after 1.00 s: the process died !
7 approval asks Release it?
8 paid waits for a signal
9 signal: payment[paid] from shop
9 paid got the signal after 1.00 s
12 approval answered approve, by ada: fine
20 cool-down sleeps
30 cool-down woke up after 10.0 s
31 late asks Still?
41 late got no answer in time so it is no
42 never waits for a signal
52 never failed no signal within 10s !
60 undo of build attempt 1 succeeded after 1.00 s
61 run gave up permanent failure: step "never": no signal within 10s !`, engine.Info{
			State: "dead", Ended: after(61), Reason: "permanent", Error: `step "never": no signal within 10s`,
			Declared: []engine.DeclaredOp{{Name: "build", Kind: "run"}, {Name: "scan", Kind: "run"}, {Name: "hosts", Kind: "run"}, {Name: "approval", Kind: "approve"}, {Name: "paid", Kind: "wait-for"}, {Name: "cool-down", Kind: "sleep"}, {Name: "late", Kind: "approve"}, {Name: "never", Kind: "wait-for"}, {Name: "tell", Kind: "run"}},
			Steps: []engine.StepInfo{
				{Kind: "function", Name: "function", Status: "failed", Attempts: []engine.AttemptInfo{
					failed(try(1, 5, 6, "lost"), "the process died", nil), try(2, 6, 7, "suspended"), failed(try(3, 60, 61, "failed"), `step "never": no signal within 10s`, nil),
				}},
				with(op("do", "build", "succeeded", 0, 1), func(s *engine.StepInfo) { s.Attempts = []engine.AttemptInfo{try(1, 0, 1, "succeeded")} }),
				op("skip", "scan", "skipped", 2, 2),
				with(op("map", "hosts", "failed", 3, 0), func(s *engine.StepInfo) { s.Items = &engine.OpCounts{Total: 3, Succeeded: 1, Failed: 1} }),
				with(op("item", "hosts#0", "succeeded", 3, 4), func(s *engine.StepInfo) { s.Attempts = []engine.AttemptInfo{try(1, 3, 4, "succeeded")} }),
				with(op("item", "hosts#1", "failed", 3, 5), func(s *engine.StepInfo) {
					s.Attempts = []engine.AttemptInfo{failed(try(1, 4, 5, "failed"), "down", nil)}
				}),
				with(op("ask", "approval", "succeeded", 7, 12), func(s *engine.StepInfo) {
					s.Question, s.Output = &engine.Question{Text: "Release it?"}, json.RawMessage(`{"choice":"approve","by":"ada","words":"fine"}`)
				}),
				op("await", "payment[paid]", "succeeded", 8, 9),
				op("sleep", "cool-down", "succeeded", 20, 30),
				with(op("ask", "late", "failed", 31, 41), func(s *engine.StepInfo) { s.Question = &engine.Question{Text: "Still?", Default: "no"} }),
				with(op("await", "nothing[never]", "failed", 42, 52), func(s *engine.StepInfo) { s.Error = "no signal within 10s" }),
				with(op("undo", "build", "succeeded", 59, 60), func(s *engine.StepInfo) { s.Attempts = []engine.AttemptInfo{try(1, 59, 60, "succeeded")} }),
			},
			Notes: []engine.Note{
				created, {At: *after(9), What: "signal", Text: "payment[paid] from shop"}, {At: *after(12), What: "signal", Text: "approval answered by ada: approve: fine"},
				{At: *after(41), What: "no-signal"}, {At: *after(52), What: "no-signal"},
			},
		}},
		{"code", `0 created by cron
2 fee failed too large !
3 pack starts run 01k9v3q0h2f8d7
5 pack succeeded after 2.00 s
6 function attempt 2 failed after 1.00 s: busy; waits 1.00 s by policy !
7 question waits for a signal
9 question canceled after 2.00 s
9 run canceled`, engine.Info{
			State: "canceled", Ended: after(9), Steps: []engine.StepInfo{
				{Kind: "function", Name: "function", Attempts: []engine.AttemptInfo{
					try(1, 0, 1, "suspended"), failed(try(2, 5, 6, "failed"), "busy", &engine.WaitInfo{Delay: time.Second, Until: *after(7), By: "policy"}),
				}},
				op("now", "ordered-at", "succeeded", 1, 1),
				with(op("do", "fee", "failed", 1, 2), func(s *engine.StepInfo) { s.Error = "too large" }),
				with(op("child", "pack", "succeeded", 3, 5), func(s *engine.StepInfo) { s.Child = "01k9v3q0h2f8d7w5j3m1n6p4ru" }),
				op("await", "question", "canceled", 7, 9),
			}, Notes: []engine.Note{created},
		}},
	} {
		c.run.Created = start
		if got := historyLines(&c.run); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// The page has the last entries of a long history, and all of them if it is asked.
func TestALongHistory(t *testing.T) {
	t.Parallel()
	i := &engine.Info{ID: "x", Workflow: "w", State: "running", Created: time.Now()}
	for n := range 150 {
		i.Notes = append(i.Notes, engine.Note{At: i.Created.Add(time.Duration(n) * time.Second), What: "retried", Text: fmt.Sprintf("user-%03d", n)})
	}
	body := renderRun(t, i, false, time.Now())
	pagetest.Has(t, "the page", body, "Show all: 50 earlier entries are not shown", "user-050", "user-149")
	pagetest.HasNot(t, "the page", body, "user-049")
	pagetest.Has(t, "the page of all", renderRun(t, i, true, time.Now()), "user-000")
}
