package main

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/internal/paxos"
	"github.com/tideover/tideover/retry"
)

// wire carries a device's messages to the acceptors.
type wire interface {
	send(paxos.Message) bool // reports whether the message was queued; never blocks
	close()                  // returns when all goroutines of the wire have ended
}

// listener receives what arrives on a wire.
type listener interface {
	hear(paxos.Message)
	connected(acceptor int)
	disconnected(acceptor int)
}

// redial is the policy for reconnecting.
var redial = retry.Must("exponential(20ms..500ms) jitter=full attempts=unlimited")

// tcp is a wire with one TCP connection to each acceptor. It reconnects when a
// connection breaks.
type tcp struct {
	links  []*link
	cancel context.CancelFunc
	wait   sync.WaitGroup
}

type link struct {
	acceptor int
	address  string
	up       atomic.Bool
	out      chan paxos.Message
	listener listener
}

func dialAll(addresses []string, l listener) *tcp {
	ctx, cancel := context.WithCancel(context.Background())
	w := &tcp{cancel: cancel}
	for i, address := range addresses {
		k := &link{acceptor: i, address: address, out: make(chan paxos.Message, 256), listener: l}
		w.links = append(w.links, k)
		w.wait.Go(func() { k.run(ctx) })
	}
	return w
}

func (w *tcp) send(m paxos.Message) bool {
	k := w.links[m.To]
	if !k.up.Load() {
		return false
	}
	select {
	case k.out <- m:
		return true
	default:
		return false
	}
}

func (w *tcp) close() {
	w.cancel()
	w.wait.Wait()
}

// run maintains the connection until the context ends.
func (k *link) run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = redial.Do(ctx, k.connect) // it returns nil after each connection that was useful
	}
}

// errSilent is the error of a connection that broke before any message arrived.
var errSilent = errors.New("the acceptor sent no message")

func (k *link) connect(ctx context.Context) error {
	d := net.Dialer{Timeout: 2 * time.Second}
	conn, err := d.DialContext(ctx, "tcp", k.address)
	if err != nil {
		k.listener.disconnected(k.acceptor)
		return err
	}
	if heard := k.talk(ctx, conn); heard == 0 {
		return errSilent
	}
	return nil
}

// talk uses the connection until it breaks, and returns the number of received
// messages.
func (k *link) talk(ctx context.Context, conn net.Conn) (heard int) {
	k.up.Store(true)
	k.listener.connected(k.acceptor)
	talk(ctx, conn, k.out, func() { heard = k.read(conn) })
	k.up.Store(false)
	k.listener.disconnected(k.acceptor)
	return heard
}

func (k *link) read(conn net.Conn) (heard int) {
	for r := bufio.NewReader(conn); ; heard++ {
		m, err := paxos.Read(r)
		if err != nil {
			return heard
		}
		k.listener.hear(m)
	}
}
