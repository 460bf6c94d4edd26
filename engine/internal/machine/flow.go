package machine

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// A flow is a workflow that consists of one function (Definition.Flow). The function is step 0
// of its run. Each operation that the function calls becomes a further step, with the next
// number. An operation that has ended is not a step any more: its result is kept, and the
// function gets it when it is called again.

// MaxOps is the number of operations that a run can call.
const MaxOps = 20_000

// MaxResults is how many bytes the results of the operations of a run can have together, with the
// errors of those that failed. If there is no room, errors are cut: see minError.
const MaxResults = 32 << 20

// Function is the name of step 0 in the definition of a flow.
const Function = "function"

// Operation is the name of the step in the definition of an operation. Operations with the same
// policy and limits share a definition, and all operations of a workflow share a queue.
const Operation = "operation"

// SkipKind is the kind, in the identity of an operation, of those that only say that the function
// has left out an operation of that name. A retry of the run forgets them.
const SkipKind = "skip"

// flow has the operations of a run of a flow. That of a cold run has only ops, without their
// names: see coldFlow.
type flow struct {
	ops      []op   // operations that have not ended, ordered by number; their states are Run.Steps[1:]
	results  []byte // encoded results of the operations that have ended: see OpResult
	redo     []byte // encoded numbers of the failed operations that a retry of the run calls again
	about    *about // status and tags; nil if the function has set none
	inbox    *inbox // signals; nil if the run has got none
	undo     *undo  // how the run ends when its operations are undone; nil if it does not undo them
	count    int32  // number of operations that were called
	undoable int32  // number of operations with an undo that were called
	undos    int32  // how often the operations were undone and called again
	attempts int32  // number of attempts of operations that have ended
	size     int32  // bytes of the results of the operations
	awaited  int32  // while the function is suspended: how many operations must end before it is called again
}

// about is what the function has said about the run.
type about struct {
	status string // what the function set last by SetStatus
	tags   string // JSON object of the tags that the function set by SetTag; "" if it has never set any
}

var noAbout about

// op is an operation that has not ended.
type op struct {
	name     string      // identity: kind, name and key
	def      *Definition // policy and limits; nil for a sleep
	progress []byte      // last progress or memo; nil for none
	number   int32       // number of the step
}

// sleepStep is the definition of the step of a sleep, which has no attempts.
var sleepStep = Step{Name: "sleep"}

// IsFlow reports whether the run is that of a flow.
func (r *Run) IsFlow() bool { return r.flow != nil }

// IsFunction reports whether the step is the function of a flow.
func (r *Run) IsFunction(step int) bool { return r.flow != nil && step == 0 }

// has reports whether the run has a step with this number, and the step is not an operation that
// has ended.
func (r *Run) has(n int) bool {
	if r.flow == nil {
		return n < len(r.Steps)
	}
	return n == 0 || r.flow.index(n) >= 0
}

// Step returns the state of a step; nil if it is an operation that has ended.
func (r *Run) Step(n int) *StepState {
	if r.flow == nil || n == 0 {
		return &r.Steps[n]
	}
	return r.opState(n)
}

func (r *Run) opState(n int) *StepState {
	i := r.flow.index(n)
	if i < 0 {
		return nil
	}
	return &r.Steps[i+1]
}

// StepDef returns the definition of a step. The step must not be an operation that has ended.
func (r *Run) StepDef(n int) *Step {
	if r.flow == nil || n == 0 {
		return &r.Def.Steps[n]
	}
	return r.opDef(n)
}

func (r *Run) opDef(n int) *Step {
	if d := r.flow.ops[r.flow.index(n)].def; d != nil {
		return &d.Steps[0]
	}
	return &sleepStep
}

// StepName returns the name of a step; "" if it is an operation that has ended.
func (r *Run) StepName(n int) string {
	if r.flow == nil || n == 0 {
		return r.Def.Steps[n].Name
	}
	return OpName(r.Identity(n))
}

// Identity returns the identity of an operation; "" if it has ended.
func (r *Run) Identity(n int) string {
	if i := r.flow.index(n); i >= 0 {
		return r.flow.ops[i].name
	}
	return ""
}

