package main

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy is between devices and an acceptor, and can be cut.
type proxy struct {
	to string
	ln net.Listener

	mu    sync.Mutex
	apart bool
	conns map[net.Conn]bool
	wait  sync.WaitGroup
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: to, ln: ln, conns: map[net.Conn]bool{}}
	p.wait.Go(p.serve)
	t.Cleanup(func() {
		_ = ln.Close()
		p.cut()
		p.wait.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.ln.Addr().String() }

func (p *proxy) serve() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		if p.register(in, out) {
			p.wait.Go(func() { p.pipe(in, out) })
			p.wait.Go(func() { p.pipe(out, in) })
		}
	}
}

// register registers the connections, unless they are blocked.
func (p *proxy) register(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.apart {
			_ = c.Close()
			continue
		}
		p.conns[c] = true
	}
	return !p.apart
}

func (p *proxy) pipe(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range []net.Conn{from, to} {
		_ = c.Close()
		delete(p.conns, c)
	}
}

// cut breaks all connections, and rejects new ones.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apart = true
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apart = false
}
