package limit

import (
	"context"
	"fmt"
)

// Priority is how urgent a call is. The zero Priority is Normal.
type Priority int8

// The five classes.
const (
	Lowest  Priority = iota - 2 // background work whose result no caller waits for: backfills, prefetching
	Low                         // work that can be late
	Normal                      // the default
	High                        // a person is waiting
	Highest                     // needed to keep the system running: health checks, leases
)

// Classes is the number of priorities.
const Classes = int(Highest-Lowest) + 1

var priorityNames = [Classes]string{"lowest", "low", "normal", "high", "highest"}

// Class returns the priority's index: 0 for [Lowest] up to Classes-1 for
// [Highest]. A priority outside that range is moved to the nearer end, so the
// result is always a valid index.
func (p Priority) Class() int { return int(min(max(p, Lowest), Highest) - Lowest) }

// String returns the priority's name.
func (p Priority) String() string {
	if p.Validate() != nil {
		return fmt.Sprintf("priority(%d)", int8(p))
	}
	return priorityNames[p.Class()]
}

// Validate returns an error unless the priority is one of the five.
func (p Priority) Validate() error {
	if p < Lowest || p > Highest {
		return fmt.Errorf("priority: %d is not between %d and %d", int8(p), Lowest, Highest)
	}
	return nil
}

// ParsePriority returns the priority with the given name.
func ParsePriority(s string) (Priority, error) {
	for class, name := range priorityNames {
		if s == name {
			return Lowest + Priority(class), nil
		}
	}
	return Normal, fmt.Errorf("priority %q: want lowest, low, normal, high or highest", s)
}

type priorityKey struct{}

// WithPriority returns a context whose calls wait with the priority p.
func WithPriority(ctx context.Context, p Priority) context.Context {
	return context.WithValue(ctx, priorityKey{}, p)
}

// PriorityFrom returns the context's priority, [Normal] if it has none.
func PriorityFrom(ctx context.Context) Priority {
	p, _ := ctx.Value(priorityKey{}).(Priority)
	return p
}
