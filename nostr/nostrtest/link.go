package nostrtest

import (
	"context"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/tideover/tideover/nostr"
)

// link is a websocket and its session.
type link struct {
	core    *core
	session *session
	wire    *wire
	socket  *websocket.Conn
}

// run reads and writes until the client or the relay ends the link.
func (l *link) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var writer sync.WaitGroup
	writer.Go(func() { l.write(ctx) })
	l.read(ctx)
	cancel()
	l.core.removeSession(l.session)
	_ = l.socket.CloseNow() // it may be closed already
	writer.Wait()
}

// read handles what the client sends.
func (l *link) read(ctx context.Context) {
	l.socket.SetReadLimit(nostr.MaxFrame)
	for {
		_, text, err := l.socket.Read(ctx)
		if err != nil {
			return
		}
		if !l.core.receive(l.session, text) {
			l.breakLink()
			return
		}
	}
}

// write writes queued frames to the client until the link ends.
func (l *link) write(ctx context.Context) {
	for ctx.Err() == nil {
		f, wait, ok := l.core.next(l.session)
		switch {
		case ok:
			if l.socket.Write(ctx, websocket.MessageText, f.bytes()) != nil {
				return // the reader gets the same error and ends the link
			}
		case l.session.ended():
			l.breakLink()
			return
		default:
			l.waitForFrame(ctx, wait)
		}
	}
}

// waitForFrame waits until there may be something to write; a wait of 0 means
// no timeout.
func (l *link) waitForFrame(ctx context.Context, wait time.Duration) {
	var due <-chan time.Time
	if wait > 0 {
		due = time.After(wait) // real clock: the delay is a fault that the test asked for
	}
	select {
	case <-ctx.Done():
	case <-l.session.wake:
	case <-due:
	}
}

// breakLink breaks the link.
func (l *link) breakLink() {
	l.core.removeSession(l.session)
	l.wire.reset()
}
