package engine

import (
	"math"
	"sync"
	"time"
)

// quarantine says when the process makes attempts of suspects: steps whose last attempt was
// lost with a process, which it may have ended. A process that dies takes all its attempts with
// it, so the shards of a process share its quarantine.
//
// A suspect begins beside few others, those with the fewest losses first; it is on trial until
// it ends or the process has survived it for a while. One with many losses runs alone: no
// attempt begins from when it wants to until its trial is over.
type quarantine struct {
	mu       sync.Mutex
	running  int            // attempts of the process
	trials   int            // suspects among them that are on trial
	isolated *shard         // whose suspect runs alone, or waits until it can
	wants    map[*shard]int // losses of the suspect that each shard would begin next
	waiting  map[*shard]struct{}
}

const (
	trialTime = 5 * time.Second // after which a suspect that does not run alone counts as survived
	wantAlone = math.MaxInt     // of a suspect that has to run alone
)

// trialsAtOnce returns how many suspects may be on trial when one with so many losses begins.
func trialsAtOnce(losses int) int {
	if losses == 1 {
		return 8 // a single loss is most often no fault of the attempt
	}
	return 2
}

// trial is the trial of a suspect. The nil trial is that of an attempt that is no suspect.
type trial struct {
	q     *quarantine
	alone bool
	once  sync.Once
	timer *time.Timer
}

// end ends the trial, if it has not ended.
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

// enter admits an attempt that is no suspect. If it can't begin now, the shard is woken when it
// may.
func (q *quarantine) enter(sh *shard) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isolated != nil {
		q.wait(sh)
		return false
	}
	q.running++
	return true
}

// reenter counts an attempt that is going to begin after all.
func (q *quarantine) reenter() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running++
}

// exit says that an attempt has ended.
func (q *quarantine) exit() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running--; q.running == 0 && q.isolated != nil {
		q.wake()
	}
}

// try admits a suspect with so many losses.
func (q *quarantine) try(sh *shard, losses int) *trial {
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
// alone. It returns false if that has to wait for another suspect.
func (q *quarantine) isolate(sh *shard) bool {
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

// tryAlone admits the suspect that others wait for. Unless it is late, that is when no other
// attempt runs.
func (q *quarantine) tryAlone(sh *shard, late bool) (t *trial, alone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if alone = q.running == 0; !alone && !late {
		q.wait(sh)
		return nil, false
	}
	q.running++
	return &trial{q: q, alone: true}, alone
}

// withdraw says that the shard has no suspect that could begin.
func (q *quarantine) withdraw(sh *shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	losses, wanted := q.wants[sh]
	delete(q.wants, sh)
	if wanted && losses < wantAlone {
		q.wake()
	}
}

// wantIsolation says that the next suspect of the shard has to run alone.
func (q *quarantine) wantIsolation(sh *shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.want(sh, wantAlone)
}

// release lets others begin that wait for a suspect which has not begun.
func (q *quarantine) release(sh *shard) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isolated == sh {
		q.isolated = nil
		q.wake()
	}
}

// leave forgets a shard that begins no attempts: it has stopped, or it can't store.
func (q *quarantine) leave(sh *shard) {
	q.withdraw(sh)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.waiting, sh)
}

// want notes what the shard would begin next. It needs the lock, as do those that follow.
// Others are woken only if that lets them begin: two shards that wait must not wake each other
// for ever.
func (q *quarantine) want(sh *shard, losses int) {
	if q.wants == nil {
		q.wants = map[*shard]int{}
	}
	before, wanted := q.wants[sh]
	q.wants[sh] = losses
	if wanted && before < losses {
		q.wake()
	}
}

// isNext reports whether no shard has a suspect with fewer losses.
func (q *quarantine) isNext(losses int) bool {
	for _, other := range q.wants {
		if other < losses {
			return false
		}
	}
	return true
}

func (q *quarantine) wait(sh *shard) {
	if q.waiting == nil {
		q.waiting = map[*shard]struct{}{}
	}
	q.waiting[sh] = struct{}{}
}

// wake wakes the shards that wait, because something has changed.
func (q *quarantine) wake() {
	for sh := range q.waiting {
		select {
		case sh.room <- struct{}{}:
		default: // it knows
		}
	}
	clear(q.waiting)
}
