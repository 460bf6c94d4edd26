package engine

import (
	"slices"
	"sync"
)

// places are how many attempts the process may make. Its shards share them.
type places struct {
	mu     sync.Mutex
	free   int
	hungry []*shard // those that found none, the first first
}

// take takes a place for the shard. If there is none, the shard is told when there
// may be one.
func (p *places) take(sh *shard) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free > 0 {
		p.free--
		return true
	}
	if !slices.Contains(p.hungry, sh) {
		p.hungry = append(p.hungry, sh)
	}
	return false
}

// none reports whether no place is free.
func (p *places) none() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free <= 0
}

// reclaim takes a place that was lent, whether there is one or not.
func (p *places) reclaim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free--
}

// give gives a place back.
func (p *places) give() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free++; p.free > 0 {
		p.call()
	}
}

// pass lets the next shard have what this one did not need.
func (p *places) pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free > 0 {
		p.call()
	}
}

// call tells the first who is hungry. It needs the lock.
func (p *places) call() {
	if len(p.hungry) == 0 {
		return
	}
	first := p.hungry[0]
	p.hungry = slices.Delete(p.hungry, 0, 1)
	select {
	case first.room <- struct{}{}:
	default: // it knows
	}
}

// leave forgets a shard that has ended.
func (p *places) leave(sh *shard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hungry = slices.DeleteFunc(p.hungry, func(h *shard) bool { return h == sh })
	if p.free > 0 {
		p.call()
	}
}
