package control

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// Event is an event of the engine with a sentence that describes it.
type Event struct {
	Seq     uint64 // number in the stream of all events; 0 for an event of the history of a run
	Message string
	Member  string // the cluster member in which it happened; empty for this process
	retry.Event
}

type eventExtra struct {
	Seq     uint64 `json:"seq,omitempty"`
	Message string `json:"message"`
	Member  string `json:"member,omitempty"`
}

// MarshalJSON adds the fields of this type to the JSON form of the event.
func (e Event) MarshalJSON() ([]byte, error) {
	more, err := json.Marshal(eventExtra{e.Seq, e.Message, e.Member})
	if err != nil {
		return nil, err
	}
	inner, err := json.Marshal(e.Event)
	if err != nil {
		return nil, err
	}
	more[len(more)-1] = ','
	return append(more, inner[1:]...), nil
}

// UnmarshalJSON decodes the form that MarshalJSON encodes.
func (e *Event) UnmarshalJSON(data []byte) error {
	var more eventExtra
	if err := json.Unmarshal(data, &more); err != nil {
		return err
	}
	e.Seq, e.Message, e.Member = more.Seq, more.Message, more.Member
	return json.Unmarshal(data, &e.Event)
}

// Kinds returns the names of all kinds of events that the engine sends.
func Kinds() (names []string) {
	for k := retry.AttemptStarted; k <= retry.NeedsHandler; k++ {
		names = append(names, k.String())
	}
	return append(names, retry.Paused.String(), retry.StartRefused.String(), retry.Signaled.String(), retry.Asked.String(), retry.Undoing.String())
}

// Heartbeat is the longest time that a server sends nothing on an open event stream.
const Heartbeat = 15 * time.Second

// Missed is a message in an event stream: the reader did not receive all events.
type Missed struct {
	Count uint64 `json:"missed"` // number of events; 0 means unknown, since the server was restarted
	Why   string `json:"why"`
}

// IsAboutNoRun reports whether an event [retry.Paused] or [retry.Resumed] is about a schedule or a
// workflow, not about a run. Its Note says which, and who has caused it.
func IsAboutNoRun(e *retry.Event) bool {
	return e.Run == "" && (strings.HasPrefix(e.Note, "schedule ") || strings.HasPrefix(e.Note, "workflow "))
}

// Describe returns a sentence about the event. number is the number of the retry that follows a
// failed attempt, for an event of the kind [retry.Waiting]; 0 means unknown.
func Describe(e *retry.Event, number int) string {
	switch e.Kind {
	case retry.AttemptStarted, retry.AttemptFailed, retry.AttemptLost, retry.Progressed, retry.Succeeded:
		return describeAttempt(e)
	case retry.RunStarted:
		return byActor("Run started", e.Note)
	case retry.Waiting:
		return describeWait(e, number)
	case retry.GaveUp:
		return describeEnd(e)
	case retry.Canceled:
		return byActor("Run canceled", e.Note)
	case retry.Resumed:
		return describeResumed(e)
	case retry.Paused:
		if IsAboutNoRun(e) {
			return "Paused: " + e.Note
		}
		return byActor("Run paused", e.Note)
	case retry.NeedsHandler:
		return "Step " + e.Step + " waits for a program that knows " + e.Note
	case retry.Signaled:
		return "Signal " + e.Note
	case retry.Asked:
		return "Asks " + e.Step + ": " + e.Note
	case retry.Undoing:
		return "Undoes its operations: " + e.Note
	case retry.StartRefused:
		return "Start by " + e.Note + " refused: " + errText(e.Err)
	default:
		return strings.ReplaceAll(e.Kind.String(), "-", " ")
	}
}

