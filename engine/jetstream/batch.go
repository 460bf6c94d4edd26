package jetstream

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// batch sends a request for many messages and calls each with every message of the
// answer. Any replica answers, also one that is behind: it may lack the last messages.
// upTo is the sequence up to which the answer is complete, or 0 if the server does not
// say.
func (s stream) batch(ctx context.Context, request getRequest, each func(message) error) (upTo uint64, err error) {
	sub, err := s.c.request(apiPrefix+"DIRECT.GET."+s.name, request)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", s.name, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // if the connection is closed it is gone as well
	during, cancel := s.c.whileConnected(ctx)
	defer cancel()
	for {
		m, err := sub.NextMsgWithContext(during)
		if err != nil {
			return 0, s.unanswered(ctx, s.c.wasCut(during, err))
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204": // the end
			upTo, _ = strconv.ParseUint(m.Header.Get("Nats-UpTo-Sequence"), 10, 64) // 0 if there is none
			return upTo, nil
		case "404":
			return 0, fmt.Errorf("%w: stream %s", errNoMessage, s.name)
		default:
			return 0, fmt.Errorf("stream %s: the server answers %s %s", s.name, status, m.Header.Get("Description"))
		}
		stored, err := storedMessage(m)
		if err != nil {
			return 0, fmt.Errorf("stream %s: %w", s.name, err)
		}
		if err := each(stored); err != nil {
			return 0, err
		}
	}
}

// storedMessage reads the headers that a server adds to a stored message.
func storedMessage(m *nats.Msg) (message, error) {
	seq, err := strconv.ParseUint(m.Header.Get(natsjs.SequenceHeader), 10, 64)
	if err != nil {
		return message{}, fmt.Errorf("a message without sequence: %w", err)
	}
	return message{Subject: m.Header.Get(natsjs.SubjectHeader), Seq: seq, header: m.Header, Data: m.Data}, nil
}
