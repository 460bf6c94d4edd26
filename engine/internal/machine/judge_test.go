package machine

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/retry"
)

// judge checks the rules of runs without the code of the machine: it sees each record, and fails the
// test if a record breaks a rule. It measures waits by elapsed time, which does not change when the
// clock is set.
type judge struct {
	t    testing.TB
	w    *world
	defs map[Hash]*Definition
	runs map[ID]*judged
	now  int64 // elapsed time

	former    []string        // of the signal that is being sent: see Signal.Former
	paused    map[string]bool // workflows
	inherited map[ID]*judged  // by the run that continues them
	continued map[ID]ID       // by the run that is continued
	children  map[logicalOp]*keptChild
}

type judged struct {
	def       *Definition
	steps     []judgedStep // of a flow: the function, and the operations by number
	outcome   Outcome
	failing   bool
	canceled  bool
	calendar  int64 // no attempt before this time of the wall clock, unless woken
	due       int64 // no attempt before this time since boot, unless woken
	timeout   int64 // least elapsed time until it may expire
	outcomes  int
	revivals  int
	replaced  bool
	held      bool
	until     int64 // what runs is to be made again then
	timedFrom int64
	signals   map[string][]string // payloads that nothing has waited for, by name
	sent      map[string]bool     // ids of signals
	parent    Parent
	undoable  int  // operations with an undo
	undoing   bool // it undoes its operations, or has failed to
	undone    bool
	undoEnd   Outcome // the outcome after that
	redo      []int   // operations that a retry calls again, beside those that were undone
	redoUndos []int   // undos that a retry calls again
	origin    ID      // whose id is in the idempotency keys; of a run that continues another one, that of the first
	undos     int     // how often its operations were undone and called again, with the runs that it repeats
}

// allUndos is undos for a run that repeats this one.
func (r *judged) allUndos() int {
	if r.undone {
		return r.undos + 1
	}
	return r.undos
}

// logicalOp is an operation of a run, however often a retry calls it.
type logicalOp struct {
	run  ID
	name string
}

// keptChild is what the judge knows about the children of a logicalOp.
type keptChild struct {
	origin ID
	undos  int // when the last one ended
	last   ID  // the last one in this shard
}

type judgedStep struct {
	def                       *Step // nil for a sleep
	suspended                 bool  // of a function
	awaited                   int   // of a suspended function
	attempts, spent, lost     int
	windows                   int
	began                     int64 // elapsed time
	due                       int64 // elapsed time
	calendar                  int64 // or a time of the wall clock
	running, complete, failed bool
	parked                    bool
	signal                    string // for which it waits
	name                      string // of an operation that waits for a child
	child                     Child
	isUndo, undoable          bool
	afterUndo                 bool // it failed since the run undoes its operations
	afterEnd                  bool // it waited for a child, and failed after the end of the run
	forgotten                 bool // a retry has taken it back
}

func (s *judgedStep) isChild() bool { return !s.child.ID.IsZero() }

func newJudge(w *world) *judge {
	return &judge{t: w.t, w: w, defs: map[Hash]*Definition{}, runs: map[ID]*judged{}, paused: map[string]bool{}, inherited: map[ID]*judged{}, continued: map[ID]ID{}, children: map[logicalOp]*keptChild{}}
}

func (j *judge) running(r *judged) (n int) {
	for i := range r.steps {
		if r.steps[i].running {
			n++
		}
	}
	return n
}

func (j *judge) met(r *judged, step int) bool {
	if step > 0 && r.def.Flow {
		return r.steps[0].running // an operation needs its function
	}
	for _, need := range r.def.Steps[step].Needs {
		if !r.steps[r.def.Index(need)].complete {
			return false
		}
	}
	return true
}

