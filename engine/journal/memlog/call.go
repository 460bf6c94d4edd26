package memlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
)

// server receives the requests to a shard or to a member.
type server struct {
	member *Member
	answer journal.Answer // nil if requests are not answered
	left   chan struct{}  // closed when the callers learn that no answer will come
}

func newServer(m *Member) *server { return &server{member: m, left: make(chan struct{})} }

func (s *server) stop() {
	s.answer = nil
	if !isClosed(s.left) {
		close(s.left)
	}
}

// Serve implements [journal.Cluster].
func (m *Member) Serve(answer journal.Answer) error {
	unlock, err := m.enter(context.Background())
	if err != nil {
		return err
	}
	defer unlock()
	return m.server.serve("member", answer)
}

// serve makes the server call the function answer for each request from now on. what names the
// owner of the requests in errors: member or shard.
func (s *server) serve(what string, answer journal.Answer) error {
	if s.answer != nil {
		return fmt.Errorf("memlog: the %s is served already", what)
	}
	s.answer = answer
	return nil
}

// Call implements [journal.Cluster].
func (m *Member) Call(ctx context.Context, number int, request []byte) ([]byte, error) {
	s, err := m.store.shard(number)
	if err != nil {
		return nil, err
	}
	answer, err := m.ask(ctx, Operation{Name: "call", Shard: number}, request, func() *server {
		if owner := s.owner; owner != nil {
			return owner.server
		}
		return nil
	})
	return answer, disk.Wrapf(err, "memlog: call shard %d", number)
}

// Ask implements [journal.Cluster].
func (m *Member) Ask(ctx context.Context, member string, request []byte) ([]byte, error) {
	answer, err := m.ask(ctx, Operation{Name: "ask", Shard: -1}, request, func() *server {
		i := slices.IndexFunc(m.store.members, func(other *Member) bool { return other.id == member })
		if i < 0 {
			return nil
		}
		return m.store.members[i].server
	})
	return answer, disk.Wrapf(err, "memlog: ask member %s", member)
}

// ask sends a request to the server that find returns, and waits for its answer.
func (p *process) ask(ctx context.Context, op Operation, request []byte, find func() *server) ([]byte, error) {
	f, unlock, err := p.begin(ctx, op)
	if err != nil {
		return nil, err
	}
	to := find()
	if to == nil || to.answer == nil {
		unlock()
		return nil, journal.ErrNobody
	}
	e := &exchange{from: p, to: to, answer: to.answer, request: bytes.Clone(request), answered: make(chan []byte, 1)}
	unlock()
	if f.After != nil && f.Late > 0 {
		time.AfterFunc(f.Late, e.deliver)
		return nil, f.After
	}
	e.deliver()
	if f.After != nil {
		return nil, f.After
	}
	return e.wait(ctx)
}

// errUnanswered is the error of a request that was delivered and not answered. It does
// not match ErrNobody, because the request may have been carried out.
var errUnanswered = errors.New("the process that was asked has gone without an answer")

// exchange is a request and its answer.
type exchange struct {
	from     *process
	to       *server
	answer   journal.Answer
	request  []byte
	answered chan []byte
}

// deliver passes the request to its receiver. A frozen process gets it when it thaws; if
// the process is gone, the request is lost.
func (e *exchange) deliver() {
	if e.to.member.accept(e.deliver) {
		e.answer(e.request, e.reply)
	}
}

// reply sends the answer back. Only the first one counts.
func (e *exchange) reply(answer []byte) {
	answer = bytes.Clone(answer)
	if !e.to.member.accept(func() { e.reply(answer) }) || !e.from.reachable() {
		return
	}
	select {
	case e.answered <- answer:
	default:
	}
}

// wait waits for the answer. It fails when the receiver or the caller is gone without
// an answer.
func (e *exchange) wait(ctx context.Context) (answer []byte, err error) {
	select {
	case answer = <-e.answered:
	case <-e.to.left:
		select {
		case answer = <-e.answered: // it came just before the receiver was gone
		default:
			err = errUnanswered
		}
	case <-e.from.gone:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	unlock, lockErr := e.from.lock(ctx)
	if lockErr != nil {
		return nil, lockErr
	}
	defer unlock()
	if isClosed(e.from.gone) {
		return nil, e.from.reach()
	}
	return answer, err
}
