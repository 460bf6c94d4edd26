package engine

import (
	"slices"
	"sync"
)

// places are how many attempts the process may make. Its shards share them.
type places struct {
	mu      sync.Mutex
	free    int
	waiting []*shard // shards that found none, the first first
}

// take takes a place for the shard. If there is none, the shard is woken when there may be
// one.
func (p *places) take(sh *shard) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free > 0 {
		p.free--
		return true
	}
	if !slices.Contains(p.waiting, sh) {
		p.waiting = append(p.waiting, sh)
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
		p.wakeFirst()
	}
}

// pass lets the next shard have what this one did not need.
func (p *places) pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free > 0 {
		p.wakeFirst()
	}
}

// wakeFirst wakes the first shard that waits. It needs the lock.
func (p *places) wakeFirst() {
	if len(p.waiting) == 0 {
		return
	}
	first := p.waiting[0]
	p.waiting = slices.Delete(p.waiting, 0, 1)
	select {
	case first.room <- struct{}{}:
	default: // it is woken already
	}
}

// leave forgets a shard that has ended.
func (p *places) leave(sh *shard) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(h *shard) bool { return h == sh })
	if p.free > 0 {
		p.wakeFirst()
	}
}
