package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/retry"
)

// Info is a run as it looks from outside. Lists have the fields that summary (list.go) fills
// in: they come from the view, whose rows are made by row (view_writer.go).
type Info struct {
	ID            string          `json:"id"`
	Workflow      string          `json:"workflow"`
	Key           string          `json:"key,omitempty"`
	Source        string          `json:"source,omitempty"` // who started it
	State         string          `json:"state"`            // one of StateScheduled, StateQueued and so on
	Created       time.Time       `json:"created"`
	Updated       time.Time       `json:"updated"`
	Ended         *time.Time      `json:"ended,omitempty"`
	Deadline      *time.Time      `json:"deadline,omitempty"`
	Next          *time.Time      `json:"next,omitempty"` // end of the wait
	Attempts      int             `json:"attempts"`
	Step          string          `json:"step,omitempty"`   // the step that matters now
	Error         string          `json:"error,omitempty"`  // the last one
	Reason        string          `json:"reason,omitempty"` // why it is dead
	Input         json.RawMessage `json:"input,omitempty"`
	Output        json.RawMessage `json:"output,omitempty"`
	ReplayOf      string          `json:"replay_of,omitempty"`  // the run that it repeats
	Origin        string          `json:"origin,omitempty"`     // of a repetition: the first run of the chain
	OriginKey     string          `json:"origin_key,omitempty"` // the key of that run
	ReplacedBy    string          `json:"replaced_by,omitempty"`
	InputPreview  string          `json:"input_preview,omitempty"` // in lists
	OutputPreview string          `json:"output_preview,omitempty"`
	Steps         []StepInfo      `json:"steps,omitempty"`
	Notes         []Note          `json:"notes,omitempty"`   // what happened to the run as a whole
	Omitted       int             `json:"omitted,omitempty"` // entries of a long history that are not kept: they are neither first nor last
}

// Finished reports whether the run has its outcome.
func (i *Info) Finished() bool {
	return i.State == "succeeded" || i.State == "dead" || i.State == "canceled" || i.State == "replaced"
}

// StepInfo is a step of a run.
type StepInfo struct {
	Name       string          `json:"name"`
	Needs      []string        `json:"needs,omitempty"`
	Policy     string          `json:"policy"`
	Handler    string          `json:"handler"`
	Status     string          `json:"status"` // blocked, waiting, running, succeeded, failed, canceled, needs-handler
	Next       *time.Time      `json:"next,omitempty"`
	Spent      int             `json:"spent"`                // attempts that count for the policy
	Lost       int             `json:"lost,omitempty"`       // lost ones in a row
	MaxLost    int             `json:"max_lost"`             // how many are made up for
	Quarantine string          `json:"quarantine,omitempty"` // what the next attempt waits for, if the process died in the last ones
	Windows    int             `json:"windows,omitempty"`    // times an attempt returned Limited
	MaxWindows int             `json:"max_windows"`          // how often it may be
	Output     json.RawMessage `json:"output,omitempty"`
	Progress   json.RawMessage `json:"progress,omitempty"`
	Attempts   []AttemptInfo   `json:"attempts,omitempty"`
	Omitted    int             `json:"omitted,omitempty"` // attempts that are not listed, because the history is too long
}

// AttemptInfo is one attempt of a step, and the wait after it.
type AttemptInfo struct {
	Number  int        `json:"number"`
	Omitted int        `json:"omitted,omitempty"` // attempts before this one that are not listed
	Started time.Time  `json:"started"`
	Ended   *time.Time `json:"ended,omitempty"`
	Outcome string     `json:"outcome"` // running, succeeded, failed, lost, released, snoozed, limited, late
	Error   string     `json:"error,omitempty"`
	Reason  string     `json:"reason,omitempty"` // why none follows
	Alone   bool       `json:"alone,omitempty"`  // no other attempt ran when it began: the process had died too often in the ones before
	Wait    *WaitInfo  `json:"wait,omitempty"`
}

