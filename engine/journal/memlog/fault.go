package memlog

import (
	"context"
	"time"
)

// Operation is what a member asks of the store or of another member.
type Operation struct {
	// Name is that of the method, in lower case: lease, bounds, append, read,
	// truncate, put, get, blobs, delete, peek, call, ask, settle or
	// status.
	Name string

	Shard int // -1 for ask, settle and status
}

// Fault is what goes wrong with an operation. The zero Fault is nothing.
type Fault struct {
	Delay  time.Duration // before anything happens
	Before error         // is returned, and nothing was done
	After  error         // is returned, but it was done: the answer was lost

	// Late has it done so much later than After was returned: the request was
	// on its way. An append then counts even if the lease has ended, if nothing
	// was appended meanwhile. Leases, settle and status know no Late.
	Late time.Duration
}

// Disturb has a function decide what goes wrong with each operation of the member.
// It is called by several goroutines. None goes wrong if it is nil.
func (m *Member) Disturb(decide func(Operation) Fault) {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	m.disturb = decide
}

func (m *Member) fault(op Operation) Fault {
	m.store.mu.Lock()
	decide := m.disturb
	m.store.mu.Unlock()
	if decide == nil {
		return Fault{}
	}
	return decide(op)
}

// suffer is the part of a fault that comes before the operation.
func (m *Member) suffer(ctx context.Context, f Fault) error {
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-m.gone: // what comes next says so
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return f.Before
}
