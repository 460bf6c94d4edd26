// Package describe makes the values of package info from runs of the state machine, and from rows of the view.
package describe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/retry"
)

// Run returns a description of the run.
func Run(r *machine.Run) *info.Info {
	row := shortRow(r)
	i := new(Summary(&row))
	i.Source, i.Deadline, i.Input, i.Output = r.Source(), Pointer(r.Deadline), r.Input, r.Result()
	i.ReplayOf, i.Parent = r.Previous().String(), r.Parent().Run.String()
	i.Origin, i.OriginKey = OriginOf(r)
	if r.IsFlow() {
		describeFlow(i, r)
		return i
	}
	i.Steps = make([]info.StepInfo, len(r.Steps))
	for k := range r.Steps {
		i.Steps[k] = describeStep(r, k)
	}
	for rec := range r.Records() {
		addRecord(i, r, &rec, &i.Steps[min(rec.Step, len(i.Steps)-1)])
	}
	if i.Omitted > 0 {
		for k := range i.Steps {
			countOmitted(&i.Steps[k], int(r.Steps[k].Attempt))
		}
	}
	return i
}

// OriginOf returns the id and the key of the run's origin (see [machine.Origin]). Both
// are "" if the run repeats no other.
func OriginOf(r *machine.Run) (id, key string) {
	if r.Previous().IsZero() {
		return "", ""
	}
	origin, key, _ := machine.Origin(r)
	return origin.String(), key
}

func describeStep(r *machine.Run, k int) info.StepInfo {
	d, s := r.StepDef(k), r.Step(k)
	i := info.StepInfo{
		Name: d.Name, Needs: d.Needs, Policy: d.Policy.String(), Handler: d.Handler, Status: stepStatus(r, k),
		Spent: int(s.Spent), Lost: int(s.Lost), MaxLost: d.MaxLost, Quarantine: quarantineText(r, k), Windows: int(s.Windows), MaxWindows: cmp.Or(d.Windows, machine.DefaultWindows), Output: r.Output(k), Progress: r.Progress(k),
	}
	if s.Status == machine.Waiting && r.Outcome == machine.Undecided && !r.Held {
		i.Next = Pointer(s.At)
	}
	return i
}

// stepStatus returns the status of a step as it is shown. A step that was waiting when its
// run ended is shown as failed if the run timed out, and as canceled if another step failed
// or a caller canceled the run.
func stepStatus(r *machine.Run, k int) string {
	s := r.Step(k).Status
	if r.IsFlow() && k > 0 && s == machine.Blocked {
		s = machine.Waiting // for a signal
	}
	if s != machine.Waiting || r.Outcome == machine.Undecided {
		return s.String()
	}
	if r.Outcome == machine.Dead && r.Reason == retry.StopTimeout {
		return machine.Exhausted.String()
	}
	return machine.Canceled.String()
}

// quarantineText returns what a step with lost attempts waits for, or how it runs; "" if it
// has no lost attempts.
func quarantineText(r *machine.Run, step int) string {
	s := r.Step(step)
	if s.Lost == 0 || r.Outcome != machine.Undecided {
		return ""
	}
	died := "the process died in the last attempt"
	if s.Lost > 1 {
		died = fmt.Sprintf("the process died in the last %d attempts", s.Lost)
	}
	alone := machine.NeedsIsolation(r, step)
	switch {
	case s.Status == machine.Running && alone:
		return died + ": while this one is new, no other attempt begins in its process"
	case s.Status != machine.Waiting:
		return ""
	case !r.InQueue(step):
		return died + ": the next one begins after a delay"
	case alone:
		return died + ": the next one begins when no other attempt runs in its process"
	}
	return died + ": the next one begins when few attempts run that were lost before"
}

