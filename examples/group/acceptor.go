package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/paxos"
	"github.com/tideover/tideover/internal/validate"
)

const verbAcceptor = "acceptor"

// acceptorMain runs an acceptor. It ends when its standard input ends, so that
// it does not outlive its parent.
func acceptorMain(ctx context.Context, args []string, in io.Reader, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("group acceptor", flag.ContinueOnError)
	flags.SetOutput(stderr)
	id := flags.Int("id", 0, "number of the acceptor, from 0")
	dir := flags.String("dir", "", "folder for its persistent state")
	listen := flags.String("listen", "127.0.0.1:0", "address to listen on")
	if err := flags.Parse(args); err != nil {
		return errors.Join(errUsage, err)
	}
	var errs validate.Problems
	errs.Check(*id >= 0 && *id < paxos.MaxAcceptors,
		"acceptor: -id: %d is not between 0 and %d", *id, paxos.MaxAcceptors-1)
	errs.Check(*dir != "", "acceptor: -dir: missing: give a folder")
	if err := errors.Join(errs...); err != nil {
		return err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return fmt.Errorf("acceptor %d: %w", *id, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	}()
	fmt.Fprintln(stdout, ln.Addr())
	return serve(ctx, *id, ln, store{filepath.Join(*dir, fmt.Sprintf("acceptor-%d.json", *id))})
}

// server runs an acceptor: one goroutine owns it, and others read from and
// write to the connections.
type server struct {
	acceptor *paxos.Acceptor
	known    map[int]int // for each member, the least number of epochs that it knows
	met      bool        // a new member is known that was not saved to the file yet
	store    store
	inbox    chan incoming
	peers    map[int]*peer // the connection of each member
	out      paxos.Output
	wait     sync.WaitGroup
}

// recent is how many decisions an acceptor keeps even if all members that it knows
// have learned them: a device that has just started may not have contacted it yet.
const recent = 64

// maxMembers is how many members an acceptor serves. It stores the state of each.
const maxMembers = 1000

// incoming is a message with its connection.
type incoming struct {
	from    *peer
	message paxos.Message
}

// peer is a connection to a member. It is closed if the member does not read its messages.
type peer struct {
	conn net.Conn
	send chan paxos.Message
}

// serve runs the acceptor until the context ends or its state cannot be stored: an
// acceptor must not answer before its state is stored.
func serve(ctx context.Context, id int, ln net.Listener, st store) error {
	m, err := st.load()
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &server{
		acceptor: paxos.NewAcceptor(id, m.Slots...), known: m.Known,
		store: st, inbox: make(chan incoming, 256), peers: map[int]*peer{},
	}
	s.wait.Go(func() { s.listen(ctx, ln) })
	err = s.run(ctx)
	cancel()
	_ = ln.Close()
	s.wait.Wait()
	return err
}

// acceptPause is the wait after a failed accept.
const acceptPause = 100 * time.Millisecond

func (s *server) listen(ctx context.Context, ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return
		}
		if err != nil { // such as too many open files, which may be temporary
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		p := &peer{conn: conn, send: make(chan paxos.Message, 1024)}
		s.wait.Go(func() { talk(ctx, conn, p.send, func() { s.hear(ctx, p) }) })
	}
}

func (s *server) hear(ctx context.Context, p *peer) {
	for r := bufio.NewReader(p.conn); ; {
		m, err := paxos.Read(r)
		if err != nil {
			return
		}
		select {
		case s.inbox <- incoming{p, m}:
		case <-ctx.Done():
			return
		}
	}
}

// run is the goroutine that owns the acceptor. It handles all waiting messages,
// saves the state once, and only then answers.
func (s *server) run(ctx context.Context) error {
	for {
		s.out.Reset()
		select {
		case <-ctx.Done():
			return nil
		case in := <-s.inbox:
			s.receive(in)
		}
		for n := len(s.inbox); n > 0; n-- {
			s.receive(<-s.inbox)
		}
		if err := s.save(); err != nil {
			return err
		}
		for _, m := range s.out.Send {
			s.answer(m)
		}
	}
}

// save stores the state if it has changed, and releases the answers that depend
// on it.
func (s *server) save() error {
	writes := len(s.out.Persist)
	if writes == 0 && !s.met {
		return nil
	}
	s.acceptor.Forget(min(s.epochsKnownByAll(), s.acceptor.Tip()-recent))
	if err := s.store.save(savedState{Known: s.known, Slots: s.acceptor.Slots()}); err != nil {
		return err
	}
	s.met = false
	s.acceptor.Persisted(writes, &s.out)
	return nil
}

// epochsKnownByAll returns how many epochs every member knows. A member that is
// disconnected counts too, so its missing decisions are kept until it returns. A
// member whose next decision is already forgotten does not count.
func (s *server) epochsKnownByAll() int {
	least := math.MaxInt
	for _, n := range s.known {
		if n >= s.acceptor.Floor() {
			least = min(least, n)
		}
	}
	return least
}

func (s *server) receive(in incoming) {
	from := in.message.From
	known, met := s.known[from]
	if !met && len(s.known) >= maxMembers {
		_ = in.from.conn.Close()
		return
	}
	s.met = s.met || !met
	s.known[from] = max(known, in.message.Ballot.Epoch-1) // a member that asks for an epoch knows the earlier ones
	s.peers[from] = in.from
	s.acceptor.Receive(in.message, &s.out)
}

// answer queues an answer without blocking.
func (s *server) answer(m paxos.Message) {
	p := s.peers[m.To]
	if p == nil {
		return
	}
	select {
	case p.send <- m:
	default:
		_ = p.conn.Close()
		delete(s.peers, m.To)
	}
}

// writeTimeout is how long writing a message may take.
const writeTimeout = 5 * time.Second

// talk calls read, which reads from the connection, and writes the messages of send to the
// connection, until it breaks or the context ends.
func talk(ctx context.Context, conn net.Conn, send <-chan paxos.Message, read func()) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		read()
	}()
	writeAll(ctx, conn, send, gone)
	_ = conn.Close()
	<-gone
}

// writeAll writes messages until a write fails, the other direction ends or the
// context ends.
func writeAll(ctx context.Context, conn net.Conn, send <-chan paxos.Message, gone <-chan struct{}) {
	var buf []byte
	for {
		select {
		case <-ctx.Done():
			return
		case <-gone:
			return
		case m := <-send:
			var err error
			if buf, err = paxos.Append(buf[:0], m); err != nil {
				return
			}
			_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	}
}
