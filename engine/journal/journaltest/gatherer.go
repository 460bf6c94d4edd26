package journaltest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
)

// gatherer collects requests and answers them later.
type gatherer struct {
	arrived chan func() // the replies to requests that wait has not counted yet
	replies []func()
}

func newGatherer() *gatherer { return &gatherer{arrived: make(chan func(), 1000)} }

// answer is a [journal.Answer] that keeps the request. replyBackwards answers it with the
// request itself.
func (g *gatherer) answer(request []byte, reply func([]byte)) {
	request = bytes.Clone(request)
	g.arrived <- func() { reply(request) }
}

// wait waits until count requests have come. It returns false if they do not come before
// the end of the test.
func (g *gatherer) wait(t *testing.T, count int) bool {
	t.Helper()
	for ctx := testwait.Context(t); len(g.replies) < count; {
		select {
		case reply := <-g.arrived:
			g.replies = append(g.replies, reply)
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// await waits until count requests have come, and fails the test if they do not come.
func (g *gatherer) await(t *testing.T, count int) {
	t.Helper()
	if !g.wait(t, count) {
		t.Fatal("the requests were not delivered")
	}
}

// replyBackwards answers the requests that wait has counted, the last one first.
func (g *gatherer) replyBackwards() {
	for _, reply := range slices.Backward(g.replies) {
		reply()
	}
}
