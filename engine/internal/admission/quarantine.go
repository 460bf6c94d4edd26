package admission

import (
	"math"
	"sync"
	"time"
)

// quarantine decides when attempts of suspects may begin. A suspect is a step whose last
// attempt was lost because the process died: the attempt may have caused that. A process that
// dies loses the attempts of all its shards, so the shards share the quarantine.
//
// A suspect runs beside few other suspects, and those with the fewest losses begin first. It is
// on trial until it ends or the process has survived it for trialTime. A suspect with many
// losses runs alone: from the moment it is due until its trial is over, no other attempt
// begins.
type quarantine struct {
	mu       sync.Mutex
	running  int                // running attempts of the process
	trials   int                // running suspects that are on trial and not alone
	isolated Shard              // the shard whose suspect runs alone, or waits until it can; nil if there is none
	wants    map[Shard]int      // losses of the suspect that each shard would begin next
	waiting  map[Shard]struct{} // shards to wake when another attempt may begin
}

const (
	trialTime = 5 * time.Second // length of the trial of a suspect that does not run alone
	wantAlone = math.MaxInt     // value of wants for a suspect that has to run alone
)

// trialsAtOnce returns how many suspects may be on trial at the same time when a suspect with
// this many losses begins.
func trialsAtOnce(losses int) int {
	if losses == 1 {
		return 8 // the attempt is most often not the cause of a single loss
	}
	return 2
}

// trial is the trial of a suspect. It is nil for an attempt of a step that is not a suspect.
type trial struct {
	q     *quarantine
	alone bool
	once  sync.Once
	timer *time.Timer
}

// end ends the trial, and wakes the shards that wait for it. Further calls do nothing.
func (t *trial) end() {
	if t == nil {
		return
	}
	t.once.Do(func() {
		t.q.mu.Lock()
		defer t.q.mu.Unlock()
		if t.timer != nil {
			t.timer.Stop()
		}
		if t.alone {
			t.q.isolated = nil
		} else {
			t.q.trials--
		}
		t.q.wake()
	})
}

// enter admits an attempt of a step that is not a suspect. If a suspect runs alone or is about
// to, it returns false, and the shard is woken later.
func (q *quarantine) enter(sh Shard) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isolated != nil {
		q.wait(sh)
		return false
	}
	q.running++
	return true
}

// isIsolated reports whether a suspect runs alone, or is about to.
func (q *quarantine) isIsolated() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.isolated != nil
}

// count adds n attempts to those that run: -1 if one has ended or does not begin, 1 if one begins
// that Ticket.Lend has removed from the count.
func (q *quarantine) count(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running += n; q.running == 0 && q.isolated != nil {
		q.wake()
	}
}

// try admits a suspect with this many losses. If it can't begin now, try returns nil, and the
// shard is woken later.
func (q *quarantine) try(sh Shard, losses int) *trial {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.want(sh, losses); q.isolated != nil || q.trials >= trialsAtOnce(losses) || !q.isNext(losses) {
		q.wait(sh)
		return nil
	}
	q.running++
	q.trials++
	t := &trial{q: q}
	t.timer = time.AfterFunc(trialTime, t.end)
	return t
}

// isolate keeps other attempts from beginning, for a suspect of the shard that has to run
// alone. It returns false if another suspect comes first.
func (q *quarantine) isolate(sh Shard) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isolated == sh {
		return true
	}
	if q.want(sh, wantAlone); q.isolated != nil || !q.isNext(wantAlone) {
		q.wait(sh)
		return false
	}
	q.isolated = sh
	return true
}

// tryAlone admits the suspect for which isolate was called, if no other attempt runs or late is
// true. alone reports whether no other attempt runs. If the suspect can't begin, the trial is
// nil.
func (q *quarantine) tryAlone(sh Shard, late bool) (t *trial, alone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if alone = q.running == 0; !alone && !late {
		q.wait(sh)
		return nil, false
	}
	q.running++
	return &trial{q: q, alone: true}, alone
}

// withdraw notes that the shard has no suspect to begin.
func (q *quarantine) withdraw(sh Shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	losses, wanted := q.wants[sh]
	delete(q.wants, sh)
	if wanted && losses < wantAlone {
		q.wake()
	}
}

// wantIsolation notes that the next suspect of the shard has to run alone.
func (q *quarantine) wantIsolation(sh Shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.want(sh, wantAlone)
}

// release ends the isolation for a suspect of the shard that has not begun, so that other
// attempts can begin.
func (q *quarantine) release(sh Shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isolated == sh {
		q.isolated = nil
		q.wake()
	}
}

// removeShard removes a shard that can't begin attempts: it has stopped, or it can't store.
func (q *quarantine) removeShard(sh Shard) {
	q.withdraw(sh)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, sh)
}

// want notes the losses of the suspect that the shard would begin next. It wakes the waiting
// shards only if the number has grown, so that one of them may come first now: otherwise two
// waiting shards would wake each other forever. The caller of want and of the methods below
// must hold the lock.
func (q *quarantine) want(sh Shard, losses int) {
	before, wanted := q.wants[sh]
	q.wants[sh] = losses
	if wanted && before < losses {
		q.wake()
	}
}

// isNext reports whether no shard wants to begin a suspect with fewer losses.
func (q *quarantine) isNext(losses int) bool {
	for _, other := range q.wants {
		if other < losses {
			return false
		}
	}
	return true
}

func (q *quarantine) wait(sh Shard) { q.waiting[sh] = struct{}{} }

// wake wakes all waiting shards, so that they try again.
func (q *quarantine) wake() {
	for sh := range q.waiting {
		sh.Wake()
	}
	clear(q.waiting)
}