// OpName returns the name of an operation with this identity, as it is shown: with its key or
// index, and without its kind.
func OpName(identity string) string {
	_, name, _ := strings.Cut(identity, ":")
	return name
}

// Live yields the numbers and states of the steps: of a flow, those of the function and of the
// operations that have not ended.
func (r *Run) Live() iter.Seq2[int, *StepState] {
	return func(yield func(int, *StepState) bool) {
		for i := range r.Steps {
			n := i
			if i > 0 && r.flow != nil {
				n = int(r.flow.ops[i-1].number)
			}
			if !yield(n, &r.Steps[i]) {
				return
			}
		}
	}
}

// Progress returns the last progress or memo of a step; nil if there is none.
func (r *Run) Progress(n int) []byte {
	if r.flow == nil || n == 0 {
		return r.extra.Progress(n)
	}
	if i := r.flow.index(n); i >= 0 {
		return r.flow.ops[i].progress
	}
	return nil
}

// index returns the index of an operation in ops; negative if it is not there.
func (f *flow) index(n int) int {
	if last := len(f.ops) - 1; last >= 0 && f.ops[last].number == int32(n) { // most often
		return last
	}
	i, found := slices.BinarySearchFunc(f.ops, int32(n), func(o op, n int32) int { return cmp.Compare(o.number, n) })
	if !found {
		return -1
	}
	return i
}

// Status returns what the function of the run set last by SetStatus.
func (r *Run) Status() string { return r.about().status }

// Tags returns the JSON object of the run's tags; "" if its function has never set any.
func (r *Run) Tags() string { return r.about().tags }

// about returns what the function has said about the run. The caller must not change it.
func (r *Run) about() *about {
	if r.flow == nil || r.flow.about == nil {
		return &noAbout
	}
	return r.flow.about
}

// CalledOps returns the number of operations that the run has called, and the bytes of their
// results and of signals.
func (r *Run) CalledOps() (n, bytes int) {
	return int(r.flow.count), int(r.flow.size) + int(r.flow.inbox.read().size)
}

// Pending returns the identities and numbers of the operations that have not ended; nil if there
// are none.
func (r *Run) Pending() map[string]int {
	if len(r.flow.ops) == 0 {
		return nil
	}
	ops := make(map[string]int, len(r.flow.ops))
	for _, o := range r.flow.ops {
		ops[o.name] = int(o.number)
	}
	return ops
}

// OpResult is the result of an operation that has ended.
type OpResult struct {
	Number   int
	Name     string // identity: kind, name and key
	Attempts int
	Spent    int   // attempts that count for the policy, as in StepState
	Began    int64 // when the operation was called or its first attempt began
	Ended    int64
	Reason   retry.Reason // why the operation failed; 0 if it succeeded
	Code     string       // code of the failure
	Text     string       // error, if it failed
	Data     []byte       // output, if it succeeded
}

func (o *OpResult) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(o.Number))
	b = codec.AppendBytes(b, o.Name)
	b = binary.AppendUvarint(b, uint64(o.Attempts))
	b = binary.AppendUvarint(b, uint64(o.Spent))
	b = binary.AppendVarint(b, o.Began)
	b = binary.AppendVarint(b, o.Ended-o.Began)
	b = append(b, byte(o.Reason))
	if o.Reason != 0 {
		b = codec.AppendBytes(b, o.Code)
		b = codec.AppendBytes(b, o.Text)
	}
	return codec.AppendBytes(b, o.Data)
}

func (o *OpResult) read(in *codec.Reader) {
	*o = OpResult{Number: in.Number(), Name: string(in.Bytes()), Attempts: in.Number(), Spent: in.Number(), Began: in.Varint()}
	o.Ended = o.Began + in.Varint()
	o.readOutcome(in)
}

// readOutcome reads what follows the times.
func (o *OpResult) readOutcome(in *codec.Reader) {
	if o.Reason = retry.Reason(in.Byte()); o.Reason != 0 {
		o.Code, o.Text = string(in.Bytes()), string(in.Bytes())
	}
	o.Data = in.Bytes()
}

