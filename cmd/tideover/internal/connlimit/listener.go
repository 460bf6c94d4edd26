package connlimit

import (
	"io"
	"net"
	"sync"
	"time"
)

const (
	refusalTime = time.Second // how long a client may take to read the answer to a rejected connection
	refusals    = 64          // rejected connections that are answered at the same time; others are closed without an answer
)

// refusal is the answer on a rejected connection.
const refusal = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\n" +
	"Connection: close\r\nContent-Length: 66\r\n\r\nThe server has too many connections, all in use: try again later.\n"

// Listen returns a listener that limits the connections of inner. It answers a rejected connection with
// 503. If encrypted is true, clients expect TLS, and a rejected connection is closed without an answer.
func (l *Limiter) Listen(inner net.Listener, encrypted bool) net.Listener {
	return &listener{Listener: inner, limiter: l, encrypted: encrypted, places: make(chan struct{}, refusals)}
}

type listener struct {
	net.Listener
	limiter   *Limiter
	encrypted bool
	places    chan struct{} // limits the rejections with an answer
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

// refuse answers the connection in the background and closes it. If too many are being answered, it only
// closes the connection.
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
		// Closing a connection with unread data resets it, and the client might lose the answer.
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