// WaitInfo is a wait after an attempt.
type WaitInfo struct {
	Delay time.Duration `json:"delay_ns"` // as it was decided
	Until time.Time     `json:"until"`
	By    string        `json:"by"`              // who set it
	Moved string        `json:"moved,omitempty"` // who prolonged it
	Woken string        `json:"woken,omitempty"` // who ended it early
}

// Note is something that happened to a run as a whole.
type Note struct {
	At   time.Time `json:"at"`
	What string    `json:"what"` // started, canceled, retried, expired, replaced, parked, unparked, paused, resumed, postponed, reset
	Step string    `json:"step,omitempty"`
	Text string    `json:"text,omitempty"`
}

// describe returns the run as it looks from outside.
func describe(r *machine.Run) *Info {
	i := &Info{
		ID: r.ID.String(), Workflow: r.Def.Name, Key: r.Key, Source: r.Source(), State: r.State().String(),
		Created: time.Unix(0, r.Created), Ended: pointer(r.Ended), Deadline: pointer(r.Deadline), Next: pointer(r.Next()),
		Attempts: r.Attempts(), Input: r.Input, Output: r.Result(),
		ReplayOf: r.Previous().String(), ReplacedBy: r.ReplacedBy().String(),
	}
	i.Origin, i.OriginKey = originOf(r)
	if r.Outcome == machine.Dead {
		i.Reason = r.Reason.String()
	}
	i.Step, i.Error, i.Updated = r.Situation()
	i.Steps = make([]StepInfo, len(r.Steps))
	for k := range r.Steps {
		i.Steps[k] = describeStep(r, k)
	}
	for rec := range r.Records() {
		i.add(r, &rec)
	}
	if i.Omitted > 0 {
		for k := range i.Steps {
			i.Steps[k].countOmitted(int(r.Steps[k].Attempt))
		}
	}
	return i
}