// see checks a record that was just applied.
func (j *judge) see(rec *Record) {
	j.t.Helper()
	j.now = j.w.boot
	switch rec.Kind {
	case Defined:
		d, err := ParseDefinition(rec.Data)
		if err != nil {
			j.t.Fatal(err)
		}
		j.defs[d.Hash()] = d
		return
	case Started:
		j.started(rec)
		return
	case Jumped:
		for _, r := range j.runs {
			if r.calendar <= rec.At-int64(rec.Delay) {
				r.calendar = 0 // it was time, even if the clock is set back
			}
			for i := range r.steps {
				if s := &r.steps[i]; s.calendar <= rec.At-int64(rec.Delay) {
					s.calendar = 0
				}
			}
		}
		return
	case Halted:
		if j.paused[rec.Text] == (rec.count > 0) {
			j.t.Fatalf("%+v changes nothing", rec)
		}
		j.paused[rec.Text] = rec.count > 0
		return
	case Opened, Purged, Cron:
		return
	default:
	}
	r, known := j.runs[rec.Run]
	if !known {
		j.t.Fatalf("%s of run %s, which never started", rec.Kind, rec.Run)
	}
	before := r.outcome
	j.step(r, rec)
	if j.running(r) == 0 {
		r.until = 0
	}
	if r.outcome == Undecided && j.running(r) == 0 {
		done := 0
		for i := range r.steps {
			if r.steps[i].complete {
				done++
			}
		}
		switch {
		case r.failing:
			r.outcome = Dead
		case done == len(r.steps), r.def.Flow && r.steps[0].complete:
			r.outcome = Succeeded
		}
	}
	for i := range r.steps {
		r.steps[i].parked = r.steps[i].parked && r.outcome == Undecided
	}
	if r.outcome != before && rec.Kind != Retry && rec.Kind != Undoing {
		if rec.Ends != r.outcome {
			j.t.Fatalf("%+v ends as %d, want %d", rec, rec.Ends, r.outcome)
		}
		if r.outcomes++; r.outcomes > 1+r.revivals {
			j.t.Fatalf("%+v: the run has %d outcomes, and was put back to work %d times", rec, r.outcomes, r.revivals)
		}
	} else if rec.Ends != Undecided {
		j.t.Fatalf("%+v ends as %d, and the run does not end", rec, rec.Ends)
	}
	if live, ok := j.w.m.Run(rec.Run); !ok || live.Outcome != r.outcome || live.HasEnded() != (r.outcomes > 0) {
		j.t.Fatalf("%+v: %v, want outcome %v, of which there were %d", rec, live, r.outcome, r.outcomes)
	} else if live.flow != nil {
		j.sameResults(r, rec, live)
	}
}

// sameResults checks that the run has the results of the operations that have ended and that no retry
// has taken back, and no others, and that it counts its undos.
func (j *judge) sameResults(r *judged, rec *Record, live *Run) {
	j.t.Helper()
	stored := map[int]bool{}
	for res := range ReadResults(live.Flow().Results()) {
		stored[res.Number] = true
	}
	for i := range r.steps {
		if want := i > 0 && !isLive(live, i) && !r.steps[i].forgotten; stored[i] != want {
			j.t.Fatalf("%+v: the run has a result of operation %d: %v, want %v: %+v", rec, i, stored[i], want, r.steps[i])
		}
	}
	if Undos(live) != r.undos || AllUndos(live) != r.allUndos() {
		j.t.Fatalf("%+v: the run counts %d undos and %d for its next child, want %d and %d", rec, Undos(live), AllUndos(live), r.undos, r.allUndos())
	}
}

