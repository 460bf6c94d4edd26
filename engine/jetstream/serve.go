package jetstream

import (
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/engine/journal"
)

const (
	// maxOpen is how many requests a desk has open at once.
	maxOpen = 8192

	// maxWaiting is how many bytes of requests may wait to be looked at.
	maxWaiting = 256 << 20

	// maxPart is how much of an answer fits into one message.
	maxPart = journal.MaxEntry
)

// Headers of requests and answers. Only what is out of the ordinary has any.
const (
	partHeader   = "Tideover-Part"   // "2/3": the second message of an answer in three
	statusHeader = "Tideover-Status" // why there is no answer
	pingHeader   = "Tideover-Ping"   // a request that asks for nothing

	statusNobody     = "nobody"     // the request was not looked at: there is nobody to answer
	statusBusy       = "busy"       // the request was not looked at: there are too many
	statusUnanswered = "unanswered" // the request was taken, and there will be no answer
)

func pingMessage(subject string) *nats.Msg {
	return &nats.Msg{Subject: subject, Header: nats.Header{pingHeader: {"1"}}}
}

// desk takes requests on a subject and hands them to whoever answers.
type desk struct {
	c   *conn
	sub *nats.Subscription

	mu     sync.Mutex
	answer journal.Answer // nil means that nobody answers
	open   map[*request]bool
	limit  int // of open
	closed bool
}

// request is one that has no answer yet.
type request struct {
	desk    *desk
	replyTo string
}

func (c *conn) openDesk(subject string, answer journal.Answer) (*desk, error) {
	d := &desk{c: c, answer: answer, open: map[*request]bool{}, limit: maxOpen}
	// Under the lock, because the first request may come before the subscription
	// is known.
	d.mu.Lock()
	defer d.mu.Unlock()
	sub, err := c.nc.Subscribe(subject, d.take)
	if err != nil {
		return nil, c.clean(err)
	}
	d.sub = sub
	return d, sub.SetPendingLimits(-1, maxWaiting)
}

// serve has requests answered from now on.
func (d *desk) serve(answer journal.Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer = answer
}

func (d *desk) take(m *nats.Msg) {
	if m.Reply == "" {
		return
	}
	if m.Header.Get(pingHeader) != "" {
		d.c.send(&nats.Msg{Subject: m.Reply})
		return
	}
	r, answer, status := d.admit(m.Reply)
	if status != "" {
		d.c.sendStatus(m.Reply, status)
		return
	}
	answer(m.Data, r.reply)
}

func (d *desk) admit(replyTo string) (*request, journal.Answer, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed || d.answer == nil:
		return nil, nil, statusNobody
	case len(d.open) >= d.limit:
		return nil, nil, statusBusy
	}
	r := &request{d, replyTo}
	d.open[r] = true
	return r, d.answer, ""
}

// reply answers the request, unless it was answered.
func (r *request) reply(answer []byte) {
	r.desk.mu.Lock()
	open := r.desk.open[r]
	delete(r.desk.open, r)
	r.desk.mu.Unlock()
	if open {
		r.desk.c.sendAnswer(r.replyTo, answer)
	}
}

// close takes no more requests, and tells those who wait that there will be no
// answer.
func (d *desk) close() {
	d.mu.Lock()
	open := d.open
	d.open, d.closed = nil, true
	d.mu.Unlock()
	_ = d.sub.Unsubscribe() // on a closed connection it is gone as well
	for r := range open {
		d.c.sendStatus(r.replyTo, statusUnanswered)
	}
}

// sendAnswer sends an answer in as many messages as it takes.
func (c *conn) sendAnswer(to string, answer []byte) {
	parts := max(1, (len(answer)+maxPart-1)/maxPart)
	for i := range parts {
		m := &nats.Msg{Subject: to, Data: answer[i*maxPart : min(len(answer), (i+1)*maxPart)]}
		if parts > 1 {
			m.Header = nats.Header{partHeader: {fmt.Sprintf("%d/%d", i+1, parts)}}
		}
		c.send(m)
	}
}

func (c *conn) sendStatus(to, status string) {
	c.send(&nats.Msg{Subject: to, Header: nats.Header{statusHeader: {status}}})
}

// send publishes what nobody waits for here. Without a connection it is kept
// until there is one.
func (c *conn) send(m *nats.Msg) {
	if err := c.nc.PublishMsg(m); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		c.complain(err)
	}
}

// Serve implements [journal.Cluster].
func (l *Log) Serve(answer journal.Answer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return fmt.Errorf("serve member %s: %w", l.id, errClosed)
	case l.answer != nil:
		return fmt.Errorf("serve member %s: it is served already", l.id)
	}
	l.answer = answer
	l.desk.serve(answer)
	return nil
}

// openMemberDesk takes requests to a member. Somebody is there from the start, so
// that others can see that the process lives.
func (l *Log) openMemberDesk(id string) (*desk, error) {
	return l.c.openDesk(l.names.memberSubject(id), nil)
}

// Serve implements [journal.Shared].
func (l *lease) Serve(answer journal.Answer) error {
	d, err := l.log.c.openDesk(l.log.names.shardSubject(l.shard), answer)
	if err != nil {
		return fmt.Errorf("serve shard %d: %w", l.shard, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.life.Err() != nil:
		err = l.stale()
	case l.desk != nil:
		err = errors.New("it is served already")
	}
	if err != nil {
		d.close()
		return fmt.Errorf("serve shard %d: %w", l.shard, err)
	}
	l.desk = d
	return nil
}