// describeAttempt is Describe for an event of an attempt, and for a run that succeeded.
func describeAttempt(e *retry.Event) string {
	what := "Attempt " + ofLimit(e.Attempt, e.Attempts)
	if e.Step != "" {
		what += " of " + e.Step
	}
	switch {
	case e.Kind == retry.AttemptStarted:
		return what + " started"
	case e.Kind == retry.AttemptLost:
		return what + " was lost: the process ended in it"
	case e.Kind == retry.Progressed:
		return what + ": " + e.Note
	case e.Kind == retry.Succeeded && e.Step == "":
		return "Run succeeded"
	case e.Kind == retry.Succeeded:
		return what + " succeeded"
	case e.Note != "":
		return what + " ended after the run: " + errText(e.Err)
	}
	if text := timedOut(errText(e.Err)); text != "" {
		return text
	}
	return what + " failed: " + errText(e.Err)
}

// describeResumed is Describe for a run, a step, or something else that was resumed.
func describeResumed(e *retry.Event) string {
	switch {
	case IsAboutNoRun(e):
		return "Resumed: " + e.Note
	case e.Step != "":
		return byActor("Wait of "+e.Step+" ended early", e.Note)
	}
	return byActor("Run resumed", e.Note)
}

func describeWait(e *retry.Event, number int) string {
	if e.Err == nil {
		text := "Next attempt of " + e.Step + " in " + e.Delay.String()
		if e.Note != "" {
			text += ": " + e.Note
		}
		return text
	}
	retrying := "Retry"
	if number > 0 {
		most := retry.Unlimited
		if e.Attempts != retry.Unlimited {
			most = e.Attempts - 1
		}
		retrying = "Retry " + ofLimit(number, most)
	}
	return retrying + " after error: " + errText(e.Err)
}

func describeEnd(e *retry.Event) string {
	who := "Run is dead"
	if e.Step != "" {
		who = "Step " + e.Step + " gave up"
	}
	text := who + ": " + e.Reason.Error()
	if e.Err != nil {
		text += "; " + errText(e.Err)
	}
	return text
}

// ofLimit returns "2/5", or "2" if there is no limit or n exceeds it. n may exceed the limit
// because attempts keep their numbering when a run is retried, and because lost attempts have a
// number but do not count against the limit.
func ofLimit(n, most int) string {
	if most == retry.Unlimited || n > most {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d/%d", n, most)
}

func byActor(what, who string) string {
	if who == "" {
		return what
	}
	return what + " by " + who
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// timedOut returns a sentence if the text of an attempt's error reports a timeout, else "". It
// searches the text because the engine stores errors only as texts, and the step may have added
// words.
func timedOut(text string) string {
	_, rest, ok := strings.Cut(text, engine.ErrTimeout.Error()+" after ")
	if !ok {
		return ""
	}
	span := rest
	if end := strings.IndexAny(rest, ": \n);,"); end >= 0 {
		span = rest[:end]
	}
	d, err := time.ParseDuration(span)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("Operation timed out after %dms", d.Milliseconds())
}

// TimeoutText returns a sentence if the run ended because of its timeout, else "".
func TimeoutText(i *engine.Info) string {
	if i.State != "dead" && i.State != "replaced" || i.Ended == nil {
		return ""
	}
	return overdue(i, *i.Ended)
}

// overdue returns a sentence with the timeout of the run if its deadline is not after the time at,
// else "". The timeout counts from the start of the run, from its last retry, or, if its start was
// delayed, from its first attempt.
func overdue(i *engine.Info, at time.Time) string {
	if i.Deadline == nil || at.Before(*i.Deadline) {
		return ""
	}
	begin := i.Created
	for _, n := range i.Notes {
		if n.What == "retried" {
			begin = n.At
		}
	}
	limit := i.Deadline.Sub(begin)
	if first := firstAttempt(i, begin); first.Sub(begin) >= time.Second && first.Before(*i.Deadline) {
		limit = i.Deadline.Sub(first).Round(10 * time.Millisecond)
	}
	return fmt.Sprintf("Operation timed out after %dms", limit.Milliseconds())
}

// firstAttempt returns the start of the run's first attempt at or after the time since. It returns
// since if there is no such attempt.
func firstAttempt(i *engine.Info, since time.Time) time.Time {
	var first time.Time
	for _, s := range i.Steps {
		for _, a := range s.Attempts {
			if !a.Started.Before(since) && (first.IsZero() || a.Started.Before(first)) {
				first = a.Started
			}
		}
	}
	return cmp.Or(first, since)
}
