package machine

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"iter"
	"slices"
	"time"
)

// A step is a suspect if its last attempt was lost with the process: the attempt may be what
// ended the process. A suspect waits longer after each loss, is not in the queue of its step,
// and begins when the process admits it. After a few losses it has to run alone, so that
// a process that ends then ends because of it.

const (
	aloneAfter   = 3 // losses after which a step runs alone, unless MaxLost is less
	firstLostGap = time.Second
	maxLostGap   = time.Minute
	firstAlone   = 10 * time.Second
	maxDoublings = 13 // of firstAlone: to almost a day
)

// lostDelay returns how long a step waits after so many lost attempts in a row.
func lostDelay(lost int) time.Duration {
	if lost > 6 { // 2^6 seconds are more than the longest delay
		return maxLostGap
	}
	return min(firstLostGap<<max(lost-1, 0), maxLostGap)
}

// Losses returns how many attempts of the step in a row were lost.
func (r *Run) Losses(step int) int { return int(r.Steps[step].Lost) }

// NeedsIsolation reports whether the next attempt of the step has to be the only one that the
// process makes.
func (r *Run) NeedsIsolation(step int) bool {
	s := &r.Steps[step]
	return s.Lost > 0 && int(s.Lost) >= isolatedAfter(r, step)
}

// isolatedAfter returns after how many losses the step has to run alone.
func isolatedAfter(r *Run, step int) int {
	return min(max(r.Def.Steps[step].MaxLost, 1), aloneAfter)
}

// Isolation returns how long others wait for the next attempt of a step that has to run alone:
// before it begins, for those that run to end, and then for it. It doubles with each further
// loss: an attempt that ends its process late is found too.
func (r *Run) Isolation(step int) time.Duration {
	return firstAlone << min(max(r.Losses(step)-isolatedAfter(r, step), 0), maxDoublings)
}

// Queue returns the queue of the step.
func (r *Run) Queue(step int) *Queue { return r.Def.Steps[step].queue }

// Suspects yields the suspects that are due: those with the fewest losses first, and those that
// have to run alone last. The machine must not change meanwhile.
func (s *queueSet) Suspects() iter.Seq2[*Run, int] {
	return func(yield func(*Run, int) bool) {
		for _, p := range s.suspects {
			if !yield(p.run, int(p.step)) {
				return
			}
		}
	}
}

func (s *queueSet) addSuspect(p place) {
	at, _ := slices.BinarySearchFunc(s.suspects, p, compareSuspects)
	s.suspects = slices.Insert(s.suspects, at, p)
}

func (s *queueSet) removeSuspect(p place) {
	if at := slices.Index(s.suspects, p); at >= 0 {
		s.suspects = slices.Delete(s.suspects, at, at+1)
	}
}

// compareSuspects orders suspects. Those that have to run alone take turns in an order that
// differs after each loss, or one that never ends would always come before another.
func compareSuspects(a, b place) int {
	rank := func(p place) (losses int, turn uint64) {
		if p.run.NeedsIsolation(int(p.step)) {
			return 1 << 16, p.turn()
		}
		return p.run.Losses(int(p.step)), 0
	}
	lossesA, turnA := rank(a)
	lossesB, turnB := rank(b)
	return cmp.Or(cmp.Compare(lossesA, lossesB), cmp.Compare(turnA, turnB), cmp.Compare(a.due(), b.due()))
}

func (p place) due() int64 { return p.run.Steps[p.step].At }

// turn returns a number that is different for each step of a run, and after each loss.
func (p place) turn() uint64 {
	h := fnv.New64a()
	_, _ = h.Write(p.run.ID[:]) // never fails
	_, _ = h.Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(p.step)), uint32(p.run.Losses(int(p.step)))))
	return h.Sum64()
}
