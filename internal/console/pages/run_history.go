package pages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

const (
	shownEntries = 100 // entries of the history that the page of a run shows, unless it shows all: the last ones
	entryText    = 140 // characters of a text in an entry
)

// historyEntry is a line of the history of a run.
type historyEntry struct {
	At     time.Time
	Step   string // the step or operation; "" for the run as a whole
	What   string // what has happened, in a few words
	Text   string // the rest of the line; "" for none
	Failed bool
}

// newHistory returns what has happened to a run, in order of time: the notes of the run, every attempt
// with the wait after it, the operations without attempts, and the end. function is nil for a run with
// steps. An item of a map has no entry if its first attempt has succeeded.
func newHistory(i *engine.Info, function *engine.StepInfo, ops []control.Operation) []historyEntry {
	h := &history{run: i, inFile: len(i.Declared) > 0}
	undone := func(n engine.Note) bool { return n.What == "undone" } // follows the undos that ended at the same time
	for _, n := range i.Notes {
		if !undone(n) {
			h.addNote(n)
		}
	}
	if function != nil {
		for k := range ops {
			h.addOperation(&ops[k], false)
		}
		h.addAttempts(function, h.functionName()) // ends at the same time as its last operation
	} else {
		for k := range i.Steps {
			h.addAttempts(&i.Steps[k], i.Steps[k].Name)
		}
	}
	for _, n := range slices.DeleteFunc(slices.Clone(i.Notes), func(n engine.Note) bool { return !undone(n) }) {
		h.addNote(n)
	}
	slices.SortStableFunc(h.list, func(a, b historyEntry) int { return a.At.Compare(b.At) })
	h.addEnd()
	return h.list
}

// history collects the entries of the history of a run.
type history struct {
	run    *engine.Info
	inFile bool // the operations are steps of the file
	list   []historyEntry
}

func (h *history) add(at time.Time, step, what, text string) *historyEntry {
	h.list = append(h.list, historyEntry{At: at, Step: step, What: what, Text: text})
	return &h.list[len(h.list)-1]
}

// functionName returns the name of the function of a flow. The author of a workflow of the file has
// written no function.
func (h *history) functionName() string {
	if h.inFile {
		return "execution of the steps"
	}
	return "function"
}

// addNote adds a note of the run, unless the end of an operation has its content.
func (h *history) addNote(n engine.Note) {
	switch n.What {
	case "no-signal":
		return
	case "signal":
		if slices.ContainsFunc(h.run.Steps, func(s engine.StepInfo) bool {
			return s.Question != nil && strings.HasPrefix(n.Text, s.Name+" answered by ")
		}) {
			return
		}
	case "started":
		n.What = "created"
	}
	what := control.StateText(n.What)
	switch {
	case n.Text == "":
	case slices.Contains(byActor, n.What):
		n.Text = "by " + n.Text
	default:
		what += ":"
	}
	if n.Step == "function" {
		n.Step = h.functionName()
	}
	h.add(n.At, n.Step, what, n.Text)
}

// byActor has the notes whose text is the name of who has done it.
var byActor = []string{"created", "canceled", "retried", "replaced", "paused", "resumed", "postponed", "reset", "started now"}

// addOperation adds the attempts of an operation. One without attempts has an entry for its begin and
// one for its end.
func (h *history) addOperation(o *control.Operation, isItem bool) {
	label := o.Label
	if o.Kind == "undo" {
		label = "undo of " + label
	}
	if !isItem || o.Status != "succeeded" || len(o.Attempts) > 1 {
		h.addAttempts(o.StepInfo, label)
		if o.Called != nil {
			h.addBegin(o, label)
		}
		if o.Ended != nil && len(o.Attempts) == 0 {
			h.addEndOf(o, label)
		}
	}
	var last time.Time
	for k := range o.Items {
		h.addOperation(&o.Items[k], true)
		if end := o.Items[k].Ended; end != nil && end.After(last) {
			last = *end
		}
	}
	if c := o.StepInfo.Items; c != nil && !last.IsZero() && c.Running+c.Waiting == 0 && o.Status != "running" {
		h.add(last, label, o.Status, control.CountsText(c, "item")).Failed = o.Status == "failed"
	}
}

// isInstant reports whether an operation has ended with its call.
func isInstant(o *control.Operation) bool {
	return o.Called != nil && o.Ended != nil && o.Ended.Equal(*o.Called)
}

