package nostrtest

import (
	"net"
	"sync"
	"sync/atomic"
)

// wire is a connection that can fall silent and be reset. It is below the
// websocket, so that pings and pongs are silenced too.
type wire struct {
	net.Conn
	core *core
	open atomic.Bool // it is a websocket by now: Mute does not affect the handshake
	once sync.Once
	gone chan struct{}
}

// Read implements [net.Conn].
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.waitWhileMute() // after the read, so that one that began before it fell silent is held too
	return n, err
}

// Write implements [net.Conn].
func (w *wire) Write(p []byte) (int, error) {
	w.waitWhileMute()
	return w.Conn.Write(p)
}

// waitWhileMute blocks while the relay is mute.
func (w *wire) waitWhileMute() {
	for w.open.Load() {
		var mute bool
		changed := w.core.read(func() { mute = w.core.faults.Mute })
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

// reset closes the connection with a TCP reset; data in transit may be lost.
func (w *wire) reset() {
	if tcp, ok := w.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails only if it is closed already
	}
	_ = w.Close()
}

// listener accepts connections as wires.
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