func (j *judge) started(rec *Record) {
	j.t.Helper()
	if j.runs[rec.Run] != nil {
		j.t.Fatalf("run %s starts twice", rec.Run)
	}
	d := j.defs[rec.Hash]
	r := &judged{def: d, steps: make([]judgedStep, len(d.Steps)), calendar: rec.Due, timedFrom: j.now}
	if rec.Deadline != 0 {
		r.timeout = rec.Deadline - max(rec.Due, rec.At)
	}
	if rec.Delay > 0 { // the time until the start is a duration
		r.calendar, r.due, r.timedFrom = 0, j.now+int64(rec.Delay), j.now+int64(rec.Delay)
	}
	for i := range r.steps {
		r.steps[i].def = &d.Steps[i]
	}
	for i, out := range rec.outputs[:min(len(rec.outputs), len(d.Steps))] { // the origin follows
		r.steps[i].complete = out != nil
	}
	if n := len(d.Steps) + 2; len(rec.outputs) > n {
		p, err := readParent(rec.outputs[n])
		if err != nil || p.Told && j.inherited[rec.Run] == nil {
			j.t.Fatalf("%+v: parent %v, %v", rec, p, err)
		}
		r.parent = *p
	}
	r.origin = rec.Run
	if id, _, undos, ok := decodeOrigin(j.extra(rec, len(d.Steps))); ok && !rec.other.IsZero() {
		r.origin, r.undos = id, undos
	}
	if before := j.inherited[rec.Run]; before != nil {
		r.origin = before.origin
	}
	if of := j.runs[r.parent.Run]; of != nil && j.inherited[rec.Run] == nil {
		j.sameKey(of, r.parent, rec.Run, r)
		if s := &of.steps[r.parent.Number]; s.child.ID != rec.Run || s.complete || s.failed {
			j.t.Fatalf("%+v: the operation of the parent is %+v", rec, *s)
		}
	}
	if r.signals, r.sent = map[string][]string{}, map[string]bool{}; j.inherited[rec.Run] != nil {
		r.signals, r.sent = j.inherited[rec.Run].signals, j.inherited[rec.Run].sent
	}
	j.runs[rec.Run] = r
}

// extra returns what the record of a start has after the outputs of the steps.
func (j *judge) extra(rec *Record, steps int) string {
	if len(rec.outputs) <= steps {
		return ""
	}
	return string(rec.outputs[steps])
}

// sameKey checks that a child of an operation has the idempotency keys of all children that the
// operation ever had, unless their operations were undone.
func (j *judge) sameKey(of *judged, parent Parent, id ID, child *judged) {
	j.t.Helper()
	kept := j.children[logicalOp{parent.Run, of.steps[parent.Number].name}]
	if child.origin != kept.origin {
		j.t.Fatalf("child %s of operation %s has the origin %s, the first one %s", id, of.steps[parent.Number].name, child.origin, kept.origin)
	}
	undos := []int{kept.undos, child.allUndos()}
	if last := j.runs[kept.last]; last != nil {
		undos = append(undos, last.allUndos())
	}
	if child.undos < kept.undos || !slices.Contains(undos, child.undos) && kept.last != id {
		j.t.Fatalf("child %s of operation %s counts %d undos, the former one %v", id, of.steps[parent.Number].name, child.undos, undos)
	}
	kept.last = id
}

