package flow

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/admission"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/replay"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/internal/textfmt"
)

// Calls has the calls of functions of a shard. Its methods need the turn of the owner: so only the
// owner's goroutine can call them.
type Calls struct {
	settings *Settings
	running  map[machine.ID]*call
	begun    []*call // to begin when the turn is stored
	stops    []stop  // to carry out when the turn is stored
	parked   parkedRuns
	waits    []signalWait // calls that wait for a signal, ordered by time: see staysForSignal
	now      time.Time    // when the turn began
	checked  time.Time    // when Blocked looked for blocked functions last
}

// stop is a call to stop with a cause.
type stop struct {
	*call
	cause error
}

// parkedCall is a call of a function that did not fit its run. The zero value is that of a run
// which an earlier owner has parked.
type parkedCall struct {
	parkReason
	by      *workflow.Workflow // the workflow of the function
	missing string             // name of a workflow that the function wanted to start; "" if that is not why
}

// parkReason is why runs of a workflow are parked.
type parkReason struct{ workflow, why string }

// parkedRuns has the runs that wait for other code, because that of their function did not fit, and
// counts them by reason.
type parkedRuns struct {
	runs    map[machine.ID]parkedCall
	reasons map[parkReason]*parkedCount
	changed bool // since Parked has returned the counts
}

type parkedCount struct {
	runs  int
	since time.Time
}

// signalWait is a call that waits for a signal, and the time when it is to be suspended. If
// call.signalUntil is another time, the call has got the signal.
type signalWait struct {
	*call
	until int64
}

func New(s *Settings) Calls {
	return Calls{
		settings: s, running: map[machine.ID]*call{},
		parked: parkedRuns{runs: map[machine.ID]parkedCall{}, reasons: map[parkReason]*parkedCount{}},
	}
}

// Len returns the number of calls.
func (a *Calls) Len() int { return len(a.running) }

// All yields the runs whose functions are called.
func (a *Calls) All() iter.Seq[machine.ID] { return maps.Keys(a.running) }

// Waits reports whether the function of a run is called, and waits for operations.
func (a *Calls) Waits(run machine.ID) bool {
	c := a.running[run]
	return c != nil && c.waits()
}

// Operation returns the operation that an attempt of a step is for, if the function of the run is waiting
// for it.
func (a *Calls) Operation(run machine.ID, step int) (op Operation, ok bool) {
	if c := a.running[run]; c != nil {
		op = c.ops.get(step)
	}
	return op, !op.IsZero()
}

// recordStatus records the status and the tags that the function has set, if they have changed.
func (a *Calls) recordStatus(t Turn, c *call, run *machine.Run) {
	c.mu.Lock()
	said, status, tags := c.said, c.status, ""
	if c.said = false; said {
		tags = machine.EncodeTags(c.tags)
	}
	c.mu.Unlock()
	if !said {
		return
	}
	if tags == run.Flow().Tags() {
		tags = "" // unchanged
	}
	if status = a.settings.ErrorText(status); status == run.Flow().Status() && tags == "" {
		return
	}
	t.Record(machine.Describe(run, status, tags, t.Now()))
}

// drop forgets a call, and makes its goroutine end when the turn is stored.
func (a *Calls) drop(c *call, cause error) {
	a.forget(c)
	a.stops = append(a.stops, stop{c, cause})
}

// forget removes a call that is over.
func (a *Calls) forget(c *call) {
	delete(a.running, c.run)
	c.ticket.Lend() // for good
	for _, g := range slices.Backward(c.groups) {
		select {
		case attempt := <-g.attempts: // the goroutine of the function has ended before it began
			if attempt != nil {
				go attempt.Make()
			}
		default:
		}
	}
}

// waits reports whether the function waits for operations, and so do all its branches that have
// begun. The result of an operation may have been delivered to one of them, which continues already:
// then the operation has not ended yet.
func (c *call) waits() bool {
	return len(c.groups) > 0 && len(c.groups) >= int(c.leaves.Load())
}

// mustEnd returns how many operations must end before the function or one of its branches can
// continue.
func (c *call) mustEnd() int {
	least := math.MaxInt32
	for _, g := range c.groups {
		n := g.running
		if g.next < g.n && !g.stops() {
			n = 1 // the next operation of the map can begin then
		}
		least = min(least, n)
	}
	return least
}

// Turn is what the owner's goroutine passes to Calls. The goroutine of a function never has one.
type Turn interface {
	Now() int64
	ReadClock() // updates Now
	State() *machine.Machine
	Random() uint64
	NewID(key string) machine.ID
	CheckFormat(format int) error // says whether all members of the cluster can read a format

	Record(rec machine.Record)
	RecordStart(rec machine.Record, s *machine.Start, def *machine.Definition) // in one entry
	Define(def *machine.Definition)

	// StartRun records the start of a run, and its definition if that is new. If the key belongs to an
	// earlier run, it returns the id of that run and true.
	StartRun(s *machine.Start, def *machine.Definition) (id machine.ID, existing bool, err error)

	// TakeNow takes a ticket for the first attempt of an operation that is called now, if it need not wait in a
	// queue. Begin begins an attempt; the record with its beginning is recorded.
	TakeNow(run *machine.Run, def *machine.Definition) (admission.Ticket, bool)
	Begin(run *machine.Run, op Operation, ticket admission.Ticket, rec machine.Record)

	// StartElsewhere starts a child in another shard, and Adopt has an operation wait for its former child. They
	// call done in a later turn, when that is stored. refused, unless it is nil, is why the input of the child is
	// refused now. The child may have been started before, when its input was accepted.
	StartElsewhere(shard int, s *machine.Start, def *machine.Definition, refused error, done func(Turn, error))
	Adopt(former machine.ID, parent machine.Parent, done func(Turn, AdoptedChild, error))
	ChildStarted(parent machine.Parent, child machine.Child)
	EndChild(end *machine.ChildEnd)

	CheckParked() // what a parked run waits for may be registered
	NoteStuck(run machine.ID, call int)
}

