package machine

import "math"

// timers is a heap of waiting steps and deadlines, ordered by due time. Each node has four
// children, which halves the depth of the heap. Runs and steps have the index of their timer,
// so that it can be removed without a search.
type timers struct {
	heap []timer
}

type timer struct {
	due  int64
	run  *Run
	step int32 // index of the step, or the constant deadline for the deadline of the run
}

// index returns where the run or step keeps the index of this timer in the heap.
func (t *timer) index() *int32 {
	if t.step == deadline {
		return &t.run.timer
	}
	return &t.run.Step(int(t.step)).timer
}

// Next returns when the first timer is due; math.MaxInt64 if there is none.
func (h *timers) Next() int64 {
	if t, ok := h.first(); ok {
		return t.due
	}
	return math.MaxInt64
}

// Waiting returns the number of timers.
func (h *timers) Waiting() int { return len(h.heap) }

// LastDue returns the due time of the last timer; 0 if no timer is set.
func (h *timers) LastDue() (at int64) {
	for _, t := range h.heap {
		at = max(at, t.due)
	}
	return at
}

// set sets the due time of a timer. It adds the timer if it is not set.
func (h *timers) set(run *Run, step int32, due int64) {
	t := timer{due, run, step}
	at := t.index()
	if *at == noTimer {
		*at = int32(len(h.heap))
		h.heap = append(h.heap, t)
		h.up(int(*at))
		return
	}
	h.heap[*at].due = due
	if i := int(*at); !h.up(i) {
		h.down(i)
	}
}

// unset removes a timer, if it is set.
func (h *timers) unset(run *Run, step int32) {
	t := timer{run: run, step: step}
	at := t.index()
	i := int(*at)
	if i == noTimer {
		return
	}
	*at = noTimer
	last := len(h.heap) - 1
	moved := h.heap[last]
	h.heap[last] = timer{}
	h.heap = h.heap[:last]
	if i == last {
		return
	}
	h.put(i, moved)
	if !h.up(i) {
		h.down(i)
	}
}

// first returns the timer that is due first.
func (h *timers) first() (timer, bool) {
	if len(h.heap) == 0 {
		return timer{}, false
	}
	return h.heap[0], true
}

func (h *timers) up(i int) (moved bool) {
	t := h.heap[i]
	for i > 0 {
		parent := (i - 1) / 4
		if h.heap[parent].due <= t.due {
			break
		}
		h.put(i, h.heap[parent])
		i, moved = parent, true
	}
	h.put(i, t)
	return moved
}

func (h *timers) down(i int) {
	t := h.heap[i]
	for {
		first := 4*i + 1
		if first >= len(h.heap) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(h.heap)); c++ {
			if h.heap[c].due < h.heap[least].due {
				least = c
			}
		}
		if h.heap[least].due >= t.due {
			break
		}
		h.put(i, h.heap[least])
		i = least
	}
	h.put(i, t)
}

func (h *timers) put(i int, t timer) {
	h.heap[i] = t
	*t.index() = int32(i)
}

// reset copies the due times of a run and its steps to their timers. rebuild must follow.
func (h *timers) reset(r *Run) {
	for i := range r.Steps {
		if s := &r.Steps[i]; s.timer != noTimer {
			h.heap[s.timer].due = s.At
		}
	}
	if r.timer != noTimer {
		h.heap[r.timer].due = r.Deadline
	}
}

// rebuild restores the order of the heap after due times were changed in place.
func (h *timers) rebuild() {
	for i := len(h.heap)/4 + 1; i >= 0; i-- {
		if i < len(h.heap) {
			h.down(i)
		}
	}
}
