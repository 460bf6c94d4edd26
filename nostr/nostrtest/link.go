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
	l.core.leave(l.session)
	_ = l.socket.CloseNow() // it may be closed already
	writer.Wait()
}

// read passes on what the client sends.
func (l *link) read(ctx context.Context) {
	l.socket.SetReadLimit(nostr.MaxFrame)
	for {
		_, text, err := l.socket.Read(ctx)
		if err != nil {
			return
		}
		if !l.core.receive(l.session, text) {
			l.cut()
			return
		}
	}
}

// write writes what the session has for the client.
func (l *link) write(ctx context.Context) {
	for ctx.Err() == nil {
		f, wait, ok := l.core.next(l.session)
		switch {
		case ok:
			if l.socket.Write(ctx, websocket.MessageText, f.bytes()) != nil {
				return // the reader meets the same and ends the link
			}
		case l.session.ended():
			l.cut()
			return
		default:
			l.rest(ctx, wait)
		}
	}
}

// rest waits until there may be something to write; a wait of 0 has no end of its
// own.
func (l *link) rest(ctx context.Context, wait time.Duration) {
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

// cut breaks the link.
func (l *link) cut() {
	l.core.leave(l.session)
	l.wire.tear()
}