func (j *judge) step(r *judged, rec *Record) {
	j.t.Helper()
	if rec.Kind == Called {
		j.called(r, rec)
		return
	}
	s := &r.steps[rec.Step]
	isOp := r.def.Flow && rec.Step > 0
	if isOp && (s.complete || s.failed && r.outcome == Undecided) {
		j.t.Fatalf("%+v of an operation that has ended: %+v", rec, *s)
	}
	wait := func(due int64) {
		s.due, s.calendar = j.now+due-rec.At, 0
		if rec.Clock {
			s.due, s.calendar = 0, due
		}
	}
	if r.undoing && isOp && !s.isUndo && rec.Kind == Begun {
		j.t.Fatalf("%+v while the run is undoing", rec)
	}
	if rec.Attempt != 0 && rec.Kind != Begun && (!s.running || s.attempts != rec.Attempt) {
		j.t.Fatalf("%+v of an attempt that is not running: %+v", rec, *s)
	}
	switch rec.Kind {
	case Begun:
		j.begun(r, s, rec)
	case Done:
		if s.def == nil && (j.now < s.due || rec.At < s.calendar) {
			j.t.Fatalf("%+v: a sleep ends before its time: %+v", rec, *s)
		}
		s.running, s.complete = false, true
	case Failed:
		s.running = false
		if after := s.def.Policy.ResetAfter; after > 0 && j.now-s.began >= int64(after) {
			s.spent = 0
		}
		if rec.Reason == retry.StopWindows && s.windows < cmp.Or(s.def.Windows, DefaultWindows) {
			j.t.Fatalf("%+v after %d windows", rec, s.windows)
		}
		if r.undoing && isOp && !s.isUndo && rec.Reason != retry.StopCanceled {
			j.t.Fatalf("%+v: undoing %v, %+v", rec, r.undoing, *s)
		}
		limit := max(s.def.Policy.Attempts, 1)
		unlimited := s.def.Policy.Attempts == retry.Unlimited
		if s.spent++; !unlimited && (s.spent > limit || s.spent == limit && rec.Reason == 0) {
			j.t.Fatalf("%+v is failure %d of %d", rec, s.spent, limit)
		}
		s.lost = 0
		s.failed = rec.Reason != 0
		r.failing = r.failing || s.failed && !isOp
		if !s.failed {
			wait(rec.Due)
		} else if r.def.Flow && !isOp && r.undoing {
			r.redoUndos = readRedo(rec.Data)
		} else if r.def.Flow && !isOp {
			r.redo = readRedo(rec.Data)
		}
	case Limited:
		if s.windows++; s.windows > cmp.Or(s.def.Windows, DefaultWindows) {
			j.t.Fatalf("%+v is window %d", rec, s.windows)
		}
		s.running, s.lost, s.spent = false, 0, 0
		wait(rec.Due)
	case Held, Freed:
		if r.outcome != Undecided || r.held == (rec.Kind == Held) {
			j.t.Fatalf("%+v of a run with outcome %d, held %v", rec, r.outcome, r.held)
		}
		r.held = rec.Kind == Held
	case Postponed:
		if s.complete || s.failed || r.outcome != Undecided {
			j.t.Fatalf("%+v of a step that does not wait: %+v", rec, *s)
		}
		if s.running {
			r.until = rec.Due
		} else {
			wait(rec.Due)
		}
	case Forgiven:
		for i := range r.steps {
			r.steps[i].spent, r.steps[i].lost, r.steps[i].windows = 0, 0, 0
		}
	case Snoozed:
		s.running, s.lost = false, 0
		wait(rec.Due)
	case Released:
		s.running = false
		wait(rec.At)
		if r.until > rec.At {
			s.due, s.calendar = 0, r.until
		}
	case Lost:
		s.running = false
		s.lost++
		most, alone := s.def.MaxLost, strings.HasSuffix(rec.Text, "no other attempt ran")
		ends := s.lost > most && alone || most == 0 || r.undoing && isOp && !s.isUndo
		if s.failed = rec.Reason != 0; s.failed != (ends && r.outcome == Undecided) {
			j.t.Fatalf("%+v is lost attempt %d of %d", rec, s.lost, most)
		}
		r.failing = r.failing || s.failed && !isOp
		if !s.failed {
			wait(rec.Due)
		}
	case Late:
		if r.outcome == Undecided {
			j.t.Fatalf("%+v, and the run is not over", rec)
		}
		s.running, s.failed = false, true
	case Cancel:
		if r.outcome == Succeeded || r.outcome == Canceled {
			j.t.Fatalf("%+v of a run with outcome %d", rec, r.outcome)
		}
		if r.outcome == Undecided && r.undoable > 0 && rec.By != retry.ByHuman {
			j.t.Fatalf("%+v of a run that has to undo its operations", rec)
		}
		if r.outcome == Dead {
			r.revivals++ // that it will not be put back to work is an outcome too
		}
		r.outcome, r.canceled = Canceled, true
	case Expired:
		if r.outcome != Undecided || r.timeout == 0 || j.now-r.timedFrom < r.timeout {
			j.t.Fatalf("%+v after %d of a run with outcome %d and a timeout of %d", rec, j.now-r.timedFrom, r.outcome, r.timeout)
		}
		if r.undoable > 0 {
			j.t.Fatalf("%+v of a run that has to undo its operations", rec)
		}
		if r.calendar > rec.At || r.due > j.now {
			j.t.Fatalf("%+v before the run may begin, at %d", rec, r.calendar)
		}
		r.outcome = Dead
	case Retry:
		j.retry(r, rec)
	case Woken:
		if s.running || s.complete || s.failed || r.outcome != Undecided || r.failing {
			j.t.Fatalf("%+v of a step that does not wait: %+v", rec, *s)
		}
		s.due, s.calendar, r.calendar, r.due = j.now, 0, 0, 0
		if rec.By != retry.ByHuman {
			j.t.Fatalf("%+v is by %v", rec, rec.By)
		}
	case Parked:
		if rec.Attempt != 0 {
			s.running = false // the call of a function that did not fit
		}
		if s.running || s.parked || r.outcome != Undecided {
			j.t.Fatalf("%+v: %+v", rec, *s)
		}
		s.parked = true
	case Unparked:
		if !s.parked || r.outcome != Undecided {
			j.t.Fatalf("%+v: %+v", rec, *s)
		}
		s.parked = false
	case Replaced:
		if r.outcome != Dead || r.replaced {
			j.t.Fatalf("%+v of a run with outcome %d", rec, r.outcome)
		}
		r.replaced = true
	case Suspended:
		s.running, s.suspended, s.awaited, s.spent, s.lost = false, true, rec.count, 0, 0
	case Continued:
		s.running, s.complete, r.outcome = false, true, Succeeded
		r.parent.Told = true // the next run has the same parent
		j.inherited[rec.other] = r
		j.continued[rec.Run] = rec.other
	case ChildEnded:
		j.childEnded(r, s, rec)
	case Progress:
		if isOp && s.isChild() {
			s.child, _ = (&op{name: s.name, progress: rec.Data}).child()
		}
	case Adopted:
		r.parent = Parent{Run: rec.other, Number: rec.count}
		of := j.runs[rec.other]
		if s := &of.steps[rec.count]; r.outcome != Undecided || !s.isChild() || s.ended() {
			j.t.Fatalf("%+v: the run has the outcome %d, the operation of the parent is %+v", rec, r.outcome, *s)
		}
		j.sameKey(of, r.parent, rec.Run, r)
	case ParentTold:
		of := j.runs[r.parent.Run]
		if r.outcome == Undecided || r.parent.Run.IsZero() || r.parent.Told {
			j.t.Fatalf("%+v of a run with outcome %d and the parent %+v", rec, r.outcome, r.parent)
		}
		if of != nil && of.outcome == Undecided && !of.steps[r.parent.Number].ended() {
			j.t.Fatalf("%+v: the parent has not recorded the end", rec)
		}
		r.parent.Told = true
	case Undoing:
		j.undoing(r, rec)
	case Undone:
		if !r.undoing || r.outcome != Undecided || !s.running {
			j.t.Fatalf("%+v of a run with outcome %d, undoing %v", rec, r.outcome, r.undoing)
		}
		s.running, s.failed = false, true
		if r.outcome = r.undoEnd; rec.Reason != 0 {
			r.outcome, r.redoUndos = Dead, readRedo(rec.Data)
		} else {
			r.undoing, r.undone = false, true
		}
	case Signaled:
		j.signaled(r, rec)
	case NoSignal:
		if s.signal == "" || j.now < s.due || rec.At < s.calendar {
			j.t.Fatalf("%+v of %+v", rec, *s)
		}
		s.failed = true
	default:
	}
	if isOp && (s.complete || s.failed && rec.Kind != Late) {
		s.afterUndo = s.failed && r.undoing
		r.steps[0].lost = 0
		r.steps[0].awaited--
	}
}

