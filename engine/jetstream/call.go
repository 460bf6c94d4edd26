package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/engine/journal"
)

// What becomes of a request that has no answer.
var (
	errBusy       = errors.New("too many requests are open there")
	errUnanswered = errors.New("whoever took the request will not answer it any more; it may have been carried out")
	errCutOff     = errors.New("the connection to NATS was lost before the answer came; the request may have been carried out")
)

// lastWords is how long an answer may be under way after whoever gave it is gone.
const lastWords = 200 * time.Millisecond

// exchange is the requests of one member that have no answer yet.
type exchange struct {
	c      *conn
	prefix string // of the subjects of answers
	sub    *nats.Subscription

	mu     sync.Mutex
	number uint64
	open   map[string]*call
}

// call is a request that has no answer yet.
type call struct {
	done   chan struct{} // closed when the answer is whole, or err is set
	parts  [][]byte
	got    int
	err    error
	closed bool
}

func newExchange(c *conn) (*exchange, error) {
	x := &exchange{c: c, prefix: c.nc.NewInbox() + ".", open: map[string]*call{}}
	var err error
	x.sub, err = c.nc.Subscribe(x.prefix+"*", x.answered)
	if err != nil {
		return nil, c.clean(err)
	}
	// What is asked from one may be answered by many at once, and largely.
	return x, x.sub.SetPendingLimits(-1, -1)
}

func (x *exchange) close() { _ = x.sub.Unsubscribe() } // the connection is closed next

// begin sends a request.
func (x *exchange) begin(subject string, body []byte) (*call, string, error) {
	c := &call{done: make(chan struct{})}
	x.mu.Lock()
	x.number++
	token := strconv.FormatUint(x.number, 36)
	x.open[token] = c
	x.mu.Unlock()
	if err := x.c.nc.PublishRequest(subject, x.prefix+token, body); err != nil {
		x.forget(token)
		return nil, "", x.c.clean(err)
	}
	return c, token, nil
}

func (x *exchange) forget(token string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.open, token)
}

func (x *exchange) answered(m *nats.Msg) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.open[strings.TrimPrefix(m.Subject, x.prefix)]
	if c == nil || c.closed {
		return
	}
	c.add(m)
	if c.err != nil || len(c.parts) > 0 && c.got == len(c.parts) {
		c.closed = true
		close(c.done)
	}
}

// add takes a message of the answer.
func (c *call) add(m *nats.Msg) {
	switch {
	case m.Header.Get("Status") == "503", m.Header.Get(statusHeader) == statusNobody:
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
			c.err = fmt.Errorf("answer with the part %q", header)
			return
		}
	}
	if c.parts == nil {
		c.parts = make([][]byte, count)
	}
	if len(c.parts) != count {
		c.err = fmt.Errorf("answer with the part %q, of %d before", header, len(c.parts))
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
	var whole []byte
	for _, p := range c.parts {
		whole = append(whole, p...)
	}
	return whole, nil
}

// Call implements [journal.Cluster].
func (l *Log) Call(ctx context.Context, shard int, request []byte) ([]byte, error) {
	if shard < 0 || shard >= l.settings.Shards {
		return nil, fmt.Errorf("call shard %d of %s: there is no such shard: the cluster has %d", shard, l.cfg.Name, l.settings.Shards)
	}
	var was shardRecord // of the owner that we asked, as far as we know
	answer, err := l.ask(ctx, l.names.shardSubject(shard), request, func(v *view) bool {
		is := v.shards[shard]
		if was.Owner == "" {
			was = is
		}
		_, lives := v.members[was.Owner]
		return was.Owner != "" && (is.Owner != was.Owner || is.Epoch != was.Epoch || !lives)
	})
	if err != nil {
		return nil, fmt.Errorf("call shard %d of %s: %w", shard, l.cfg.Name, plain(err))
	}
	return answer, nil
}

// Ask implements [journal.Cluster].
func (l *Log) Ask(ctx context.Context, member string, request []byte) ([]byte, error) {
	if !validMember(member) {
		return nil, fmt.Errorf("ask member %q: %w", member, journal.ErrNobody)
	}
	was := false
	answer, err := l.ask(ctx, l.names.memberSubject(member), request, func(v *view) bool {
		_, is := v.members[member]
		was = was || is
		return was && !is
	})
	if err != nil {
		return nil, fmt.Errorf("ask member %s: %w", member, plain(err))
	}
	return answer, nil
}

// validMember reports whether there can be a member of that id: it becomes a part
// of a subject.
func validMember(id string) bool {
	return id != "" && !strings.ContainsAny(id, ".*> \t\r\n")
}

// ask sends a request until it is taken, and waits for the answer. It shows gone
// what is known at the start and whatever follows, to be told when the one who
// was asked is not there any more.
func (l *Log) ask(ctx context.Context, subject string, request []byte, gone func(*view) bool) (answer []byte, err error) {
	if len(request) > journal.MaxEntry {
		return nil, fmt.Errorf("%w: a request of %d bytes, at most %d", journal.ErrTooLarge, len(request), journal.MaxEntry)
	}
	for range calls.Attempts(ctx, &err) {
		answer, err = l.askOnce(ctx, subject, request, gone)
	}
	return answer, err
}

func (l *Log) askOnce(ctx context.Context, subject string, request []byte, gone func(*view) bool) ([]byte, error) {
	if l.life.Err() != nil {
		return nil, errClosed
	}
	if err := l.c.connected(); err != nil {
		return nil, fmt.Errorf("%w: %w", journal.ErrNobody, err)
	}
	cut := l.c.whenCut()
	v, changed := l.current()
	_ = gone(v) // if nobody is there, the servers say so
	c, token, err := l.calls.begin(subject, request)
	if err != nil {
		return nil, err
	}
	defer l.calls.forget(token)
	for {
		select {
		case <-c.done:
			return c.answer()
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-cut.Done():
			return nil, errCutOff
		case <-l.life.Done():
			return nil, errClosed
		case <-changed:
		}
		if v, changed = l.current(); gone(v) {
			return c.lastWords(ctx)
		}
	}
}

// lastWords waits for an answer of somebody who is gone.
func (c *call) lastWords(ctx context.Context) ([]byte, error) {
	timer := time.NewTimer(lastWords)
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
