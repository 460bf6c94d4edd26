package machine

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"iter"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/info"
)

// Workflow has the counts and queues of all runs of a workflow, also of runs with different
// definitions.
type Workflow struct {
	Name   string
	Active int         // number of runs that count for a limit of runs: see Run.HasPlace
	Counts [States]int // number of runs in memory, by state
	Totals info.Totals
	Pause  *Pause            // nil if the workflow is not paused
	queues map[string]*Queue // by step
}

// Queue has the due steps with one name, in all runs of a workflow, oldest first. Steps of runs
// that already count towards the limit of concurrent runs come first: the limit must not block
// them.
type Queue struct {
	Workflow *Workflow
	Step     string
	Running  int // number of running attempts of the step

	all     lanes
	undoing lanes // while the workflow is paused: those of runs that are undoing, which can begin
	gone    int   // upper bound of the entries whose steps have left the queue
	listed  bool  // the queue is in queueSet.busy
}

// lanes has the steps of runs with HasPlace, and those of other runs.
type lanes struct {
	begun, fresh fifo
}

// Len returns an upper bound of the steps in the queue: some may have left it already.
func (q *Queue) Len() int { return q.all.begun.len() + q.all.fresh.len() }

// queue returns the queue of the step. It adds a new one if there is none.
func (w *Workflow) queue(step string) *Queue {
	q := w.queues[step]
	if q == nil {
		q = &Queue{Workflow: w, Step: step}
		w.queues[step] = q
	}
	return q
}

// setPause pauses the workflow, or resumes it if p is nil.
func (w *Workflow) setPause(p *Pause) {
	w.Pause = p
	for _, q := range w.queues {
		q.undoing = lanes{}
		if p == nil {
			continue
		}
		for _, f := range []*fifo{&q.all.begun, &q.all.fresh} {
			for _, ref := range f.list[f.head:] {
				if ref.waits() && ref.run.active == (f == &q.all.begun) && ref.run.flow.IsUndoing() {
					q.undoing.push(ref)
				}
			}
		}
	}
}

// stepRef refers to a step of a run.
type stepRef struct {
	run  *Run
	step int32
}

// fifo is a queue in a slice, from the index head on.
type fifo struct {
	list []stepRef
	head int
}

func (f *fifo) len() int { return len(f.list) - f.head }

func (f *fifo) push(p stepRef) {
	if len(f.list) == cap(f.list) && f.head > len(f.list)/2 {
		f.list, f.head = slices.Delete(f.list, 0, f.head), 0
	}
	f.list = append(f.list, p)
}

func (f *fifo) pop() {
	f.list[f.head] = stepRef{}
	f.head++
	if f.len() > 0 {
		return
	}
	f.list, f.head = f.list[:0], 0
	if cap(f.list) > 1024 {
		f.list = nil
	}
}

func (l *lanes) push(p stepRef) {
	if p.run.active {
		l.begun.push(p)
	} else {
		l.fresh.push(p)
	}
}

func (l *lanes) compact() {
	l.begun.compact()
	l.fresh.compact()
}

// queueSet has the steps that are due. If the last attempt of a step was lost because the process
// died, the step is a suspect: it is in the list of suspects instead of its queue.
type queueSet struct {
	busy     []*Queue  // queues that may not be empty
	suspects []stepRef // suspects that are due, in the order of compareSuspects
}

// enqueue puts a step that is due into its queue.
func (s *queueSet) enqueue(run *Run, step int) {
	ss := run.Step(step)
	if ss.queued {
		return
	}
	ss.queued = true
	if ss.Lost > 0 {
		p := stepRef{run, int32(step)}
		at, _ := slices.BinarySearchFunc(s.suspects, p, compareSuspects)
		s.suspects = slices.Insert(s.suspects, at, p)
		return
	}
	q := run.StepDef(step).queue
	q.all.push(stepRef{run, int32(step)})
	if q.Workflow.Pause != nil && run.flow.IsUndoing() {
		q.undoing.push(stepRef{run, int32(step)})
	}
	if !q.listed {
		q.listed = true
		s.busy = append(s.busy, q)
	}
}

