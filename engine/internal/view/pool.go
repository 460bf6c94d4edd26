package view

import (
	"context"
	"errors"
	"sync"

	"zombiezen.com/go/sqlite"
)

// maxReaders bounds the memory of reading: a megabyte of cache each.
const maxReaders = 4

// pool has the connections of readers, opened when they are first needed.
type pool struct {
	path  string
	slots chan struct{}
	mu    sync.Mutex
	idle  []*sqlite.Conn
}

func newPool(path string) *pool {
	return &pool{path: path, slots: make(chan struct{}, maxReaders)}
}

// get waits for a connection. It is interrupted when ctx ends.
func (p *pool) get(ctx context.Context) (*sqlite.Conn, error) {
	// First, so that a pool that was closed gives out nothing: select may choose
	// either of two that are ready.
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c, err := p.open()
	if err != nil {
		<-p.slots
		return nil, err
	}
	c.SetInterrupt(ctx.Done())
	return c, nil
}

func (p *pool) open() (*sqlite.Conn, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		defer p.mu.Unlock()
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return c, nil
	}
	p.mu.Unlock()
	c, err := sqlite.OpenConn(p.path, sqlite.OpenReadOnly)
	if err != nil {
		return nil, err
	}
	c.SetBusyTimeout(busy)
	if err := execAll(c, readPragmas); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (p *pool) put(c *sqlite.Conn) {
	c.SetInterrupt(nil)
	p.mu.Lock()
	p.idle = append(p.idle, c)
	p.mu.Unlock()
	<-p.slots
}

// close waits for all readers. The contexts of those to come have ended.
func (p *pool) close() error {
	for range maxReaders {
		p.slots <- struct{}{}
	}
	var errs []error
	for _, c := range p.idle {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
