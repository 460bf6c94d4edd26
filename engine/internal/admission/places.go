package admission

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// places is a semaphore for the attempts of the process (Config.Concurrency). The shards of
// the process share it.
//
// A shard takes a place before it stores that an attempt begins. The handler is called when
// that is stored. If storing takes longer than the handler, as in a cluster, then most places
// belong to attempts that are being stored, and with many shards each entry has only a few
// attempts. So while handlers are that quick, shards may take more places than there are.
// Handlers wait for each other: at no time more than Config.Concurrency of them run.
type places struct {
	handlers chan struct{} // has an element for each running handler; its capacity is Config.Concurrency

	mu      sync.Mutex
	total   int       // number of places
	free    int       // number of free places; negative if more are taken than there are
	ahead   int       // how many more places than there are may be taken
	scarce  bool      // the last call of take failed
	quickAt time.Time // when the last quick handler returned, if ahead is not 0
	waiting []Shard   // shards that wait for a free place, in order
}

const (
	maxAhead  = 4096                   // largest value of places.ahead
	quickTime = 100 * time.Millisecond // without a quick handler for this long, ahead becomes 0
	enterWait = time.Second            // longest time that an attempt waits for its handler to be called
)

// ErrNoPlace says that too many other handlers run. The attempt goes back to its queue.
var ErrNoPlace = fmt.Errorf("no place became free within %v", enterWait)

func newPlaces(n int) places { return places{handlers: make(chan struct{}, n), total: n, free: n} }

// enter waits until the handler of an attempt may be called. If it returns nil, the caller must
// call leave when the handler has returned or is stuck.
func (p *places) enter(ctx context.Context) error {
	select {
	case p.handlers <- struct{}{}:
		return nil
	default:
	}
	timeout := time.NewTimer(enterWait)
	defer timeout.Stop()
	select {
	case p.handlers <- struct{}{}:
		return nil
	case <-timeout.C:
		return ErrNoPlace
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave lets another handler run.
func (p *places) leave() { <-p.handlers }

// take takes a place for the shard. If none is free, it returns false, and the shard is woken
// when one may be free.
func (p *places) take(sh Shard) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free <= 0 && p.ahead > 0 && time.Since(p.quickAt) > quickTime {
		p.ahead = 0
	}
	if p.scarce = p.free+p.ahead <= 0; !p.scarce {
		p.free--
		return true
	}
	if !slices.Contains(p.waiting, sh) {
		p.waiting = append(p.waiting, sh)
	}
	return false
}

// counts returns the number of free places, and of the shards that wait for one.
func (p *places) counts() (free, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free, len(p.waiting)
}

// few reports whether less than half of the places are free, or at most one.
func (p *places) few() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free < max(p.total/2, 2)
}

// reclaim takes a place even if none is free.
func (p *places) reclaim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free--
}

// give gives n places back, and wakes the next waiting shard if a place is free. n is 0 if a shard was woken
// and does not need the place.
func (p *places) give(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += n
	p.wakeFirst()
}

// giveAfter gives back the place of an attempt that has ended. quick says that its handler took
// less time than it took to store that the attempt begins.
func (p *places) giveAfter(quick bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free++
	if !quick {
		p.ahead /= 2
	} else if p.scarce || p.ahead > 0 {
		if p.scarce {
			p.ahead = min(p.ahead+1, maxAhead)
		}
		p.quickAt = time.Now()
	}
	p.wakeFirst()
}

// wakeFirst wakes the first shard that waits, if a place is free. The caller must hold the lock.
func (p *places) wakeFirst() {
	if p.free+p.ahead > 0 && len(p.waiting) > 0 {
		p.waiting[0].Wake()
		p.waiting = slices.Delete(p.waiting, 0, 1)
	}
}

// removeShard removes a shard that can't begin attempts any more from the waiting shards.
func (p *places) removeShard(sh Shard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(h Shard) bool { return h == sh })
	p.wakeFirst()
}

// Ticket is what an attempt, or a call of a function, has from its beginning to its end: a place, its
// count in the quarantine, and its trial if it is one of a suspect.
type Ticket struct {
	shared  *Shared
	isCall  bool
	trial   *trial // nil if the step is not a suspect
	lent    bool   // it was given back, and is taken again when the attempt or call begins
	given   uint32 // 1: it was given back for good
	entered uint32 // 1: the handler counts as running: see places.enter
}

// places returns the places of which the ticket has one.
func (t *Ticket) places() *places {
	if t.isCall {
		return &t.shared.calls
	}
	return &t.shared.attempts
}

// counts reports whether the ticket counts in the quarantine. Of calls only those of suspects do: the
// operations that a function calls count themselves.
func (t *Ticket) counts() bool { return !t.isCall || t.trial != nil }

// Enter waits until the handler of the attempt may be called, for a short time: then the error is
// [ErrNoPlace].
func (t *Ticket) Enter(ctx context.Context) error {
	if err := t.places().enter(ctx); err != nil {
		return err
	}
	atomic.StoreUint32(&t.entered, 1)
	return nil
}

// Leave lets another handler run, if that of the attempt was called. Further calls do nothing.
func (t *Ticket) Leave() {
	if atomic.CompareAndSwapUint32(&t.entered, 1, 0) {
		t.places().leave()
	}
}

// Give gives the ticket back, and ends the trial. quick says that the handler took less time than it
// took to store that the attempt begins. Only the first call has an effect. Any goroutine may call it.
func (t *Ticket) Give(quick bool) {
	if atomic.CompareAndSwapUint32(&t.given, 0, 1) {
		t.places().giveAfter(quick)
		t.leaveQuarantine()
	}
}

// Lend gives the ticket back while the attempt or call can't begin, or for good if Reclaim is not called.
// Further calls do nothing.
func (t *Ticket) Lend() {
	if !t.lent {
		t.lent = true
		t.places().give(1)
		t.leaveQuarantine()
	}
}

// Reclaim takes the ticket back that was lent, even if no place is free.
func (t *Ticket) Reclaim() {
	if t.lent {
		t.lent = false
		t.places().reclaim()
		if t.counts() {
			t.shared.quarantine.count(1)
		}
	}
}

// Drop makes a ticket that was lent one that is given back for good.
func (t *Ticket) Drop() { atomic.StoreUint32(&t.given, 1) }

// isOver reports whether the attempt or call does not have its ticket any more.
func (t *Ticket) isOver() bool { return t.lent || atomic.LoadUint32(&t.given) == 1 }

func (t *Ticket) leaveQuarantine() {
	if t.counts() {
		t.shared.quarantine.count(-1)
		t.trial.end()
	}
}