func (s *judgedStep) ended() bool { return s.complete || s.failed }

// childEnded checks that a child has ended as the record says.
func (j *judge) childEnded(r *judged, s *judgedStep, rec *Record) {
	j.t.Helper()
	if !s.isChild() {
		j.t.Fatalf("%+v of %+v", rec, *s)
	}
	kept := j.children[logicalOp{rec.Run, s.name}]
	kept.undos = max(kept.undos, rec.count)
	unknown := s.child.Run() != s.child.ID && rec.Reason != 0 // the run has ended before it was known whether its former child continues
	if child := j.runs[rec.other]; child != nil && !unknown && (child.outcome == Undecided || (child.outcome == Succeeded) != (rec.Reason == 0) || rec.count != child.allUndos()) {
		j.t.Fatalf("%+v: the child has the outcome %d, and %d undos", rec, child.outcome, child.allUndos())
	}
	s.afterEnd = r.outcome != Undecided && rec.Reason != 0
	if s.complete = rec.Reason == 0; s.complete {
		j.wantResult(rec, string(rec.Data))
	}
	s.failed = !s.complete
}

// undoing notes that the run undoes its operations: those that have not ended fail, except running
// ones, and children that are canceled.
func (j *judge) undoing(r *judged, rec *Record) {
	j.t.Helper()
	if r.undoable == 0 || r.undoing || r.undone || r.outcome != Undecided && (r.outcome != Dead || j.running(r) > 0 || r.replaced) {
		j.t.Fatalf("%+v of a run with outcome %d and %d operations to undo", rec, r.outcome, r.undoable)
	}
	if r.outcome == Dead { // by hand: its failures stay those that a retry calls again
		r.revivals++
	} else {
		r.redo = readRedo(rec.Data)
	}
	r.undoing, r.undoEnd = true, Outcome(rec.count)
	r.outcome, r.failing, r.held, r.timeout, r.until = Undecided, false, false, 0, 0
	for i := range r.steps[1:] {
		s := &r.steps[i+1]
		if !s.running && !s.ended() && (!s.isChild() || s.child.Detached) {
			s.failed, s.afterUndo = true, true
		}
	}
	if f := &r.steps[0]; !f.running {
		*f = judgedStep{def: f.def, attempts: f.attempts, due: j.now, parked: f.parked}
	}
	r.calendar, r.due = 0, 0
}