// addBegin adds the call of an operation whose begin no attempt says.
func (h *history) addBegin(o *control.Operation, label string) {
	switch {
	case o.Question != nil:
		h.add(*o.Called, label, "asks", firstLine(o.Question.Text, entryText))
	case isInstant(o):
	case o.Kind == "await":
		h.add(*o.Called, label, "waits for a signal", "")
	case o.Kind == "sleep":
		h.add(*o.Called, label, "sleeps", "")
	case o.Child != "":
		h.add(*o.Called, label, "starts", "run "+head(o.Child))
	case o.StepInfo.Items != nil:
		h.add(*o.Called, label, "begins", textfmt.Plural(o.StepInfo.Items.Total, "item"))
	}
}

// addEndOf adds the end of an operation without attempts.
func (h *history) addEndOf(o *control.Operation, label string) {
	after := ""
	if o.Called != nil && !isInstant(o) {
		after = "after " + Exact(o.Ended.Sub(*o.Called))
	}
	answer, answered := control.AnswerOf(o.StepInfo)
	switch {
	case answered && answer.By != "":
		text := answer.Choice + ", by " + answer.By
		if answer.Words != "" {
			text += ": " + firstLine(answer.Words, entryText)
		}
		h.add(*o.Ended, label, "answered", text)
	case answered:
		h.add(*o.Ended, label, "got no answer in time", "so it is "+answer.Choice)
	case o.Status == "failed":
		h.add(*o.Ended, label, "failed", cmp.Or(firstLine(o.Error, entryText), o.Code)).Failed = true
	case o.Status == "canceled", o.Status == "skipped", o.Child != "":
		h.add(*o.Ended, label, o.Status, after)
	case o.Kind == "sleep":
		h.add(*o.Ended, label, "woke up", after)
	case o.Kind == "await":
		h.add(*o.Ended, label, "got the signal", after)
	}
}

// addAttempts adds an entry for each attempt of a step, at its end, and one for each wait that a user
// has ended.
func (h *history) addAttempts(s *engine.StepInfo, label string) {
	for k := range s.Attempts {
		a := &s.Attempts[k]
		if s.Kind == "function" && h.leavesOut(a) {
			continue
		}
		at, text := a.Started, ""
		if a.Ended != nil {
			at, text = *a.Ended, "after "+Exact(a.Ended.Sub(a.Started))
		}
		if a.Error != "" {
			text += ": " + firstLine(a.Error, entryText)
		}
		if a.Wait != nil {
			text += fmt.Sprintf("; waits %s by %s", Exact(a.Wait.Delay), WaitSetter(a.Wait.By))
			if a.Wait.Moved != "" {
				text += ", prolonged by " + a.Wait.Moved
			}
		}
		if a.Reason != "" {
			text += "; no further attempt: " + whyStopped(a.Reason, allowsOne(s))
		}
		e := h.add(at, label, fmt.Sprintf("attempt %d %s", a.Number, strings.ReplaceAll(a.Outcome, "-", " ")), text)
		e.Failed = a.Outcome == "failed" || a.Outcome == "lost"
		if a.Wait != nil && a.Wait.Woken != "" {
			h.add(a.Wait.Until, label, "wait ended early", "by "+a.Wait.Woken)
		}
	}
}

// leavesOut reports whether a call of the function needs no entry: it ended because the function waits
// for operations, or it is one of a workflow of the file and did what its steps say.
func (h *history) leavesOut(a *engine.AttemptInfo) bool {
	return a.Outcome == "suspended" || h.inFile && !isTrouble(a)
}

// isTrouble reports whether a call of a function was lost or failed, and was repeated.
func isTrouble(a *engine.AttemptInfo) bool {
	return a.Outcome == "lost" || a.Outcome == "failed" && a.Wait != nil
}

// addEnd adds the end of the run, unless a note says it.
func (h *history) addEnd() {
	i := h.run
	e := historyEntry{What: "run " + i.State}
	switch i.State {
	case engine.StateSucceeded:
		if i.ContinuedBy != "" {
			e.Text = "run " + head(i.ContinuedBy) + " continues it"
		}
	case engine.StateDead, engine.StateReplaced:
		e.What, e.Text, e.Failed = "run gave up", whyDead(i), true
		if h.inFile && i.Error != "" { // it may be that of the function
			e.Text += ": " + firstLine(i.Error, entryText)
		}
	case engine.StateCanceled:
		if slices.ContainsFunc(i.Notes, func(n engine.Note) bool { return n.What == "canceled" }) {
			return
		}
	}
	if i.Ended == nil {
		return
	}
	e.At = *i.Ended
	at := len(h.list)
	for at > 0 && h.list[at-1].At.After(e.At) { // a dead run was replaced later
		at--
	}
	h.list = slices.Insert(h.list, at, e)
}