// Results returns the encoded results of the operations that have ended, for ReadResults. The
// bytes do not change any more. The run must not be cold.
func (r *Run) Results() []byte {
	if r.flow == nil {
		return nil
	}
	return slices.Clip(r.flow.results[r.flow.formerEnd():])
}

// ReadResults yields the results of operations, in the order in which the operations ended. Their
// data shares the memory of the encoded results.
func ReadResults(encoded []byte) iter.Seq[OpResult] {
	return func(yield func(OpResult) bool) {
		for _, o := range resultsAt(encoded) {
			if !yield(o) {
				return
			}
		}
	}
}

// resultsAt is ReadResults that also yields the offset of each result in the encoded ones.
func resultsAt(encoded []byte) iter.Seq2[int, OpResult] {
	return func(yield func(int, OpResult) bool) {
		for in := (codec.Reader{Data: encoded}); len(in.Data) > 0; {
			at := len(encoded) - len(in.Data)
			var o OpResult
			if o.read(&in); in.Err != nil || !yield(at, o) {
				return
			}
		}
	}
}

// OpCall is a call of an operation by the function of a run.
type OpCall struct {
	Name  string      // identity: kind, name and key
	Def   *Definition // policy and limits of an operation with attempts; nil for others
	Due   int64       // of a sleep: when it ends
	Data  []byte      // result of an operation that has ended with its call
	About []byte      // of an operation that waits for an answer: the question
	Child *Child      // of an operation that waits for a child
	Undo  bool        // it has an undo
	Begin bool        // its first attempt begins: see CanBegin
}

// Call decides to add an operation to the run.
func (c Commands) Call(r *Run, o *OpCall, now int64) Record {
	rec := Record{Kind: Called, Run: r.ID, Step: int(r.flow.count) + 1, At: now, Text: o.Name, Due: o.Due, Data: o.Data}
	if o.Def != nil {
		rec.Hash = o.Def.hash
	}
	if o.About != nil {
		rec.Outputs = [][]byte{o.About}
	}
	if c := o.Child; c != nil {
		rec.Outputs, rec.Other = [][]byte{c.Encode()}, c.ID
		if !c.Former.ID.IsZero() {
			rec.format = ChildFormat // an older version would wait for a run that does not exist
		}
	}
	if o.Undo {
		rec.Count = 1
	}
	if o.Begin {
		rec.Attempt, rec.Deadline = 1, attemptEnd(r, &o.Def.Steps[0].Policy, now, now)
	}
	return rec
}

// CanBegin reports whether the first attempt of an operation with this definition can begin with the
// call of the operation, without waiting in its queue: the queue is empty, and neither the run nor its
// workflow is paused.
func (c Commands) CanBegin(r *Run, def *Definition) bool {
	known, ok := c.defs[def.hash]
	return ok && known.Steps[0].queue.Len() == 0 && r.waits() && r.Pause() == nil
}

// Suspend decides that the call of the run's function ends, because all operations that it waits
// for have long waits. The function is called again when an operation needs an attempt, or
// this many of them have ended.
func (c Commands) Suspend(r *Run, awaited int, now int64) Record {
	return Record{Kind: Suspended, Run: r.ID, At: now, Attempt: int(r.Steps[0].Attempt), Count: awaited}
}

// Slept decides that a sleep has ended, or that the time is over in which an operation waits for a
// signal.
func (c Commands) Slept(r *Run, n int, now int64) Record {
	_ = c.warm(r) // Apply returns the error
	if r.IsAwait(n) {
		return c.noSignal(r, n, now)
	}
	return Record{Kind: Done, Run: r.ID, Step: n, At: now, Data: []byte("null")}
}

// Mismatch decides that the run waits for other code, because its function did not call the same
// operations as before.
func (c Commands) Mismatch(r *Run, why string, now int64) Record {
	return Record{Kind: Parked, Run: r.ID, At: now, Attempt: int(r.Steps[0].Attempt), Text: why}
}

// Recall decides that a call of the function that was lost with its process is made again. It
// is no loss of the function if AwaitsOp is true.
func (c Commands) Recall(r *Run, now int64) Record {
	return Record{Kind: Released, Run: r.ID, At: now, Attempt: int(r.Steps[0].Attempt), Text: "the process died while the function waited for an operation"}
}

