package nostrtest

import (
	"net"
	"sync"
	"sync/atomic"
)

// wire is a connection that can fall silent and be torn. It stands below the
// websocket, so that pings and their answers are silenced too.
type wire struct {
	net.Conn
	core *core
	open atomic.Bool // it is a websocket by now: Mute lets links come about
	once sync.Once
	gone chan struct{}
}

// Read implements [net.Conn].
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.listen() // after it: a read that was under way when it fell silent is held too
	return n, err
}

// Write implements [net.Conn].
func (w *wire) Write(p []byte) (int, error) {
	w.listen()
	return w.Conn.Write(p)
}

// listen waits while the relay is mute.
func (w *wire) listen() {
	for w.open.Load() {
		var mute bool
		changed := w.core.look(func() { mute = w.core.faults.Mute })
		if !mute {
			return
		}
		select {
		case <-changed:
		case <-w.gone:
			return
		}
	}
}

// Close implements [net.Conn].
func (w *wire) Close() error {
	w.once.Do(func() { close(w.gone) })
	return w.Conn.Close()
}

// tear closes the connection without a goodbye: the other side is told that it was
// reset, and what it was sent may be lost.
func (w *wire) tear() {
	if tcp, ok := w.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only if it is closed already
	}
	_ = w.Close()
}

// listener hands out wires.
type listener struct {
	net.Listener
	core *core
}

// Accept implements [net.Listener].
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c, core: l.core, gone: make(chan struct{})}, nil
}
