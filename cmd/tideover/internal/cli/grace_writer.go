package cli

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// graceWriter writes to a file whose reader may be stuck, such as a full pipe or a terminal after
// Ctrl-S. It blocks like any writer. When the context given to stopOn has ended, a write that still
// blocks after the grace period fails.
type graceWriter struct {
	out   io.Writer
	grace time.Duration

	mu       sync.Mutex
	stopping context.Context // ends when the process must stop; nil means never
	stuck    bool            // a write still blocked after the grace period; all later writes fail
}

var errNotRead = errors.New("the reader of the output is stuck")

// stopOn sets the context whose end limits the time of writes.
func (p *graceWriter) stopOn(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopping = ctx
}

// Write implements [io.Writer].
func (p *graceWriter) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck {
		return 0, errNotRead
	}
	if p.stopping == nil {
		return p.out.Write(b)
	}
	done := make(chan struct{})
	var n int
	var err error
	go func() {
		defer close(done)
		n, err = p.out.Write(b)
	}()
	select {
	case <-done:
		return n, err
	case <-p.stopping.Done():
	}
	select {
	case <-done:
		return n, err
	case <-time.After(p.grace):
		p.stuck = true
		return 0, errNotRead
	}
}
