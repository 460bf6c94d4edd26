package chaos

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// listener can be closed and opened again, on the same port, while a server goes on
// accepting from it.
type listener struct {
	address string

	mu     sync.Mutex
	moved  *sync.Cond
	inner  net.Listener // nil while the port is closed
	closed bool
}

// newListener listens on the address. Port 0 is any that is free, and stays the same.
func newListener(address string) (*listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	d := &listener{address: l.Addr().String(), inner: l}
	d.moved = sync.NewCond(&d.mu)
	return d, nil
}

// Accept implements [net.Listener]. While the port is closed it waits.
func (d *listener) Accept() (net.Conn, error) {
	for {
		l := d.wait()
		if l == nil {
			return nil, net.ErrClosed
		}
		c, err := l.Accept()
		if err == nil || d.is(l) {
			return c, err
		}
	}
}

// wait waits until the port is open and returns the listener below; nil after Close.
func (d *listener) wait() net.Listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.inner == nil && !d.closed {
		d.moved.Wait()
	}
	return d.inner
}

// is reports whether the listener below is still the current one.
func (d *listener) is(l net.Listener) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.inner == l
}

// shut closes the port: new connections are refused.
func (d *listener) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inner != nil {
		_ = d.inner.Close()
		d.inner = nil
	}
}

// open opens the port again. It fails if another program has taken the port.
func (d *listener) open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inner != nil || d.closed {
		return nil
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", d.address)
	if err != nil {
		return err
	}
	d.inner = l
	d.moved.Broadcast()
	return nil
}

// Close implements [net.Listener].
func (d *listener) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inner != nil {
		_ = d.inner.Close()
		d.inner = nil
	}
	d.closed = true
	d.moved.Broadcast()
	return nil
}

// Addr implements [net.Listener].
func (d *listener) Addr() net.Addr { return named(d.address) }

// named is the address of a listener.
type named string

// Network implements [net.Addr].
func (named) Network() string { return "tcp" }

func (n named) String() string { return string(n) }

// raw returns the connection below TLS.
func raw(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}

// kill ends a connection with a RST: what was not sent is dropped.
func kill(c net.Conn) {
	c = raw(c)
	if t, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// closeWrite ends our direction of a connection.
func closeWrite(c net.Conn) {
	for _, c := range []net.Conn{c, raw(c)} { // TLS says so itself first
		if h, ok := c.(interface{ CloseWrite() error }); ok {
			_ = h.CloseWrite()
		}
	}
}

type connKey struct{}

// connOf returns the connection that a request came on.
func connOf(ctx context.Context) net.Conn {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	return c
}