// addRecord adds a record of the history to the attempts of its step, or to the notes.
func addRecord(i *info.Info, r *machine.Run, rec *machine.Record, s *info.StepInfo) {
	note := info.Note{At: time.Unix(0, rec.At), What: rec.Kind.String(), Text: rec.Text}
	switch rec.Kind {
	case machine.Begun:
		s.Attempts = append(s.Attempts, info.AttemptInfo{Number: rec.Attempt, Started: note.At, Outcome: "running", Alone: rec.Isolation() > 0})
		return
	case machine.Done, machine.Failed, machine.Snoozed, machine.Limited, machine.Lost, machine.Released, machine.Late:
		endAttempt(s, rec)
		return
	case machine.Postponed, machine.Woken:
		if n := len(s.Attempts); n > 0 && s.Attempts[n-1].Wait != nil {
			moveWait(s.Attempts[n-1].Wait, rec)
			return
		}
		if note.Step = s.Name; rec.Kind == machine.Woken {
			note.What = "started now"
		}
	case machine.Omitted:
		i.Omitted += rec.Omitted()
		return
	case machine.Parked, machine.Unparked:
		note.Step = s.Name
	case machine.Started:
		note.Text = r.Source()
	case machine.Described, machine.ChildEnded, machine.ParentTold, machine.Adopted: // fields of the run and of its operations
		return
	case machine.Signaled:
		note.What, note.Text = "signal", SignalNote(rec)
	default:
	}
	i.Notes = append(i.Notes, note)
}

// endAttempt adds the end of an attempt.
func endAttempt(s *info.StepInfo, rec *machine.Record) {
	at := time.Unix(0, rec.At)
	a := attemptOf(s, rec.Attempt, at)
	a.Ended, a.Outcome, a.Error = &at, outcomes[rec.Kind], rec.Text
	if rec.Reason != 0 {
		a.Reason = rec.Reason.String()
	} else if rec.Kind == machine.Lost && rec.Delay > 0 || rec.Kind == machine.Failed || rec.Kind == machine.Snoozed || rec.Kind == machine.Limited {
		a.Wait = &info.WaitInfo{Delay: rec.Delay, Until: time.Unix(0, rec.Due), By: rec.By.String()}
	}
}

// moveWait changes a wait that a user has moved or ended.
func moveWait(w *info.WaitInfo, rec *machine.Record) {
	if rec.Kind == machine.Woken {
		w.Woken, w.Until = rec.Text, time.Unix(0, rec.At)
		return
	}
	w.Moved, w.Until = rec.Text, time.Unix(0, rec.Due)
}

var outcomes = map[machine.Kind]string{
	machine.Done: "succeeded", machine.Failed: "failed", machine.Snoozed: "snoozed",
	machine.Limited: "limited", machine.Lost: "lost", machine.Released: "released", machine.Late: "late",
}

// attemptOf returns the attempt with this number. It adds the attempt if the history does not
// have its beginning any more.
func attemptOf(s *info.StepInfo, number int, at time.Time) *info.AttemptInfo {
	if n := len(s.Attempts); n > 0 && s.Attempts[n-1].Number == number {
		return &s.Attempts[n-1]
	}
	s.Attempts = append(s.Attempts, info.AttemptInfo{Number: number, Started: at})
	return &s.Attempts[len(s.Attempts)-1]
}

// countOmitted sets how many attempts are not listed, in all and before each listed one.
// made is the number of attempts of the step. It first removes the attempts whose end is
// not in the history any more, because their outcome is unknown.
func countOmitted(s *info.StepInfo, made int) {
	s.Attempts = slices.DeleteFunc(s.Attempts, func(a info.AttemptInfo) bool {
		return a.Outcome == "running" && (a.Number != made || s.Status != machine.Running.String())
	})
	s.Omitted = max(made-len(s.Attempts), 0)
	last := 0
	for k := range s.Attempts {
		a := &s.Attempts[k]
		a.Omitted = max(a.Number-last-1, 0)
		last = a.Number
	}
}

func Pointer(ns int64) *time.Time { return nonZero(moment(ns)) }

// nonZero returns a pointer to the time; nil for the zero time.
func nonZero(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t) // so that t itself does not escape
}

