package cli

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// patient writes to a file whose reader may be stuck: a pipe that nobody
// empties, a terminal after Ctrl-S. It waits for the reader like any writer, but
// once we were told to end no longer than the grace.
type patient struct {
	out   io.Writer
	grace time.Duration

	mu    sync.Mutex
	told  context.Context // done once we were told to end; nil means never
	stuck bool            // a write was left under way, and there will be no other
}

var errStuck = errors.New("nobody reads it")

// until says what tells us to end.
func (p *patient) until(told context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = told
}

// Write implements [io.Writer].
func (p *patient) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stuck {
		return 0, errStuck
	}
	if p.told == nil {
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
	case <-p.told.Done():
	}
	select {
	case <-done:
		return n, err
	case <-time.After(p.grace):
		p.stuck = true
		return 0, errStuck
	}
}
