package journaltest

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"
)

// gatherer keeps requests until it is told to answer them. The zero gatherer has
// none.
type gatherer struct {
	mu      sync.Mutex
	replies []func()
}

// answer is a [journal.Answer] that answers later, with the request.
func (g *gatherer) answer(request []byte, reply func([]byte)) {
	request = bytes.Clone(request)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.replies = append(g.replies, func() { reply(request) })
}

// wait reports whether so many requests have come before the context ends.
func (g *gatherer) wait(ctx context.Context, count int) bool {
	for ctx.Err() == nil {
		g.mu.Lock()
		came := len(g.replies)
		g.mu.Unlock()
		if came >= count {
			return true
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // there is no event to wait for
	}
	return false
}

// replyBackwards answers the last request first.
func (g *gatherer) replyBackwards() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, reply := range slices.Backward(g.replies) {
		reply()
	}
}
