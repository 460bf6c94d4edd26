// Package memnet is a network in memory for tests in a bubble of testing/synctest. A
// goroutine that waits for a socket keeps the clock of its bubble from advancing; one
// that waits for a connection of this package does not.
//
// Addresses and errors look like those of TCP on the loopback interface. Nothing is
// buffered: a write returns when the other end has read it.
package memnet

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
	"time"
)

var (
	mu        sync.Mutex
	lastPort  = 1000 // the port of the newest listener
	listeners = map[int]*Listener{}
)

// Listener is a [net.Listener] in memory.
type Listener struct {
	address *net.TCPAddr
	conns   chan net.Conn
	close   sync.Once
	closed  chan struct{}
}

// Listen returns a listener with an address of its own.
func Listen() *Listener {
	mu.Lock()
	defer mu.Unlock()
	lastPort++
	l := &Listener{address: loopback(lastPort), conns: make(chan net.Conn), closed: make(chan struct{})}
	listeners[lastPort] = l
	return l
}

// NewUnstartedServer is [httptest.NewUnstartedServer] on a listener in memory. The client
// of the returned server can't reach it: use a client whose transport dials with [Dial].
func NewUnstartedServer(h http.Handler) *httptest.Server {
	return &httptest.Server{Listener: Listen(), Config: &http.Server{Handler: h}}
}

// Dial connects to the listener that has the address. Without one it fails like a
// connection to a port where no process listens.
func Dial(ctx context.Context, _, address string) (net.Conn, error) {
	remote, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: remote, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	mu.Lock()
	l := listeners[remote.Port]
	mu.Unlock()
	if l == nil {
		return nil, refused
	}
	client, server := newConns(loopback(1), l.address)
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func loopback(port int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *Listener) Close() error {
	l.close.Do(func() {
		mu.Lock()
		defer mu.Unlock()
		delete(listeners, l.address.Port)
		close(l.closed)
	})
	return nil
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return l.address }

// conn is one end of a connection. It embeds the pipe that it reads from.
type conn struct {
	net.Conn
	out           net.Conn
	local, remote net.Addr
}

func newConns(clientAddress, serverAddress net.Addr) (client, server *conn) {
	clientIn, serverOut := net.Pipe()
	serverIn, clientOut := net.Pipe()
	return &conn{clientIn, clientOut, clientAddress, serverAddress}, &conn{serverIn, serverOut, serverAddress, clientAddress}
}

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = &net.OpError{Op: "read", Net: "tcp", Source: c.local, Addr: c.remote, Err: net.ErrClosed}
	}
	return n, err
}

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.out.Write(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = &net.OpError{Op: "write", Net: "tcp", Source: c.local, Addr: c.remote, Err: syscall.EPIPE}
	}
	return n, err
}

// Close closes the direction that this end reads from, and then the other one. So when the
// other end reads io.EOF, its writes fail already.
func (c *conn) Close() error { return errors.Join(c.Conn.Close(), c.out.Close()) }

// CloseWrite closes the direction that this end writes to, like [net.TCPConn.CloseWrite].
func (c *conn) CloseWrite() error { return c.out.Close() }

// LocalAddr implements [net.Conn].
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements [net.Conn].
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements [net.Conn].
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.Conn.SetDeadline(t), c.out.SetDeadline(t))
}

// SetWriteDeadline implements [net.Conn].
func (c *conn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }
