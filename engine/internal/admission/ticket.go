package admission

import (
	"context"
	"sync/atomic"
)

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
