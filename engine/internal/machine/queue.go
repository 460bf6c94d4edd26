package machine

// Workflow is what all runs of a name have in common, whatever the definition
// they follow.
type Workflow struct {
	Name   string
	Active int         // runs that have begun and are not closed
	Counts [States]int // runs in memory, by where they are
	Totals Totals
	queues []*Queue
}

// Totals counts what happened since the log began.
type Totals struct {
	Started, Succeeded, Dead, Canceled uint64
	Attempts, Failures, Lost           uint64
}

// Queue is the steps of a name that are due, oldest first. Runs that have a place
// go before those that have none, which is what keeps a limit on the runs of a
// workflow from blocking those within it.
type Queue struct {
	Workflow *Workflow
	Step     string
	Running  int // attempts

	begun, fresh fifo
	gone         int  // that left since the last look for them, at most
	listed       bool // in Machine.busy
}

// Len returns how many stand in the queue, at most: some may have left.
func (q *Queue) Len() int { return q.begun.len() + q.fresh.len() }

type place struct {
	run  *Run
	step int32
}

// fifo is a queue in a ring.
type fifo struct {
	ring []place
	head int
	n    int
}

func (f *fifo) len() int { return f.n }

func (f *fifo) push(p place) {
	if f.n == len(f.ring) {
		ring := make([]place, max(8, 2*f.n))
		for i := range f.n {
			ring[i] = f.ring[(f.head+i)%len(f.ring)]
		}
		f.ring, f.head = ring, 0
	}
	f.ring[(f.head+f.n)%len(f.ring)] = p
	f.n++
}

func (f *fifo) first() (p place, ok bool) {
	if f.n == 0 {
		return place{}, false
	}
	return f.ring[f.head], true
}

func (f *fifo) pop() {
	f.ring[f.head] = place{}
	f.head = (f.head + 1) % len(f.ring)
	f.n--
	if f.n == 0 {
		f.head = 0
		if len(f.ring) > 1024 {
			f.ring = nil
		}
	}
}

// enqueue puts a step that is due into its queue.
func (m *Machine) enqueue(run *Run, step int) {
	s := &run.Steps[step]
	if s.queued {
		return
	}
	s.queued = true
	if s.Lost > 0 {
		m.addSuspect(place{run, int32(step)})
		return
	}
	q := run.Def.Steps[step].queue
	if run.active {
		q.begun.push(place{run, int32(step)})
	} else {
		q.fresh.push(place{run, int32(step)})
	}
	if !q.listed {
		q.listed = true
		m.busy = append(m.busy, q)
	}
}

// leave takes a step out of its queue, if it stands there. Its place is found
// to be empty later; when many are, they are looked for, because each keeps a
// run in memory, and a queue may be blocked for long.
func (m *Machine) leave(run *Run, step int) {
	s := &run.Steps[step]
	if !s.queued {
		return
	}
	s.queued = false
	if s.Lost > 0 {
		m.removeSuspect(place{run, int32(step)})
		return
	}
	q := run.Def.Steps[step].queue
	if q.gone++; q.gone > 64 && q.gone > q.Len()/2 {
		q.begun.compact()
		q.fresh.compact()
		q.gone = 0
	}
}

// requeue lets the steps of a run stand where those of its kind do: a limit on the
// runs must neither hold up one that is within it nor let another pass.
func (m *Machine) requeue(run *Run) {
	for i := range run.Steps {
		if s := &run.Steps[i]; s.queued && s.Lost == 0 {
			s.queued = false
			m.enqueue(run, i)
		}
	}
}

// waits reports whether the step still stands in its queue.
func (p place) waits() bool {
	s := &p.run.Steps[p.step]
	return s.queued && s.Lost == 0
}

// compact lets go of those that have left.
func (f *fifo) compact() {
	var kept fifo
	for i := range f.n {
		if p := f.ring[(f.head+i)%len(f.ring)]; p.waits() {
			kept.push(p)
		}
	}
	*f = kept
}

// Busy returns the queues that may have somebody in them.
func (m *Machine) Busy() []*Queue {
	kept := m.busy[:0]
	for _, q := range m.busy {
		if q.Len() > 0 {
			kept = append(kept, q)
		} else {
			q.listed = false
		}
	}
	clear(m.busy[len(kept):])
	m.busy = kept
	return kept
}

// First returns the step of the queue that is next. A fresh run is returned only
// if it may begin. It stays in the queue until it begins, is parked or ends.
func (q *Queue) First(fresh bool) (run *Run, step int, ok bool) {
	if run, step, ok = q.begun.next(true); ok || !fresh {
		return run, step, ok
	}
	return q.fresh.next(false)
}

// next returns the first that has not left meanwhile, nor stands in the other one.
func (f *fifo) next(active bool) (*Run, int, bool) {
	for {
		p, ok := f.first()
		if !ok {
			return nil, 0, false
		}
		if p.waits() && p.run.active == active {
			return p.run, int(p.step), true
		}
		f.pop()
	}
}

// Oldest returns since when the one in the queue that was due first has been due.
func (q *Queue) Oldest() (at int64, ok bool) {
	for _, f := range []struct {
		fifo   *fifo
		active bool
	}{{&q.begun, true}, {&q.fresh, false}} {
		run, step, there := f.fifo.next(f.active)
		if there && (!ok || run.Steps[step].At < at) {
			at, ok = run.Steps[step].At, true
		}
	}
	return at, ok
}

// begun reports whether the run has had an attempt since it was last put to
// work.
func (r *Run) begun() bool {
	for i := range r.Steps {
		if r.Steps[i].Attempt > 0 {
			return true
		}
	}
	return false
}

// Add adds what was counted elsewhere.
func (t *Totals) Add(o Totals) {
	t.Started += o.Started
	t.Succeeded += o.Succeeded
	t.Dead += o.Dead
	t.Canceled += o.Canceled
	t.Attempts += o.Attempts
	t.Failures += o.Failures
	t.Lost += o.Lost
}
