package jetstream

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/engine/journal"
)

// lateAnswerTime is how long a caller still waits for the answer of a process that is
// gone: the answer may be on its way.
const lateAnswerTime = 200 * time.Millisecond

// requester sends requests to members and to owners of shards, and waits for their
// answers.
type requester struct {
	*backend
	view   *clusterView
	prefix string // start of the subjects of answers
	sub    *nats.Subscription

	mu     sync.Mutex
	number uint64
	open   map[string]*call // requests without an answer yet
}

// call is a request that has no answer yet.
type call struct {
	done  chan struct{} // closed when the answer is complete, or err is set
	parts [][]byte
	got   int
	err   error
}

func newRequester(b *backend, view *clusterView) (*requester, error) {
	q := &requester{backend: b, view: view, prefix: b.c.nc.NewInbox() + ".", open: map[string]*call{}}
	var err error
	q.sub, err = b.c.nc.Subscribe(q.prefix+"*", q.receive)
	if err != nil {
		return nil, b.c.clean(err)
	}
	// Many large answers may arrive at once.
	return q, q.sub.SetPendingLimits(-1, -1)
}

// begin sends a request. It returns the call that waits for the answer, and the token of
// the call, which is the end of the answer's subject.
func (q *requester) begin(subject string, body []byte) (*call, string, error) {
	c := &call{done: make(chan struct{})}
	q.mu.Lock()
	q.number++
	token := strconv.FormatUint(q.number, 36)
	q.open[token] = c
	q.mu.Unlock()
	if err := q.c.nc.PublishRequest(subject, q.prefix+token, body); err != nil {
		q.remove(token)
		return nil, "", q.c.clean(err)
	}
	return c, token, nil
}

func (q *requester) remove(token string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.open, token)
}

func (q *requester) receive(m *nats.Msg) {
	q.mu.Lock()
	defer q.mu.Unlock()
	token := strings.TrimPrefix(m.Subject, q.prefix)
	c := q.open[token]
	if c == nil {
		return
	}
	c.add(m)
	if c.err != nil || len(c.parts) > 0 && c.got == len(c.parts) {
		delete(q.open, token)
		close(c.done)
	}
}

// add handles a message of the answer: a part of it, or the reason why there is none.
func (c *call) add(m *nats.Msg) {
	switch {
	case m.Header.Get("Status") == "503", m.Header.Get(statusHeader) == statusNoServer:
		c.err = journal.ErrNobody
	case m.Header.Get(statusHeader) == statusBusy:
		c.err = errBusy
	case m.Header.Get(statusHeader) == statusUnanswered:
		c.err = errUnanswered
	default:
		c.addPart(m.Header.Get(partHeader), m.Data)
	}
}

func (c *call) addPart(header string, data []byte) {
	number, count := 1, 1
	if header != "" {
		if _, err := fmt.Sscanf(header, "%d/%d", &number, &count); err != nil || number < 1 || number > count {
			c.err = fmt.Errorf("the answer has an invalid part number: %q", header)
			return
		}
	}
	if c.parts == nil {
		c.parts = make([][]byte, count)
	}
	if len(c.parts) != count {
		c.err = fmt.Errorf("the answer has part %q, but its first part announced %d parts", header, len(c.parts))
		return
	}
	if c.parts[number-1] == nil {
		c.parts[number-1] = append([]byte{}, data...) // never nil
		c.got++
	}
}

// answer returns the whole answer.
func (c *call) answer() ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	if len(c.parts) == 1 {
		return c.parts[0], nil
	}
	return bytes.Join(c.parts, nil), nil
}

// callShard sends a request to the owner of a shard, and returns the answer.
func (q *requester) callShard(ctx context.Context, shard int, request []byte) ([]byte, error) {
	if err := q.checkShard(shard); err != nil {
		return nil, err
	}
	var was shardRecord // record of the owner that got the request, as far as we know
	return q.send(ctx, q.names.shardSubject(shard), request, func(s *clusterState) bool {
		is := s.shards[shard]
		if was.Owner == "" {
			was = is
		}
		_, lives := s.members[was.Owner]
		return was.Owner != "" && (is.Owner != was.Owner || is.Epoch != was.Epoch || !lives)
	})
}

// askMember sends a request to a member, and returns the answer.
func (q *requester) askMember(ctx context.Context, member string, request []byte) ([]byte, error) {
	was := false
	return q.send(ctx, q.names.memberSubject(member), request, func(s *clusterState) bool {
		_, is := s.members[member]
		was = was || is
		return was && !is
	})
}

// validMember reports whether the id can be a part of a NATS subject, as the id of every
// member can.
func validMember(id string) bool { return id != "" && !strings.ContainsAny(id, ".*> \t\r\n") }

// send repeats a request until it is accepted, and waits for the answer. It calls gone
// with the present state of the cluster and with every later one. gone reports whether
// the process that got the request is gone; then send stops waiting.
func (q *requester) send(ctx context.Context, subject string, request []byte, gone func(*clusterState) bool) (answer []byte, err error) {
	if len(request) > journal.MaxEntry {
		return nil, fmt.Errorf("%w: a request of %d bytes, at most %d", journal.ErrTooLarge, len(request), journal.MaxEntry)
	}
	for range calls.Attempts(ctx, &err) {
		answer, err = q.sendOnce(ctx, subject, request, gone)
	}
	return answer, plain(err)
}

func (q *requester) sendOnce(ctx context.Context, subject string, request []byte, gone func(*clusterState) bool) ([]byte, error) {
	if err := q.checkOpen(); err != nil {
		return nil, err
	}
	if err := q.c.connected(); err != nil {
		return nil, fmt.Errorf("%w: %w", journal.ErrNobody, err)
	}
	cut := q.c.whenCut()
	s, changed := q.view.current()
	_ = gone(s) // only records who the owner is: if no process is subscribed, the servers answer so
	c, token, err := q.begin(subject, request)
	if err != nil {
		return nil, err
	}
	defer q.remove(token)
	for {
		select {
		case <-c.done:
			return c.answer()
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-cut.Done():
			return nil, errCutOff
		case <-q.life.Done():
			return nil, errClosed
		case <-changed:
		}
		if s, changed = q.view.current(); gone(s) {
			return c.lateAnswer(ctx)
		}
	}
}

// lateAnswer waits for lateAnswerTime for the answer of a process that is gone.
func (c *call) lateAnswer(ctx context.Context) ([]byte, error) {
	timer := time.NewTimer(lateAnswerTime)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.answer()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, errUnanswered
	}
}
