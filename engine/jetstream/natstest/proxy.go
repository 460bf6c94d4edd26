package natstest

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// proxy forwards connections to a port, unless it is blocked.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	blocked bool
	conns   map[net.Conn]bool
	group   sync.WaitGroup
}

func newProxy(port int) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: fmt.Sprintf("127.0.0.1:%d", port), conns: map[net.Conn]bool{}}
	p.group.Go(p.accept)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.group.Go(func() { p.serve(in) })
	}
}

func (p *proxy) serve(in net.Conn) {
	defer in.Close() //nolint:errcheck // the other end may have closed it
	if !p.add(in) {
		return
	}
	defer p.remove(in)
	out, err := net.Dial("tcp", p.target) //nolint:noctx // it is on this machine
	if err != nil {
		return
	}
	defer out.Close() //nolint:errcheck // the other end may have closed it
	if !p.add(out) {
		return
	}
	defer p.remove(out)
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1]) // either end may close at any time
			_, _ = pair[0].Close(), pair[1].Close()
		})
	}
	both.Wait()
}

// add registers a connection, unless connections are blocked.
func (p *proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.blocked {
		p.conns[c] = true
	}
	return !p.blocked
}

func (p *proxy) remove(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// block ends all connections and rejects new ones, or allows them again.
func (p *proxy) block(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked = yes
	if yes {
		for c := range p.conns {
			_ = c.Close()
		}
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.block(true)
	p.group.Wait()
}
