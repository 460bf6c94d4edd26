package jetstream

import (
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/engine/journal"
)

const (
	// maxOpen is how many requests may wait for their answer at once.
	maxOpen = 8192

	// maxWaiting is how many bytes of requests may wait in the subscription.
	maxWaiting = 256 << 20

	// maxPart is how much of an answer fits into one message.
	maxPart = journal.MaxEntry
)

// Headers of requests and answers. A plain request, and an answer in one message, have
// no header.
const (
	partHeader   = "Tideover-Part"   // "2/3": the second message of an answer in three
	statusHeader = "Tideover-Status" // why there is no answer
	pingHeader   = "Tideover-Ping"   // a request that the server answers by itself, to show that it runs

	statusNoServer   = "nobody"     // the request was rejected: no process answers
	statusBusy       = "busy"       // the request was rejected: too many are open
	statusUnanswered = "unanswered" // the request was accepted, and there will be no answer
)

// requestServer receives requests on a subject and passes them to a [journal.Answer].
type requestServer struct {
	c   *conn
	sub *nats.Subscription

	mu     sync.Mutex
	answer journal.Answer // nil means that requests are rejected
	open   map[*request]bool
	limit  int // largest number of open requests
	closed bool
}

// request is a request that has no answer yet.
type request struct {
	server  *requestServer
	replyTo string
}

func newRequestServer(c *conn, subject string, answer journal.Answer) (*requestServer, error) {
	s := &requestServer{c: c, answer: answer, open: map[*request]bool{}, limit: maxOpen}
	// Under the lock, because the first request may come before s.sub is set.
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, err := c.nc.Subscribe(subject, s.receive)
	if err != nil {
		return nil, c.clean(err)
	}
	s.sub = sub
	return s, sub.SetPendingLimits(-1, maxWaiting)
}

// serve passes requests to answer from now on.
func (s *requestServer) serve(answer journal.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *requestServer) receive(m *nats.Msg) {
	if m.Reply == "" {
		return
	}
	if m.Header.Get(pingHeader) != "" {
		s.c.send(&nats.Msg{Subject: m.Reply})
		return
	}
	r, answer, status := s.admit(m.Reply)
	if status != "" {
		s.sendStatus(m.Reply, status)
		return
	}
	answer(m.Data, r.reply)
}

func (s *requestServer) admit(replyTo string) (*request, journal.Answer, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed || s.answer == nil:
		return nil, nil, statusNoServer
	case len(s.open) >= s.limit:
		return nil, nil, statusBusy
	}
	r := &request{s, replyTo}
	s.open[r] = true
	return r, s.answer, ""
}

// reply sends the answer. A second reply is ignored.
func (r *request) reply(answer []byte) {
	r.server.mu.Lock()
	open := r.server.open[r]
	delete(r.server.open, r)
	r.server.mu.Unlock()
	if open {
		r.server.sendAnswer(r.replyTo, answer)
	}
}

// close stops the server: it rejects new requests, and notifies the callers of open
// requests that there will be no answer.
func (s *requestServer) close() {
	s.mu.Lock()
	open := s.open
	s.open, s.closed = nil, true
	s.mu.Unlock()
	_ = s.sub.Unsubscribe() // on a closed connection it is gone as well
	for r := range open {
		s.sendStatus(r.replyTo, statusUnanswered)
	}
}

// sendAnswer sends an answer in as many messages as it takes.
func (s *requestServer) sendAnswer(to string, answer []byte) {
	parts := max(1, (len(answer)+maxPart-1)/maxPart)
	for i := range parts {
		m := &nats.Msg{Subject: to, Data: answer[i*maxPart : min(len(answer), (i+1)*maxPart)]}
		if parts > 1 {
			m.Header = nats.Header{partHeader: {fmt.Sprintf("%d/%d", i+1, parts)}}
		}
		s.c.send(m)
	}
}

func (s *requestServer) sendStatus(to, status string) {
	s.c.send(&nats.Msg{Subject: to, Header: nats.Header{statusHeader: {status}}})
}
