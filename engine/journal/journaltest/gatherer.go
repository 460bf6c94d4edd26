package journaltest

import (
	"bytes"
	"context"
	"slices"
	"sync"
)

// gatherer keeps requests until their answers are released. The zero gatherer has
// none.
type gatherer struct {
	mu      sync.Mutex
	replies []func()
	more    chan struct{} // closed when another request comes; nil if nothing waits for it
}

// answer is a [journal.Answer] that answers later, with the request.
func (g *gatherer) answer(request []byte, reply func([]byte)) {
	request = bytes.Clone(request)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.replies = append(g.replies, func() { reply(request) })
	if g.more != nil {
		close(g.more)
		g.more = nil
	}
}

// wait reports whether so many requests have come before the context ends.
func (g *gatherer) wait(ctx context.Context, count int) bool {
	for {
		g.mu.Lock()
		came := len(g.replies)
		if g.more == nil {
			g.more = make(chan struct{})
		}
		more := g.more
		g.mu.Unlock()
		if came >= count {
			return true
		}
		select {
		case <-more:
		case <-ctx.Done():
			return false
		}
	}
}

// replyBackwards answers the last request first.
func (g *gatherer) replyBackwards() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, reply := range slices.Backward(g.replies) {
		reply()
	}
}