// AwaitsOp reports whether the function, which is called, waits for an operation: so the function
// can't have ended the process. That is known if an operation runs, or if an operation that has
// not ended was called or had an attempt since the call of the function began.
func (r *Run) AwaitsOp() bool {
	if r.running > 1 {
		return true
	}
	awaits := false
	for rec := range r.Records() {
		switch {
		case rec.Kind == Omitted, rec.Kind == Begun && rec.Step == 0:
			awaits = false
		case rec.Kind == Called, rec.Kind == Begun:
			awaits = awaits || r.flow.index(rec.Step) >= 0
		}
	}
	return awaits
}

// Describe decides to set the status of the run and its tags, a JSON object. "" leaves the tags
// as they are.
func (c Commands) Describe(r *Run, status, tags string, now int64) Record {
	rec := Record{Kind: Described, Run: r.ID, At: now, Text: status}
	if tags != "" {
		rec.Data = []byte(tags)
	}
	return rec
}

// applyDescribed sets the status and the tags of the run. The old value is not changed, because a
// copy of the run may share it.
func (f *flow) applyDescribed(rec *Record) {
	next := about{status: rec.Text}
	if f.about != nil {
		next.tags = f.about.tags
	}
	if rec.Data != nil {
		next.tags = string(rec.Data)
	}
	f.about = &next
}

// Continue decides that the run ends and another run of its chain, next, follows it.
func (c Commands) Continue(r *Run, next ID, now int64) Record {
	return Record{Kind: Continued, Run: r.ID, At: now, Attempt: int(r.Steps[0].Attempt), Other: next, Ends: Succeeded}
}

// Offer puts an operation that is due into its queue. The engine calls it when the function of
// the run has called the operation again, so that an attempt can begin.
func (m *Machine) Offer(r *Run, n int, now int64) {
	if s := r.Step(n); s != nil && s.Status == Waiting && s.At <= now && s.timer == noTimer && r.waits() {
		m.enqueue(r, n)
		m.updateCounts(r)
	}
}

// Withdraw removes an operation from its queue. The engine calls it if the function that has to
// make the attempt is not running.
func (m *Machine) Withdraw(r *Run, n int) {
	m.dequeue(r, n)
	m.updateCounts(r)
}

// CallAgain makes the function of a run due, if it is suspended.
func (m *Machine) CallAgain(r *Run) {
	if s := &r.Steps[0]; s.Status == Blocked && r.waits() {
		m.enqueue(r, 0)
		m.updateCounts(r)
	}
}

// IsSuspended reports whether the function of the run waits for operations, and no call of it is
// running or due.
func (r *Run) IsSuspended() bool {
	return r.flow != nil && r.Steps[0].Status == Blocked && !r.Steps[0].queued && r.waits() && !r.IsUndoing()
}

// WaitsForEver reports whether an operation of the run waits for a signal or a child, without a limit.
func (r *Run) WaitsForEver() bool {
	return r.flow != nil && slices.ContainsFunc(r.Steps[1:], func(s StepState) bool { return s.Status == Blocked })
}

// WaitsIn reports whether the run has an operation that has not ended and that is one which has
// reports, by its name without the index of an item. kept has the names of the signals that no
// operation has waited for.
func (m *Machine) WaitsIn(r *Run, has func(name string, kept []string) bool) (bool, error) {
	whole, err := m.whole(r)
	if err != nil {
		return false, err
	}
	var kept []string
	for _, s := range whole.flow.inbox.read().signals {
		kept = append(kept, s.name)
	}
	return slices.ContainsFunc(whole.flow.ops, func(o op) bool {
		name, _, _ := strings.Cut(OpName(o.name), "#")
		return has(name, kept)
	}), nil
}

