package memlog

import (
	"context"
	"time"
)

// process is the process of a member: it may be frozen, cut off or gone. The lock of the
// store guards it.
type process struct {
	store *Store

	gone   chan struct{} // closed when the process has ended
	killed bool
	cut    bool
	thawed chan struct{} // nil if it is not frozen
	inbox  []func()      // messages that wait for it to thaw

	disturb func(Operation) Fault
}

// Operation is a request of a member to the store or to another member.
type Operation struct {
	// Name is the name of the method, in lower case: lease, bounds, append, read,
	// truncate, put, get, blobs, delete, peek, call, ask, settle or
	// status.
	Name string

	Shard int // -1 for ask, settle and status
}

// Fault makes an operation slow or fail. The zero Fault does nothing.
type Fault struct {
	Delay  time.Duration // wait before the operation
	Before error         // returned instead of the operation, which is not done
	After  error         // returned although the operation is done, as if its answer was lost

	// Late, together with After, makes the operation happen this long after After was
	// returned, as if the request was delayed in the network. A late append succeeds
	// even if the lease has ended, unless another entry was appended meanwhile. It has
	// no effect on lease, settle and status.
	Late time.Duration
}

// lock waits until the process is not frozen, and locks the store.
func (p *process) lock(ctx context.Context) (unlock func(), err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p.store.mu.Lock()
		thawed := p.thawed
		if thawed == nil {
			return p.store.mu.Unlock, nil
		}
		p.store.mu.Unlock()
		select {
		case <-thawed:
		case <-ctx.Done():
		}
	}
}

// enter is lock for a process that must be able to reach the store.
func (p *process) enter(ctx context.Context) (unlock func(), err error) {
	unlock, err = p.lock(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.reach(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// reach returns an error if the process can't reach the store.
func (p *process) reach() error {
	switch {
	case p.killed:
		return errKilled
	case isClosed(p.gone):
		return errClosed
	case p.cut:
		return errCut
	}
	return nil
}

// wake thaws the process: it ends the waits of its frozen calls.
func (p *process) wake() {
	if p.thawed != nil {
		close(p.thawed)
		p.thawed = nil
	}
}

// accept reports whether the process can handle a message now. If the process is frozen,
// accept keeps later, and Thaw calls it. If the process can't be reached, the message is
// lost.
func (p *process) accept(later func()) bool {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	if p.reach() != nil {
		return false
	}
	if p.thawed != nil {
		p.inbox = append(p.inbox, later)
		return false
	}
	return true
}

// reachable reports whether messages reach the process.
func (p *process) reachable() bool {
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	return p.reach() == nil
}

// suffer asks the function of [Member.Disturb] for the fault of the operation. It waits
// for the fault's Delay, and returns its Before as the error. The caller must handle the
// rest of the fault.
func (p *process) suffer(ctx context.Context, op Operation) (f Fault, err error) {
	p.store.mu.Lock()
	decide := p.disturb
	p.store.mu.Unlock()
	if decide != nil {
		f = decide(op)
	}
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.gone: // the caller's next check returns the error
		case <-ctx.Done():
			return f, ctx.Err()
		}
	}
	return f, f.Before
}

// begin begins an operation: it locks the store, when the process can reach it.
func (p *process) begin(ctx context.Context, op Operation) (f Fault, unlock func(), err error) {
	if f, err = p.suffer(ctx, op); err == nil {
		unlock, err = p.enter(ctx)
	}
	return f, unlock, err
}
