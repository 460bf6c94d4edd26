package memlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// server is where requests to a shard or to a member go.
type server struct {
	member *Member
	answer journal.Answer // nil if requests are not answered
	left   chan struct{}  // closed when the others know that no answer will come
}

func newServer(m *Member) *server { return &server{member: m, left: make(chan struct{})} }

func (s *server) leave() {
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
	if m.server.answer != nil {
		return errors.New("memlog: the member is served already")
	}
	m.server.answer = answer
	return nil
}

// Call implements [journal.Cluster].
func (m *Member) Call(ctx context.Context, number int, request []byte) ([]byte, error) {
	if number < 0 || number >= m.Shards() {
		return nil, fmt.Errorf("memlog: there is no shard %d", number)
	}
	answer, err := m.ask(ctx, Operation{Name: "call", Shard: number}, request, func() *server {
		if owner := m.store.shards[number].owner; owner != nil {
			return owner.server
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("memlog: call shard %d: %w", number, err)
	}
	return answer, nil
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
	if err != nil {
		return nil, fmt.Errorf("memlog: ask member %s: %w", member, err)
	}
	return answer, nil
}

// ask sends a request to the server that find finds, and waits for its answer.
func (p *process) ask(ctx context.Context, op Operation, request []byte, find func() *server) ([]byte, error) {
	f := p.fault(op)
	if err := p.suffer(ctx, f); err != nil {
		return nil, err
	}
	unlock, err := p.enter(ctx)
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