// dequeue marks a step as removed from its queue. Its entry stays in the queue until it is
// skipped. When many entries are marked, the queue is compacted: each entry keeps a run in
// memory, and a queue may be blocked for a long time.
func (s *queueSet) dequeue(run *Run, step int) {
	ss := run.Step(step)
	if !ss.queued {
		return
	}
	ss.queued = false
	if ss.Lost > 0 {
		if at := slices.Index(s.suspects, stepRef{run, int32(step)}); at >= 0 {
			s.suspects = slices.Delete(s.suspects, at, at+1)
		}
		return
	}
	q := run.StepDef(step).queue
	if q.gone++; q.gone > 64 && q.gone > q.Len()/2 {
		q.all.compact()
		q.undoing.compact()
		q.gone = 0
	}
}

// countBegun counts an attempt that begins, for the limits of its workflow. The counts are in memory: when
// a shard is opened, they are those of the runs that it has.
func (s *queueSet) countBegun(run *Run, step int) {
	run.running++
	run.StepDef(step).queue.Running++
	if !run.active {
		run.active = true
		run.Def.workflow.Active++
		s.requeue(run)
	}
}

// requeue moves the queued steps of a run between the two parts of their queues, after
// Run.HasPlace has changed.
func (s *queueSet) requeue(run *Run) {
	for n, ss := range run.Live() {
		if ss.queued && ss.Lost == 0 {
			ss.queued = false
			s.enqueue(run, n)
		}
	}
}

// waits reports whether the step is still in its queue.
func (p stepRef) waits() bool {
	s := p.run.Step(int(p.step))
	return s != nil && s.queued && s.Lost == 0
}

// compact removes the entries of steps that have left the queue.
func (f *fifo) compact() {
	var kept fifo
	for _, p := range f.list[f.head:] {
		if p.waits() {
			kept.push(p)
		}
	}
	*f = kept
}

// Busy returns the queues that may have steps in them.
func (s *queueSet) Busy() []*Queue {
	s.busy = slices.DeleteFunc(s.busy, func(q *Queue) bool {
		q.listed = q.Len() > 0
		return !q.listed
	})
	return s.busy
}

// First returns the next step of the queue that may begin: the first step of the runs that already
// count towards the limit of runs, or else that of the others. It asks only about these two: a limit that
// concerns some runs of a queue, and not all, must go on to later steps here. If the workflow is paused, it returns
// only steps of runs that are undoing. The step stays in the queue until its attempt begins, it is
// parked or its run ends.
func (q *Queue) First(may func(run *Run) bool) (run *Run, step int, ok bool) {
	l, undoing := &q.all, q.Workflow.Pause != nil
	if undoing {
		l = &q.undoing
	}
	if run, step, ok = l.begun.next(true, undoing); ok && may(run) {
		return run, step, true
	}
	run, step, ok = l.fresh.next(false, undoing)
	return run, step, ok && may(run)
}

// next returns the first step that is still in the queue, and removes the entries before it.
// active says whether the runs of this fifo count towards the limit of runs, and undoing that it
// has only steps of runs that are undoing.
func (f *fifo) next(active, undoing bool) (*Run, int, bool) {
	for f.len() > 0 {
		p := f.list[f.head]
		if p.waits() && p.run.active == active && (!undoing || p.run.flow.IsUndoing()) {
			return p.run, int(p.step), true
		}
		f.pop()
	}
	return nil, 0, false
}

// Oldest returns the due time of the step that has waited longest in the queue. ok is false if
// the queue is empty.
func (q *Queue) Oldest() (at int64, ok bool) {
	for active, f := range map[bool]*fifo{true: &q.all.begun, false: &q.all.fresh} {
		if run, step, there := f.next(active, false); there && (!ok || run.Step(step).At < at) {
			at, ok = run.Step(step).At, true
		}
	}
	return at, ok
}

// fieldsOf returns the totals in the order in which they are stored.
func fieldsOf(t *info.Totals) [7]*uint64 {
	return [...]*uint64{&t.Started, &t.Succeeded, &t.Dead, &t.Canceled, &t.Attempts, &t.Failures, &t.Lost}
}

