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
	send(paxos.Message) bool // reports whether the message is on its way; never blocks
	close()                  // returns when nothing of the wire runs any more
}

// listener is who hears what comes over a wire.
type listener interface {
	hear(paxos.Message)
	connected(acceptor int)
	disconnected(acceptor int)
}

// dialing is how a lost connection is looked for again.
var dialing = retry.Must("exponential(20ms..500ms) jitter=full attempts=unlimited")

// tcp is a wire of one connection to each acceptor, made anew when it breaks.
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

// run keeps the connection until the context ends.
func (k *link) run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = dialing.Do(ctx, k.connect) // it ends well with each connection that was of use
	}
}

// errSilent is a connection that broke before it was of any use.
var errSilent = errors.New("the acceptor said nothing")

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

// talk uses the connection until it breaks, and returns how many messages came.
func (k *link) talk(ctx context.Context, conn net.Conn) (heard int) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		heard = k.read(conn)
	}()
	k.up.Store(true)
	k.listener.connected(k.acceptor)
	writeAll(ctx, conn, k.out, gone)
	k.up.Store(false)
	_ = conn.Close()
	<-gone
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
