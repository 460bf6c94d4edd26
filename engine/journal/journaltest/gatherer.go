package journaltest

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
)

// gatherer collects requests and answers them later. The zero gatherer is ready for use.
type gatherer struct {
	mu      sync.Mutex
	replies []func()
	more    chan struct{} // closed when another request comes; nil if no goroutine waits for one
}

// answer is a [journal.Answer] that keeps the request. replyBackwards answers it with the
// request itself.
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

// wait waits for count requests. It returns false if they do not come before the end of
// the test.
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

// await waits for count requests, and fails the test if they do not come.
func (g *gatherer) await(t *testing.T, count int) {
	t.Helper()
	if !g.wait(t, count) {
		t.Fatal("the requests were not delivered")
	}
}

// replyBackwards answers all requests, the last one first.
func (g *gatherer) replyBackwards() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, reply := range slices.Backward(g.replies) {
		reply()
	}
}