// applyCalled adds an operation to the run.
func (m *Machine) applyCalled(r *Run, rec *Record) error {
	f := r.flow
	if f == nil || rec.Step != int(f.count)+1 {
		return fmt.Errorf("%w: run %s calls an operation with the number %d", ErrEncoding, rec.Run, rec.Step)
	}
	f.count++
	f.undoable += int32(rec.Count)
	if rec.Data != nil {
		f.addResult(&OpResult{Number: rec.Step, Name: rec.Text, Began: rec.At, Ended: rec.At, Data: rec.Data})
		return nil
	}
	signal, isAwait := awaited(rec.Text)
	if isAwait {
		if s, ok := f.inbox.take(signal); ok {
			f.addResult(&OpResult{Number: rec.Step, Name: rec.Text, Began: rec.At, Ended: rec.At, Data: s.data})
			return nil
		}
	}
	o := op{name: rec.Text, number: int32(rec.Step)}
	if len(rec.Outputs) > 0 {
		o.progress = bytes.Clone(rec.Outputs[0])
		if strings.HasPrefix(o.name, AskKind+":") {
			said := *r.about()
			said.tags = cmp.Or(said.tags, "{}") // the view has a tag for a question, which it must be able to remove
			f.about = &said
		}
	}
	due := rec.Due
	if rec.Hash != (Hash{}) {
		d, ok := m.defs[rec.Hash]
		if !ok {
			return fmt.Errorf("%w: an operation of run %s has an unknown definition", ErrEncoding, rec.Run)
		}
		o.def, due = d, rec.At
	}
	f.ops = append(f.ops, o)
	r.Steps = append(r.Steps, StepState{timer: noTimer})
	if rec.Attempt > 0 {
		m.applyBegun(r, rec)
	} else if _, isChild := o.child(); !isAwait && !isChild || due != 0 { // else it waits, as Blocked, for a signal or its child only
		m.wait(r, rec.Step, due)
	}
	return nil
}

// minError is how many bytes of its error a failed operation can always store.
const minError = 100

// fitError cuts the error of a failed operation if the results of the run have no room for it.
func (f *flow) fitError(text string) string {
	room := max(MaxResults-int(f.size), minError)
	return textfmt.TruncateValid(text, room, "… (cut: the results of the run have the largest size)")
}

func (f *flow) addResult(o *OpResult) {
	f.results = o.append(slices.Grow(f.results, 40+len(o.Name)+len(o.Code)+len(o.Text)+len(o.Data)))
	f.size += int32(len(o.Data) + len(o.Text))
	f.attempts += int32(o.Attempts)
}

// addFormer keeps the former children of operations, by the names of their results. They are before
// the results of operations, so that these are found fast: see formerEnd.
func (f *flow) addFormer(children map[string][]byte) {
	if len(children) == 0 {
		return
	}
	f.removeResults(func(_ int, o *OpResult) bool { return children[o.Name] != nil })
	var former []byte
	for _, name := range slices.Sorted(maps.Keys(children)) {
		o := OpResult{Name: name, Data: children[name]}
		former = o.append(former)
		f.size += int32(len(o.Data))
	}
	f.results = slices.Concat(former, f.results)
	if f.undo != nil {
		f.undo.since += len(former)
	}
}

// formerEnd returns where the results of operations begin, after the former children.
func (f *flow) formerEnd() int {
	for at, o := range resultsAt(f.results) {
		if o.Number > 0 {
			return at
		}
	}
	return len(f.results)
}

// endOp keeps the result of an operation that has ended, and removes its step.
func (m *state) endOp(r *Run, rec *Record) {
	f, s := r.flow, r.Step(rec.Step)
	o := OpResult{
		Number: rec.Step, Name: r.Identity(rec.Step), Attempts: int(s.Attempt), Spent: int(s.Spent), Began: cmp.Or(s.First, rec.At), Ended: rec.At,
		Reason: rec.Reason, Data: rec.Data,
	}
	if rec.Reason != 0 {
		o.Code, o.Text, o.Data = string(rec.Data), rec.Text, nil
	}
	if c, ok := f.ops[f.index(rec.Step)].child(); ok {
		former := c.after(rec)
		switch {
		case rec.Reason != 0:
			o.Data = former.append(nil)
		case former.Origin != c.ID || former.Undos > 0: // else it follows from the number of the operation
			f.addFormer(map[string][]byte{FormerKind + ":" + OpName(o.Name): former.append(nil)})
		}
	}
	f.addResult(&o)
	m.removeOp(r, rec.Step)
	m.forgetLosses(r)
	function := &r.Steps[0]
	if f.awaited--; f.awaited <= 0 && function.Status == Blocked {
		m.wait(r, 0, rec.At)
	}
}