// AddTotals adds other totals to t.
func AddTotals(t *info.Totals, o info.Totals) {
	sum := fieldsOf(t)
	for i, n := range fieldsOf(&o) {
		*sum[i] += *n
	}
}

// A step is a suspect if its last attempt was lost because the process died: the attempt may have
// caused that. A suspect waits longer after each loss. It is not in the queue of its step, and
// begins when the process admits it. After a few losses it has to run alone: if the process dies
// again, the suspect is the cause.

const (
	aloneAfter   = 3                // losses after which a step runs alone, unless MaxLost is less
	firstLostGap = time.Second      // delay after the first loss; it doubles with each loss
	maxLostGap   = time.Minute      // longest delay after a loss
	firstAlone   = 10 * time.Second // isolation of the first attempt that runs alone; it doubles with each loss
	maxDoublings = 13               // how often firstAlone doubles: up to almost a day
)

// lostDelay returns how long a step waits after this many lost attempts in a row.
func lostDelay(lost int) time.Duration {
	doublings := min(max(lost-1, 0), 6) // 2^6 seconds are more than the longest delay
	return min(firstLostGap<<doublings, maxLostGap)
}

// Losses returns the number of attempts of the step that were lost in a row.
func Losses(r *Run, step int) int { return int(r.Step(step).Lost) }

// NeedsIsolation reports whether the next attempt of the step has to run alone in its process.
func NeedsIsolation(r *Run, step int) bool {
	s := r.Step(step)
	return s.Lost > 0 && int(s.Lost) >= isolatedAfter(r, step)
}

// isolatedAfter returns after how many losses the step has to run alone.
func isolatedAfter(r *Run, step int) int {
	return min(max(r.StepDef(step).MaxLost, 1), aloneAfter)
}

// Isolation returns how long a step that has to run alone keeps other attempts from beginning:
// this long before its attempt begins, so that running attempts can end, and this long
// afterwards. It doubles with each further loss, to detect an attempt that ends its process late.
func Isolation(r *Run, step int) time.Duration {
	return firstAlone << min(max(Losses(r, step)-isolatedAfter(r, step), 0), maxDoublings)
}

// Queue returns the queue of the step.
func (s *Step) Queue() *Queue { return s.queue }

// Suspects yields the due steps whose last attempt was lost because the process died. Steps with
// fewer losses come first, and steps that have to run alone come last. It leaves out steps that wait
// because their workflow is paused. The state must not change during the iteration.
func (s *queueSet) Suspects() iter.Seq2[*Run, int] {
	return func(yield func(*Run, int) bool) {
		for _, p := range s.suspects {
			if p.run.Pause() == nil && !yield(p.run, int(p.step)) {
				return
			}
		}
	}
}

// HasSuspects reports whether a suspect is due.
func (s *queueSet) HasSuspects() bool { return len(s.suspects) > 0 }

// compareSuspects orders suspects by losses. The order of suspects that have to run alone changes
// after each loss: otherwise the same suspect could always come first and block the others.
func compareSuspects(a, b stepRef) int {
	rank := func(p stepRef) (losses int, turn uint64) {
		if NeedsIsolation(p.run, int(p.step)) {
			return 1 << 16, p.turn()
		}
		return Losses(p.run, int(p.step)), 0
	}
	lossesA, turnA := rank(a)
	lossesB, turnB := rank(b)
	return cmp.Or(cmp.Compare(lossesA, lossesB), cmp.Compare(turnA, turnB), cmp.Compare(a.due(), b.due()))
}

func (p stepRef) due() int64 { return p.run.Step(int(p.step)).At }

// turn returns a hash of the run, the step and its losses, which compareSuspects orders by.
func (p stepRef) turn() uint64 {
	h := fnv.New64a()
	_, _ = h.Write(p.run.ID[:]) // never fails
	_, _ = h.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(p.step)), uint32(Losses(p.run, int(p.step)))))
	return h.Sum64()
}
