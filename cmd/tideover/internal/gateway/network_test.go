package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"syscall"
)

// network is the network of the tests. It is in memory, because a goroutine that waits
// for a socket keeps the clock of a testing/synctest bubble from advancing.
var network = memoryNetwork{listeners: map[int]*memoryListener{}}

// memoryNetwork connects clients and servers by pipes. Its addresses look like those of
// the loopback interface.
type memoryNetwork struct {
	mu        sync.Mutex
	last      int // the last port that was given to a listener
	listeners map[int]*memoryListener
}

// newServer returns a server that is not started, like [httptest.NewUnstartedServer].
func (n *memoryNetwork) newServer(h http.Handler) *httptest.Server {
	return &httptest.Server{Listener: n.listen(), Config: &http.Server{Handler: h}}
}

func (n *memoryNetwork) listen() *memoryListener {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	l := &memoryListener{
		network: n, address: loopback(1000 + n.last),
		accepted: make(chan net.Conn), closed: make(chan struct{}),
	}
	n.listeners[l.address.Port] = l
	return l
}

func loopback(port int) *net.TCPAddr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
}

// dial connects to a listener. It fails like a dial to a port that nobody listens on.
func (n *memoryNetwork) dial(ctx context.Context, _, address string) (net.Conn, error) {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: at, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	n.mu.Lock()
	l := n.listeners[at.Port]
	n.mu.Unlock()
	if l == nil {
		return nil, refused
	}
	client, server := net.Pipe()
	select {
	case l.accepted <- &memoryConn{server, l.address, loopback(1)}:
		return &memoryConn{client, loopback(1), l.address}, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

type memoryListener struct {
	network  *memoryNetwork
	address  *net.TCPAddr
	accepted chan net.Conn
	close    sync.Once
	closed   chan struct{}
}

// Accept implements [net.Listener].
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *memoryListener) Close() error {
	l.close.Do(func() {
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		delete(l.network.listeners, l.address.Port)
		close(l.closed)
	})
	return nil
}

// Addr implements [net.Listener].
func (l *memoryListener) Addr() net.Addr { return l.address }

// memoryConn is one end of a pipe, with the addresses and the errors of a socket.
type memoryConn struct {
	net.Conn
	local, remote net.Addr
}

// LocalAddr implements [net.Conn].
func (c *memoryConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements [net.Conn].
func (c *memoryConn) RemoteAddr() net.Addr { return c.remote }

// Read implements [net.Conn].
func (c *memoryConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = &net.OpError{Op: "read", Net: "tcp", Source: c.local, Addr: c.remote, Err: net.ErrClosed}
	}
	return n, err
}

// Write implements [net.Conn].
func (c *memoryConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = &net.OpError{Op: "write", Net: "tcp", Source: c.local, Addr: c.remote, Err: syscall.EPIPE}
	}
	return n, err
}