// removeOp removes the step of an operation.
func (m *state) removeOp(r *Run, n int) {
	m.timers.unset(r, int32(n))
	m.dequeue(r, n)
	f := r.flow
	i := f.index(n)
	f.ops = slices.Delete(f.ops, i, i+1)
	r.Steps = slices.Delete(r.Steps, i+1, i+2)
}

// forgetLosses sets the losses of the function to zero, because it has made progress.
func (m *state) forgetLosses(r *Run) {
	s := &r.Steps[0]
	suspect := s.queued && s.Lost > 0
	if suspect {
		m.dequeue(r, 0)
	}
	if s.Lost = 0; suspect {
		m.enqueue(r, 0) // as a step without losses
	}
}

// applySuspended ends the call of the function until enough operations have ended.
func (m *state) applySuspended(r *Run, rec *Record) {
	s := &r.Steps[0]
	m.endAttempt(r, 0)
	s.Status = Blocked
	s.recount()
	r.flow.awaited = int32(rec.Count)
	f := r.flow
	f.ops, r.Steps = shrunk(f.ops), shrunk(r.Steps) // a Map may have made them long
	f.results, r.History = shrunk(f.results), shrunk(r.History)
}

// shrunk returns the slice without the memory that it does not use, if that is much: there may be
// many suspended runs. A long slice is copied only if it uses less than half of its memory, because
// a run may be suspended often.
func shrunk[T any](s []T) []T {
	unused := cap(s) - len(s)
	if unused <= len(s)/8 || len(s) > 4096 && unused <= len(s) {
		return s
	}
	return append([]T(nil), s...)
}

// endAttempt stops counting the attempt of a step as running.
func (m *state) endAttempt(r *Run, step int) {
	if r.Step(step).Status == Running {
		r.running--
		r.StepDef(step).queue.Running--
	}
}

// retryFlow forgets the failures that made the function give up, and makes the function due. If
// the record has a definition, the run continues with that one.
func (m *state) retryFlow(r *Run, rec *Record) {
	f := r.flow
	if d, ok := m.defs[rec.Hash]; ok && d != r.Def {
		r.Def.runs--
		r.Def = d
		d.runs++
		m.use(rec.Hash, rec.At)
	}
	redo := map[int]bool{}
	for in := (codec.Reader{Data: f.redo}); len(in.Data) > 0; {
		redo[in.Number()] = true
	}
	f.redo = nil
	keep := rec.Count > 0
	m.adopted = m.adopted || keep
	f.forgetUndone(keep)
	f.forget(keep, func(_ int, o *OpResult) bool {
		afterEnd := strings.HasPrefix(o.Name, SkipKind+":") || isChildOp(o.Name) && o.Reason != 0 && o.Code == parentEnded
		return redo[o.Number] || f.undo == nil && afterEnd
	})
}

// forget removes results, so that the operations are called again. keepChildren says that the former
// children of these operations are kept, which earlier versions did not.
func (f *flow) forget(keepChildren bool, drop func(at int, o *OpResult) bool) {
	former := map[string][]byte{} // of the operations that are removed, by the name of their result
	if keepChildren {
		for at, o := range resultsAt(f.results) {
			if c, ok := o.former(); ok && drop(at, &o) {
				former[FormerKind+":"+OpName(o.Name)] = c.append(nil)
			}
		}
	}
	f.removeResults(drop)
	f.addFormer(former)
}

// removeResults removes results.
func (f *flow) removeResults(drop func(at int, o *OpResult) bool) {
	var kept []byte
	before := 0 // bytes of the results that are kept, of those before undo.since
	for at, o := range resultsAt(f.results) {
		if drop(at, &o) {
			f.size -= int32(len(o.Data) + len(o.Text))
			f.attempts -= int32(o.Attempts)
			continue
		}
		if kept = o.append(kept); f.undo != nil && at < f.undo.since {
			before = len(kept)
		}
	}
	f.results = kept
	if f.undo != nil {
		f.undo.since = before
	}
}