// countOmitted says how many of the attempts that were made are not listed, and where.
// Of an attempt whose end is not kept it is not known how it ended: it is not listed.
func (s *StepInfo) countOmitted(made int) {
	s.Attempts = slices.DeleteFunc(s.Attempts, func(a AttemptInfo) bool {
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

// originOf returns the origin of a run that repeats another, as it is shown.
func originOf(r *machine.Run) (id, key string) {
	if r.Previous().IsZero() {
		return "", ""
	}
	origin, key, _ := r.Origin()
	return origin.String(), key
}

func describeStep(r *machine.Run, k int) StepInfo {
	d, s := &r.Def.Steps[k], &r.Steps[k]
	i := StepInfo{
		Name: d.Name, Needs: d.Needs, Policy: d.Policy.String(), Handler: d.Handler, Status: stepStatus(r, k),
		Spent: int(s.Spent), Lost: int(s.Lost), MaxLost: d.MaxLost, Quarantine: quarantineText(r, k), Windows: int(s.Windows), MaxWindows: cmp.Or(d.Windows, machine.DefaultWindows), Output: r.Output(k), Progress: r.Progress(k),
	}
	if s.Status == machine.Waiting && r.Outcome == machine.Undecided && !r.Held {
		i.Next = pointer(s.At)
	}
	return i
}

// stepStatus returns the status of a step as it is shown. A step of a run that is over
// waits for nothing: it has failed if the run's time was over, and is canceled if
// another step failed or someone canceled the run. Only Retry puts it back to work.
func stepStatus(r *machine.Run, k int) string {
	s := r.Steps[k].Status
	if s != machine.Waiting || r.Outcome == machine.Undecided {
		return s.String()
	}
	if r.Outcome == machine.Dead && r.Reason == retry.StopTimeout {
		return machine.Exhausted.String()
	}
	return machine.Canceled.String()
}

// quarantineText says what a suspect waits for, or how it runs.
func quarantineText(r *machine.Run, step int) string {
	s := &r.Steps[step]
	if s.Lost == 0 || r.Outcome != machine.Undecided {
		return ""
	}
	died := "the process died in the last attempt"
	if s.Lost > 1 {
		died = fmt.Sprintf("the process died in the last %d attempts", s.Lost)
	}
	alone := r.NeedsIsolation(step)
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

// add adds a record of the history.
func (i *Info) add(r *machine.Run, rec *machine.Record) {
	at := time.Unix(0, rec.At)
	s := &i.Steps[min(rec.Step, len(i.Steps)-1)]
	switch rec.Kind {
	case machine.Begun:
		s.Attempts = append(s.Attempts, AttemptInfo{Number: rec.Attempt, Started: at, Outcome: "running", Alone: rec.Delay > 0})
	case machine.Done, machine.Failed, machine.Snoozed, machine.Limited, machine.Lost, machine.Released, machine.Late:
		a := s.attempt(rec.Attempt, at)
		a.Ended, a.Outcome, a.Error = &at, outcomes[rec.Kind], rec.Text
		if rec.Reason != 0 {
			a.Reason = rec.Reason.String()
		} else if rec.Kind == machine.Lost && rec.Delay > 0 || rec.Kind == machine.Failed || rec.Kind == machine.Snoozed || rec.Kind == machine.Limited {
			a.Wait = &WaitInfo{Delay: rec.Delay, Until: time.Unix(0, rec.Due), By: rec.By.String()}
		}
	case machine.Postponed:
		if n := len(s.Attempts); n > 0 && s.Attempts[n-1].Wait != nil {
			s.Attempts[n-1].Wait.Moved, s.Attempts[n-1].Wait.Until = rec.Text, time.Unix(0, rec.Due)
		} else {
			i.Notes = append(i.Notes, Note{at, rec.Kind.String(), s.Name, rec.Text})
		}
	case machine.Woken:
		if n := len(s.Attempts); n > 0 && s.Attempts[n-1].Wait != nil {
			s.Attempts[n-1].Wait.Woken = rec.Text
			s.Attempts[n-1].Wait.Until = at
		} else {
			i.Notes = append(i.Notes, Note{at, "started now", s.Name, rec.Text})
		}
	case machine.Omitted:
		i.Omitted += rec.Attempt
	case machine.Parked, machine.Unparked:
		i.Notes = append(i.Notes, Note{at, rec.Kind.String(), s.Name, rec.Text})
	case machine.Started:
		i.Notes = append(i.Notes, Note{at, rec.Kind.String(), "", r.Source()})
	default:
		i.Notes = append(i.Notes, Note{at, rec.Kind.String(), "", rec.Text})
	}
}

var outcomes = map[machine.Kind]string{
	machine.Done: "succeeded", machine.Failed: "failed", machine.Snoozed: "snoozed",
	machine.Limited: "limited", machine.Lost: "lost", machine.Released: "released", machine.Late: "late",
}

// attempt returns the attempt with the number. It is there, unless the history
// was shortened.
func (s *StepInfo) attempt(number int, at time.Time) *AttemptInfo {
	if n := len(s.Attempts); n > 0 && s.Attempts[n-1].Number == number {
		return &s.Attempts[n-1]
	}
	s.Attempts = append(s.Attempts, AttemptInfo{Number: number, Started: at})
	return &s.Attempts[len(s.Attempts)-1]
}

func pointer(ns int64) *time.Time {
	if ns == 0 {
		return nil
	}
	t := time.Unix(0, ns)
	return &t
}

// Retry returns a short account of the retries.
func (i *Info) Retry() RetryInfo {
	var m RetryInfo
	s := i.retryStep()
	if s == nil {
		return m
	}
	if p, err := retry.Parse(s.Policy); err == nil {
		m.MaxRetries = p.Retries()
	}
	made := s.Spent
	for k, a := range s.Attempts {
		if a.Wait != nil && a.Outcome == "failed" {
			m.Backoff = append(m.Backoff, a.Wait.Delay.Milliseconds())
		}
		if a.Error != "" && a.Outcome != "late" { // a late one ended because its context did
			m.LastError = a.Error
		}
		if k == len(s.Attempts)-1 && (a.Outcome == "running" || a.Outcome == "late" || a.Outcome == "succeeded") {
			made++ // it counts, and has not failed
		}
	}
	m.Attempt = max(made-1, 0)
	if i.Reason == retry.StopTimeout.String() && i.Error != "" {
		m.LastError = i.Error
	}
	return m
}

// retryStep returns the step that the account of the retries is about: the one that
// matters now, or the last that had an attempt. It is nil if there are no steps.
func (i *Info) retryStep() *StepInfo {
	var last *StepInfo
	for k := range i.Steps {
		s := &i.Steps[k]
		if i.Step != "" && s.Name == i.Step {
			return s
		}
		if last == nil || s.lastStart().Compare(last.lastStart()) >= 0 {
			last = s
		}
	}
	return last
}

// lastStart returns when the last attempt began, zero if there was none.
func (s *StepInfo) lastStart() time.Time {
	if n := len(s.Attempts); n > 0 {
		return s.Attempts[n-1].Started
	}
	return time.Time{}
}

// RetryInfo is a short account of the retries of a run. Of one with several steps it is
// about the step that [Info].Step names, or else about the step that ran last.
type RetryInfo struct {
	Attempt    int     `json:"attemptNumber"`       // of the last attempt that counts, from 0; one that is running, or was cut off, does
	MaxRetries int     `json:"maxRetries"`          // -1 for no limit
	LastError  string  `json:"lastError,omitempty"` // of an attempt, or that the run's time was over
	Backoff    []int64 `json:"backoffHistory"`      // milliseconds
}

// The states of a run, as [Info.State] has them.
const (
	StateScheduled    = "scheduled"     // its start is yet to come
	StateQueued       = "queued"        // due, and waits for a free place
	StateRunning      = "running"       // an attempt is being made
	StateWaiting      = "waiting"       // for the next attempt
	StateNeedsHandler = "needs-handler" // no process that runs knows the handler
	StatePaused       = "paused"        // by hand
	StateSucceeded    = "succeeded"
	StateDead         = "dead" // it gave up; Retry puts it back to work
	StateCanceled     = "canceled"
	StateReplaced     = "replaced" // it was dead, and another run does its work
)

// What [Info.Err] is, by errors.Is.
var (
	ErrDead     = errors.New("the run is dead")
	ErrCanceled = errors.New("the run was canceled")
	ErrReplaced = errors.New("the run is dead, and was replaced")
)

// Err returns why the run came to nothing: [ErrDead], [ErrCanceled] or
// [ErrReplaced], with the step, the reason and the last error. It is nil for a run
// that succeeded, and for one that is not over.
func (i *Info) Err() error {
	var kind error
	switch i.State {
	case StateDead:
		kind = ErrDead
	case StateCanceled:
		kind = ErrCanceled
	case StateReplaced:
		return fmt.Errorf("run %s: %w by %s", i.ID, ErrReplaced, i.ReplacedBy)
	default:
		return nil
	}
	text := ""
	if i.Step != "" && i.State == StateDead {
		text += ", in step " + i.Step
	}
	if i.Reason != "" {
		text += " (" + i.Reason + ")"
	}
	if i.Error != "" {
		text += ": " + i.Error
	}
	return fmt.Errorf("run %s: %w%s", i.ID, kind, text)
}

// Output returns what a run returned that has succeeded: of one with several last
// steps, an object of what they did. Otherwise the error says why there is none.
func Output[T any](i *Info) (v T, err error) {
	if err := i.Err(); err != nil {
		return v, err
	}
	if i.State != StateSucceeded {
		return v, fmt.Errorf("run %s: no output yet: it is %s", i.ID, i.State)
	}
	if len(i.Output) == 0 {
		return v, nil
	}
	if err := json.Unmarshal(i.Output, &v); err != nil {
		return v, fmt.Errorf("run %s: output: %w", i.ID, err)
	}
	return v, nil
}