// readRedo decodes the numbers of the operations that a retry calls again.
func readRedo(data []byte) (numbers []int) {
	for in := (codec.Reader{Data: data}); len(in.Data) > 0; {
		numbers = append(numbers, in.Number())
	}
	return numbers
}

// removed is called when a run is removed from memory.
func (j *judge) removed(id ID) {
	j.t.Helper()
	r := j.runs[id]
	if of := j.runs[r.parent.Run]; !r.parent.Run.IsZero() && !r.parent.Told {
		j.t.Fatalf("run %s is removed before its parent has recorded its end: %+v", id, of)
	}
	for i := range r.steps {
		if s := &r.steps[i]; s.isChild() && !s.child.Detached && !s.ended() {
			j.t.Fatalf("run %s is removed before its child %s has ended", id, s.child.ID)
		}
	}
}

// called adds an operation to the run.
func (j *judge) called(r *judged, rec *Record) {
	j.t.Helper()
	if !r.def.Flow || rec.Step != len(r.steps) || r.outcome != Undecided || !r.steps[0].running {
		j.t.Fatalf("%+v of a run with %d steps and outcome %d", rec, len(r.steps), r.outcome)
	}
	s := judgedStep{complete: rec.Data != nil, isUndo: isUndo(rec.Text), undoable: rec.count == 1}
	if s.isUndo != r.undoing {
		j.t.Fatalf("%+v, and the run is undoing: %v", rec, r.undoing)
	}
	if r.undoable += rec.count; !rec.other.IsZero() {
		s.child, _ = (&op{name: rec.Text, progress: rec.outputs[0]}).child()
		s.name = rec.Text
		j.calledChild(&s, rec)
	}
	if d := j.defs[rec.Hash]; d != nil {
		s.def = &d.Steps[0]
	} else {
		s.due = j.now + rec.Due - rec.At
	}
	if s.isChild() {
		s.due = math.MaxInt64
	}
	if name, ok := strings.CutPrefix(rec.Text, "await:"); ok {
		if s.signal, _, _ = strings.Cut(name, "["); rec.Due == 0 {
			s.due = math.MaxInt64
		}
		if list := r.signals[s.signal]; len(list) > 0 {
			s.complete = true
			j.wantResult(rec, list[0])
			r.signals[s.signal] = list[1:]
		}
	}
	r.steps = append(r.steps, s)
	if rec.Attempt > 0 {
		j.begun(r, &r.steps[rec.Step], rec)
	}
}

