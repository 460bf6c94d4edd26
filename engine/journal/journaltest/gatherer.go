package journaltest

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
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

// wait reports whether so many requests have come before the end of the test.
func (g *gatherer) wait(t *testing.T, count int) bool {
	t.Helper()
	for ctx := testwait.Context(t); ; {
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

// await fails the test if not so many requests come.
func (g *gatherer) await(t *testing.T, count int) {
	t.Helper()
	if !g.wait(t, count) {
		t.Fatal("the requests were not delivered")
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
