package retryhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
)

// The tests connect clients and servers in memory. A goroutine that waits for such a
// connection blocks durably, which one that waits for a socket does not: client and server
// run in a bubble of testing/synctest, and the speed of the machine decides nothing.

// memoryListeners are the open listeners by their address.
var memoryListeners sync.Map // of string to *memoryListener

var memoryHosts atomic.Int64

// memoryListener is a [net.Listener] without a socket.
type memoryListener struct {
	address string
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func listenInMemory() *memoryListener {
	l := &memoryListener{
		address: fmt.Sprintf("host-%d.test:80", memoryHosts.Add(1)),
		conns:   make(chan net.Conn),
		closed:  make(chan struct{}),
	}
	memoryListeners.Store(l.address, l)
	return l
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() {
		memoryListeners.Delete(l.address)
		close(l.closed)
	})
	return nil
}

func (l *memoryListener) Addr() net.Addr  { return l }
func (l *memoryListener) Network() string { return "memory" }
func (l *memoryListener) String() string  { return l.address }

// dial connects in memory if the address is that of a memoryListener, else over a socket.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	found, ok := memoryListeners.Load(address)
	if !ok {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	l := found.(*memoryListener)
	client, server := newMemoryConns(l)
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// memoryConn is one end of a connection. Its directions can be closed one by one.
type memoryConn struct {
	net.Conn // from which it reads
	out      net.Conn
	address  net.Addr
}

func newMemoryConns(address net.Addr) (client, server *memoryConn) {
	toClient, fromServer := net.Pipe()
	toServer, fromClient := net.Pipe()
	return &memoryConn{toClient, fromClient, address}, &memoryConn{toServer, fromServer, address}
}

func (c *memoryConn) Write(p []byte) (int, error) { return c.out.Write(p) }
func (c *memoryConn) CloseWrite() error           { return c.out.Close() }
func (c *memoryConn) LocalAddr() net.Addr         { return c.address }
func (c *memoryConn) RemoteAddr() net.Addr        { return c.address }

// Close closes the reading direction first: the other end, which sees the end of the other
// direction, must not be able to answer any more.
func (c *memoryConn) Close() error { return errors.Join(c.Conn.Close(), c.out.Close()) }

// newNetTransport returns a transport of net/http that reaches servers in memory.
func newNetTransport(t *testing.T) *http.Transport {
	t.Helper()
	transport := &http.Transport{DialContext: dial, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(true)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// newServer starts a server in memory. Its Client reaches it, and so does newRig.
func newServer(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := newUnstartedServer(h)
	startServer(t, s)
	return s
}

func newUnstartedServer(h http.Handler) *httptest.Server {
	return &httptest.Server{Listener: listenInMemory(), Config: &http.Server{Handler: h}}
}

func startServer(t *testing.T, s *httptest.Server) {
	t.Helper()
	s.Start()
	t.Cleanup(s.Close)
	s.Client().Transport = newNetTransport(t)
}