// EncodeRedo encodes the numbers of the operations that a retry of the run calls again.
func EncodeRedo(numbers []int) (b []byte) {
	for _, n := range numbers {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// FailedOp returns the result of the first of the operations that a retry of the run calls again: its
// failure has made the function give up. ok is false if no operation has failed. The run must be that
// of a flow.
func (r *Run) FailedOp() (op OpResult, ok bool) {
	redo := map[int]bool{}
	for in := (codec.Reader{Data: r.flow.redo}); len(in.Data) > 0; {
		redo[in.Number()] = true
	}
	if len(redo) == 0 {
		return op, false
	}
	for o := range ReadResults(r.flow.results) {
		if redo[o.Number] && (!ok || o.Number < op.Number) {
			op, ok = o, true
		}
	}
	return op, ok
}

// append encodes the operations of a run.
func (f *flow) append(b []byte) []byte {
	for _, n := range [...]int32{f.count, f.attempts, f.size, f.awaited} {
		b = binary.AppendVarint(b, int64(n))
	}
	said := &noAbout
	if f.about != nil {
		said = f.about
	}
	b = codec.AppendBytes(b, said.status)
	b = codec.AppendBytes(b, said.tags)
	b = codec.AppendBytes(b, f.redo)
	b = codec.AppendBytes(b, f.results)
	var signals []byte
	if f.inbox != nil {
		signals = f.inbox.append(nil)
	}
	b = codec.AppendBytes(b, signals)
	b = f.appendUndo(b)
	b = binary.AppendUvarint(b, uint64(len(f.ops)))
	for i := range f.ops {
		o := &f.ops[i]
		b = binary.AppendUvarint(b, uint64(o.number))
		b = codec.AppendBytes(b, o.name)
		var def []byte
		if o.def != nil {
			def = o.def.text
		}
		b = codec.AppendBytes(b, def)
		b = codec.AppendBytes(b, o.progress)
	}
	return b
}

// readFlow decodes the operations of a run. It uses the memory of the operations that f has. The
// results share the memory of the input.
func (d *runDecoder) readFlow(f *flow, in *codec.Reader) error {
	*f = flow{count: int32(in.Varint()), attempts: int32(in.Varint()), size: int32(in.Varint()), awaited: int32(in.Varint()), ops: f.ops[:0]}
	if said := (about{string(in.Bytes()), string(in.Bytes())}); said != noAbout {
		f.about = &said
	}
	if redo := in.Bytes(); len(redo) > 0 {
		f.redo = slices.Clone(redo)
	}
	f.results = in.Bytes()
	var err error
	if f.inbox, err = readInbox(in.Bytes()); err != nil {
		return err
	}
	f.readUndo(in)
	n := in.Number()
	if n > MaxOps || n > len(in.Data) {
		in.Fail()
		return in.Err
	}
	f.ops = slices.Grow(f.ops, n)
	for range n {
		o := op{number: int32(in.Number()), name: d.names.get(in.Bytes())}
		if text := in.Bytes(); len(text) > 0 && in.Err == nil {
			def, err := d.definitions.operation(text)
			if err != nil {
				return err
			}
			o.def = def
		}
		if p := in.Bytes(); len(p) > 0 {
			o.progress = slices.Clone(p)
		}
		f.ops = append(f.ops, o)
	}
	return in.Err
}

// operation returns the definition of an operation with this stored text. It adds the
// definition if it is new.
func (s *definitionSet) operation(text []byte) (*Definition, error) {
	sum := sha256.Sum256(text)
	if d, ok := s.defs[Hash(sum[:16])]; ok {
		return d, nil
	}
	d, err := ParseDefinition(text)
	if err != nil {
		return nil, err
	}
	s.define(d)
	return s.defs[d.hash], nil
}

// Sleep is a sleep, or a wait for a signal, of a run that is over.
type Sleep struct {
	Run    *Run
	Number int // number of the step
}

// Continued reports whether the run ended because another run continues its work.
func (r *Run) Continued() bool { return r.Outcome == Succeeded && !r.ReplacedBy().IsZero() }