// moment returns the time of Unix nanoseconds; the zero time for 0.
func moment(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// QuestionOf returns the question that the record of a call asks.
func QuestionOf(rec *machine.Record) (q info.Question, ok bool) {
	text := rec.Question()
	return q, text != nil && json.Unmarshal(text, &q) == nil
}

// SignalNote returns the text of a record of kind Signaled as it is shown.
func SignalNote(rec *machine.Record) string {
	name, _, by := rec.Signal()
	if question, ok := strings.CutPrefix(name, machine.AskKind+":"); ok {
		return question + " answered by " + by
	}
	if by != "" {
		name += " from " + by
	}
	return name
}

// Row returns the run as it is written to the view.
func Row(r *machine.Run) view.Run {
	v := shortRow(r)
	if v.Input = r.Input; len(r.Result()) <= preview {
		v.Output = r.Result()
	}
	if r.Finished() { // the details of other runs are read from memory
		v.Detail = machine.EncodeWithout(r, nil)
	}
	return v
}

// shortRow is Row without the input, the output and the details.
func shortRow(r *machine.Run) view.Run {
	v := view.Run{
		ID: r.ID.String(), Workflow: r.Def.Name, Key: r.Key, State: r.State().String(),
		Created: time.Unix(0, r.Created), Ended: moment(r.Ended), Next: moment(r.Next()),
		Attempts: r.Attempts(), ReplacedBy: r.ReplacedBy().String(),
	}
	if r.Outcome == machine.Dead {
		v.Reason = r.Reason.String()
	}
	v.Step, v.Error, v.Updated = machine.Situation(r)
	v.Status, v.Tags = r.Flow().Status(), machine.DecodeTags(r.Flow().Tags())
	if machine.Asks(r) {
		if v.Tags == nil {
			v.Tags = map[string]string{}
		}
		v.Tags[AskingName] = "open"
	}
	return v
}

const preview = 256

// AskingName is the name of the tag, in the view, of runs that wait for the answer to a question. No
// function can set it.
const AskingName = "?"

var asking = view.Tag(AskingName, "open")

// tagsOf returns the tags that the runs must have.
func tagsOf(f *info.Filter) []string {
	if !f.Asking {
		return f.Tags
	}
	return append(slices.Clone(f.Tags), asking)
}

// ViewFilter returns the filter for the view.
func ViewFilter(f *info.Filter) view.Filter {
	return view.Filter{
		States: f.States, Workflow: f.Workflow, Exclude: f.Exclude, Search: f.Search, Error: f.ErrorLike, Since: f.Since, Until: f.Until,
		MinAttempts: f.MinAttempts, Tags: tagsOf(f), After: f.After, Limit: f.Limit,
		Order: view.Order(f.Order),
	}
}

// Matches reports whether a run passes the filter. It is for engines without a view.
func Matches(f *info.Filter, r *view.Run) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, r.State)) && (f.Workflow == "" || f.Workflow == r.Workflow) &&
		!view.Like(f.Exclude, r.Workflow) && r.Attempts >= f.MinAttempts && (f.Since.IsZero() || !r.Created.Before(f.Since)) && (f.Until.IsZero() || r.Created.Before(f.Until)) &&
		!slices.ContainsFunc(tagsOf(f), func(tag string) bool { return !hasTag(r, tag) }) &&
		(f.Search == "" || strings.Contains(searchText(r), f.Search))
}

// hasTag reports whether the run has a tag, written as name=value.
func hasTag(r *view.Run, tag string) bool {
	name, _, _ := strings.Cut(tag, "=")
	got, ok := r.Tags[name]
	return ok && view.Tag(name, got) == tag
}

// searchText returns the texts in which a search looks.
func searchText(r *view.Run) string {
	texts := []string{r.ID, r.Key, r.Workflow, r.Error, r.Status, string(r.Input)}
	return strings.Join(slices.AppendSeq(texts, maps.Values(r.Tags)), "\n")
}

// Summary returns a run as it is shown in lists.
func Summary(r *view.Run) info.Info {
	i := info.Info{
		ID: r.ID, Workflow: r.Workflow, Key: r.Key, State: r.State, Created: r.Created, Updated: r.Updated,
		Ended: nonZero(r.Ended), Next: nonZero(r.Next), Attempts: r.Attempts,
		Step: r.Step, Error: r.Error, Reason: r.Reason, ReplacedBy: r.ReplacedBy,
		InputPreview: string(r.Input), OutputPreview: string(r.Output), Status: r.Status, Tags: r.Tags,
	}
	if _, i.Asking = r.Tags[AskingName]; i.Asking {
		i.Tags = maps.Clone(r.Tags)
		delete(i.Tags, AskingName)
	}
	if i.State == info.StateSucceeded { // it ended because another run continues its work
		i.ContinuedBy, i.ReplacedBy = i.ReplacedBy, ""
	}
	return i
}
