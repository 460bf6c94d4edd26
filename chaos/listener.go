package chaos

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"sync"
	"time"
)

// listener is a listener whose port can be closed and opened again while a server
// accepts from it.
type listener struct {
	addr net.Addr

	mu     sync.Mutex
	moved  *sync.Cond   // signals that the port was opened, or the listener closed
	inner  net.Listener // nil while the port is closed
	closed bool
}

// newListener listens on the address. Port 0 means a free port, which is used again when
// the port is reopened.
func newListener(address string) (*listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	d := &listener{addr: l.Addr(), inner: l}
	d.moved = sync.NewCond(&d.mu)
	return d, nil
}

// Accept implements [net.Listener]. It waits while the port is closed.
func (d *listener) Accept() (net.Conn, error) {
	for {
		l := d.wait()
		if l == nil {
			return nil, net.ErrClosed
		}
		c, err := l.Accept()
		if !errors.Is(err, net.ErrClosed) { // shut has not closed it meanwhile
			return c, err
		}
	}
}

// wait waits until the port is open and returns the inner listener; nil after Close.
func (d *listener) wait() net.Listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.inner == nil && !d.closed {
		d.moved.Wait()
	}
	return d.inner
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
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", d.addr.String())
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
	d.closed = true // open does nothing from now on
	d.mu.Unlock()
	d.shut()
	d.moved.Broadcast()
	return nil
}

// Addr implements [net.Listener].
func (d *listener) Addr() net.Addr { return d.addr }

// raw returns the connection below TLS.
func raw(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}

// kill ends a connection with a TCP RST. Data that was not sent yet is lost.
func kill(c net.Conn) {
	c = raw(c)
	if t, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// closeWrite closes the sending half of a connection.
func closeWrite(c net.Conn) {
	for _, c := range []net.Conn{c, raw(c)} { // TLS first, so that it sends its close message
		if h, ok := c.(interface{ CloseWrite() error }); ok {
			_ = h.CloseWrite()
		}
	}
}

type connKey struct{}

// connOf returns the connection of a request, from the request's context.
func connOf(ctx context.Context) net.Conn {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	return c
}

// selfSigned returns a certificate for the loopback interface and the host. Clients must
// be told to trust it.
func selfSigned(host string, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "tideover chaos"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(365 * day),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsLoopback() {
		template.IPAddresses = append(template.IPAddresses, ip)
	} else if ip == nil && host != "" && host != "localhost" {
		template.DNSNames = append(template.DNSNames, host)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
