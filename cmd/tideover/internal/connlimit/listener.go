package connlimit

import (
	"io"
	"net"
	"sync"
	"time"
)

const (
	refusalTime = time.Second // for a caller to read why it is refused
	refusals    = 64          // callers that are told at once; others are only disconnected
)

// refusal is what a caller is told for whose connection there is no room.
const refusal = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\n" +
	"Connection: close\r\nContent-Length: 66\r\n\r\nThe server has too many connections, all in use: try again later.\n"

// Listen returns a listener whose connections are counted. A connection for which there is no room is
// answered with 503, unless encrypted says that the other side expects TLS: it is closed then.
func (l *Limiter) Listen(inner net.Listener, encrypted bool) net.Listener {
	return &listener{Listener: inner, limiter: l, encrypted: encrypted, places: make(chan struct{}, refusals)}
}

type listener struct {
	net.Listener
	limiter   *Limiter
	encrypted bool
	places    chan struct{} // of callers that are being refused
	refusing  sync.WaitGroup
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if own := l.limiter.admit(c); own != nil {
			return own, nil
		}
		l.refuse(c)
	}
}

// refuse ends the connection, and tells the caller why if not too many are being told.
func (l *listener) refuse(c net.Conn) {
	select {
	case l.places <- struct{}{}:
	default:
		_ = c.Close()
		return
	}
	l.refusing.Go(func() {
		defer func() { <-l.places }()
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(refusalTime))
		if l.encrypted {
			return
		}
		if _, err := io.WriteString(c, refusal); err != nil {
			return
		}
		// Closing a connection with unread data resets it, and the caller might not read the answer.
		if half, ok := c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(c, 64<<10))
		}
	})
}

// Close implements [net.Listener].
func (l *listener) Close() error {
	err := l.Listener.Close()
	l.refusing.Wait()
	return err
}