// calledChild checks that an operation which is called again has its former child.
func (j *judge) calledChild(s *judgedStep, rec *Record) {
	j.t.Helper()
	op := logicalOp{rec.Run, rec.Text}
	kept := j.children[op]
	switch {
	case kept == nil:
		j.children[op] = &keptChild{origin: s.child.ID}
	case s.child.Former.ID.IsZero() || s.child.Former.Origin != kept.origin || s.child.Former.Undos != kept.undos:
		j.t.Fatalf("%+v: the former child is %+v; want %+v", rec, s.child.Former, *kept)
	}
}

// signaled checks that the first operation that waits for the signal gets it.
func (j *judge) signaled(r *judged, rec *Record) {
	j.t.Helper()
	parts := strings.Split(rec.Text, "\x00")
	name, id, first := parts[0], parts[1], 0
	if rec.count > 0 {
		list, s := r.signals[name], &r.steps[rec.Step]
		if r.outcome != Undecided || s.signal == "" || len(list) == 0 {
			j.t.Fatalf("%+v: outcome %d, %d kept signals, of %+v", rec, r.outcome, len(list), *s)
		}
		j.wantResult(rec, list[0])
		r.signals[name], s.complete = list[1:], true
		return
	}
	for _, name := range append([]string{name}, j.former...) {
		for i := range r.steps {
			if s := &r.steps[i]; s.signal == name && !s.complete && !s.failed && first == 0 {
				first = i
			}
		}
	}
	if r.outcome != Undecided || r.sent[id] || rec.Step != first {
		j.t.Fatalf("%+v: outcome %d, sent before %v, step %d waits for it", rec, r.outcome, r.sent[id], first)
	}
	r.sent[id] = true
	if first == 0 {
		r.signals[name] = append(r.signals[name], string(rec.Data))
		return
	}
	r.steps[first].complete = true
	j.wantResult(rec, string(rec.Data))
}

// wantResult checks the stored result of the operation that the record ends.
func (j *judge) wantResult(rec *Record, want string) {
	j.t.Helper()
	run, _ := j.w.m.Run(rec.Run)
	for res := range ReadResults(run.Flow().Results()) {
		if res.Number == rec.Step && string(res.Data) == want {
			return
		}
	}
	j.t.Fatalf("%+v: no result %s", rec, want)
}

// mayCall reports whether a suspended function may be called: enough operations have ended, or one
// is due.
func (j *judge) mayCall(r *judged, now int64) bool {
	for _, s := range r.steps[1:] {
		if !s.complete && !s.failed && !s.running && j.now >= s.due && now >= s.calendar {
			return true
		}
	}
	return r.steps[0].awaited <= 0
}