// AdoptedChild says what became of the former child of an operation that is called again. It is sent between
// processes.
type AdoptedChild struct {
	Run   string            `json:"run,omitempty"`   // the operation waits for this run now
	End   *machine.ChildEnd `json:"end,omitempty"`   // the former child has succeeded
	Undos int               `json:"undos,omitempty"` // neither: the operation needs another child; see machine.FormerChild
}

func (p *parkedRuns) add(run machine.ID, c parkedCall) {
	p.remove(run)
	p.runs[run], p.changed = c, true
	n := p.reasons[c.parkReason]
	if n == nil {
		n = &parkedCount{since: time.Now()}
		p.reasons[c.parkReason] = n
	}
	n.runs++
}

func (p *parkedRuns) remove(run machine.ID) {
	c, ok := p.runs[run]
	if !ok {
		return
	}
	delete(p.runs, run)
	p.changed = true
	if n := p.reasons[c.parkReason]; n.runs > 1 {
		n.runs--
	} else {
		delete(p.reasons, c.parkReason)
	}
}

// Parked returns how many runs are parked, by reason. changed is false if that is the same as before; then
// the list is empty.
func (a *Calls) Parked() (list []info.Trouble, changed bool) {
	p := &a.parked
	if !p.changed {
		return nil, false
	}
	p.changed = false
	for reason, n := range p.reasons {
		list = append(list, info.Trouble{
			What:  fmt.Sprintf("has parked %s of %s", textfmt.Plural(n.runs, "run"), reason.workflow),
			Since: n.since, Error: reason.why, Works: true, Runs: n.runs,
		})
	}
	slices.SortFunc(list, func(a, b info.Trouble) int { return cmp.Or(cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Error, b.Error)) })
	return list[:min(len(list), maxParkReasons)], true
}

// maxParkReasons limits the reasons that Parked returns.
const maxParkReasons = 20

// Fits reports whether a parked run continues, because its function is that of the workflow w now, or
// because what was missing is registered.
func (a *Calls) Fits(run machine.ID, w *workflow.Workflow) bool {
	p := a.parked.runs[run]
	return p.by == nil || p.by != w || p.missing != "" && a.settings.Registry.Workflow(p.missing) != nil
}

// Forget forgets that a run is parked.
func (a *Calls) Forget(run machine.ID) { a.parked.remove(run) }

// park records that the run waits for other code, because that of the call does not fit.
func (a *Calls) park(t Turn, c *call, run *machine.Run, why string) {
	a.settings.report(replay.Verdict{Parked: a.settings.ErrorText(why)})
	parked := parkedCall{parkReason: parkReason{run.Def.Name, a.settings.ErrorText(why)}, by: c.workflow}
	if missing, ok := errors.AsType[*missingWorkflowError](c.firstWrong()); ok {
		parked.missing = missing.name
	}
	a.parked.add(c.run, parked)
	if c.known != a.settings.Registry.Version() {
		t.CheckParked() // what it waits for may be registered already
	}
	command := "tideover cancel"
	if run.Flow().Undoable() > 0 { // a cancel calls the function, to undo operations
		command += " --abandon"
	}
	text := fmt.Sprintf("%s; the run continues when code that fits is deployed; to give it up: %s %s", why, command, c.run)
	t.Record(machine.ParkMismatch(run, a.settings.ErrorText(text), t.Now()))
}

const (
	blockedAfter      = time.Minute      // a function that does not wait for an operation for this long is reported
	blockedCheckEvery = 10 * time.Second // how often that is checked, at most
)

// Blocked returns a warning for each function that has neither called an operation nor returned
// for long: it waits for something that is not an operation, or computes. It holds its run up, and
// nothing else shows that. isChecked is false if it was called before a short time ago.
func (a *Calls) Blocked() (list []info.Trouble, isChecked bool) {
	gap := a.now.Sub(a.checked)
	if gap < blockedCheckEvery {
		return nil, false
	}
	if a.checked = a.now; gap > 2*blockedAfter {
		return nil, false // the owner could not store: functions may wait for it
	}
	for id, c := range a.running {
		since := a.now.Sub(c.since)
		if c.waits() || c.ended.Load() || since < blockedAfter {
			c.blocked = false
			continue
		}
		text := fmt.Sprintf("it has neither called an operation nor returned for %v: it waits for something else, such as a lock or a channel, or computes; do such work in engine.Do with a timeout, and restart the process if the function does not continue", since.Round(time.Second))
		list = append(list, info.Trouble{What: fmt.Sprintf("run %s: the function of workflow %s is blocked", id, c.workflow.Name()), Since: c.since, Error: text})
		if !c.blocked {
			c.blocked = true
			a.settings.report(replay.Verdict{Failed: text})
			a.settings.Logger.Warn("the function of a run is blocked", "run", id.String(), "workflow", c.workflow.Name(), "why", text)
		}
	}
	slices.SortFunc(list, func(a, b info.Trouble) int { return strings.Compare(a.What, b.What) })
	return list, true
}