func (j *judge) begun(r *judged, s *judgedStep, rec *Record) {
	j.t.Helper()
	policy := &s.def.Policy
	switch {
	case r.outcome != Undecided || r.failing || r.canceled:
		j.t.Fatalf("%+v of a run that is over: outcome %d, failing %v", rec, r.outcome, r.failing)
	case s.running || s.complete || s.failed || s.parked:
		j.t.Fatalf("%+v of a step that does not wait: %+v", rec, *s)
	case !j.met(r, rec.Step):
		j.t.Fatalf("%+v before what it needs is complete", rec)
	case r.held:
		j.t.Fatalf("%+v of a run that is paused", rec)
	case j.paused[r.def.Name] && !r.undoing:
		j.t.Fatalf("%+v of a run whose workflow is paused", rec)
	case rec.At < s.calendar:
		j.t.Fatalf("%+v before its time by the calendar, %d", rec, s.calendar)
	case j.now < s.due:
		j.t.Fatalf("%+v: %d before its time", rec, s.due-j.now)
	case j.now < r.due:
		j.t.Fatalf("%+v: %d before the start of the run", rec, r.due-j.now)
	case rec.At < r.calendar:
		j.t.Fatalf("%+v before its time by the calendar, %d", rec, r.calendar)
	case policy.Attempts != retry.Unlimited && s.spent >= max(policy.Attempts, 1):
		j.t.Fatalf("%+v is one too many: %+v", rec, *s)
	case s.suspended && !j.mayCall(r, rec.At):
		j.t.Fatalf("%+v of a function whose operations wait: %+v", rec, r.steps)
	case rec.Attempt != s.attempts+1:
		j.t.Fatalf("%+v has the number %d, want %d", rec, rec.Attempt, s.attempts+1)
	}
	s.attempts++
	s.suspended = false
	s.running, s.began = true, j.now
	r.calendar, r.due = 0, 0
}

func (j *judge) retry(r *judged, rec *Record) {
	j.t.Helper()
	if r.outcome != Dead || j.running(r) != 0 || r.replaced {
		j.t.Fatalf("%+v of a run with outcome %d and %d running", rec, r.outcome, j.running(r))
	}
	run, _ := j.w.m.Run(rec.Run)
	r.outcome, r.failing, r.held = Undecided, false, false
	r.revivals++
	if r.undoing && rec.Deadline != 0 {
		j.t.Fatalf("%+v: the undos of a run have no deadline", rec)
	}
	j.forget(r)
	for i := range r.steps {
		if s := &r.steps[i]; s.isChild() && !s.child.Detached && !s.ended() {
			j.t.Fatalf("%+v: child %s of the run is to be canceled", rec, s.child.ID)
		}
	}
	r.timeout, r.timedFrom = 0, j.now
	if rec.Deadline != 0 {
		r.timeout = rec.Deadline - rec.At
	}
	for i := range r.steps {
		if s := &r.steps[i]; s.failed && isLive(run, i) {
			s.failed, s.spent, s.lost, s.windows, s.due, s.calendar = false, 0, 0, 0, j.now, 0
		}
		r.steps[i].suspended = false // a retry calls the function
	}
}

// forget notes which operations a retry takes back. While the run undoes its operations, these are
// the undos that failed. A run that has undone its operations takes back these, their undos, and what
// failed since it began to undo.
func (j *judge) forget(r *judged) {
	for i := range r.steps {
		s := &r.steps[i]
		switch {
		case i == 0 || !s.ended():
		case r.undoing:
			s.forgotten = s.forgotten || slices.Contains(r.redoUndos, i)
		case slices.Contains(r.redo, i) || s.afterEnd || r.undone && (s.isUndo || s.undoable || s.afterUndo):
			s.forgotten = true
		}
	}
	if r.redoUndos = nil; r.undoing {
		return
	}
	if r.redo = nil; r.undone {
		r.undone, r.undoable = false, 0
		r.undos++
	}
}
