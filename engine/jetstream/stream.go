package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

const apiPrefix = "$JS.API."

// duplicates is how long JetStream remembers the ids of entries.
const duplicates = 2 * time.Minute

// stream is a stream of JetStream. Its methods ask its leader, unless their comment says
// otherwise.
type stream struct {
	c    *conn
	name string
}

// ask sends a request to the JetStream API of the servers and decodes the answer.
func (s stream) ask(ctx context.Context, operation string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	m, err := s.c.roundTrip(ctx, &nats.Msg{Subject: apiPrefix + operation + "." + s.name, Data: body})
	if err != nil {
		return s.c.transportError(ctx, s.name, err)
	}
	var failed struct {
		Error *natsjs.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &failed); err != nil {
		return fmt.Errorf("stream %s: %s: %w", s.name, operation, err)
	}
	if failed.Error != nil {
		return serverError(s.name, failed.Error)
	}
	return json.Unmarshal(m.Data, answer)
}

// infoRequest and infoAnswer are the request for the state of a stream and its answer.
type infoRequest struct {
	Subjects string `json:"subjects_filter,omitempty"`
	Offset   int    `json:"offset,omitempty"`
}

type infoAnswer struct {
	natsjs.StreamInfo
	Total int `json:"total"`
}

// info returns the configuration and the state of the stream.
func (s stream) info(ctx context.Context) (*natsjs.StreamInfo, error) {
	answer, err := s.infoPage(ctx, infoRequest{})
	if err != nil {
		return nil, err
	}
	return &answer.StreamInfo, nil
}

func (s stream) infoPage(ctx context.Context, request infoRequest) (*infoAnswer, error) {
	answer := new(infoAnswer)
	if err := s.ask(ctx, "STREAM.INFO", request, answer); err != nil {
		return nil, err
	}
	if answer.Cluster != nil && answer.Cluster.Leader == "" {
		// Without a leader any server answers, with the state that it has.
		return nil, fmt.Errorf("%w: stream %s has no leader", errNoQuorum, s.name)
	}
	return answer, nil
}

// subjects lists the subjects below a filter that have messages.
func (s stream) subjects(ctx context.Context, filter string) (list []string, err error) {
	for {
		answer, err := s.infoPage(ctx, infoRequest{Subjects: filter, Offset: len(list)})
		if err != nil {
			return nil, err
		}
		for subject := range answer.State.Subjects {
			list = append(list, subject)
		}
		if len(answer.State.Subjects) == 0 || len(list) >= answer.Total {
			return list, nil
		}
	}
}

// getRequest selects messages.
type getRequest struct {
	Seq       uint64   `json:"seq,omitempty"`
	Last      string   `json:"last_by_subj,omitempty"`
	Next      string   `json:"next_by_subj,omitempty"`
	Batch     int      `json:"batch,omitempty"`
	MaxBytes  int      `json:"max_bytes,omitempty"`
	MultiLast []string `json:"multi_last,omitempty"`
}

// message is a stored message.
type message struct {
	Subject string      `json:"subject"`
	Seq     uint64      `json:"seq"`
	Time    time.Time   `json:"time"`
	Data    []byte      `json:"data"`
	Encoded []byte      `json:"hdrs"` // the header, in an answer to get
	header  nats.Header // decoded
}

// get returns one message, or errNoMessage.
func (s stream) get(ctx context.Context, request getRequest) (message, error) {
	var answer struct {
		Message message `json:"message"`
	}
	err := s.ask(ctx, "STREAM.MSG.GET", request, &answer)
	m := answer.Message
	if err != nil || len(m.Encoded) == 0 {
		return m, err
	}
	if m.header, err = nats.DecodeHeadersMsg(m.Encoded); err != nil {
		return message{}, fmt.Errorf("stream %s: message %d: %w", s.name, m.Seq, err)
	}
	return m, nil
}

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

// purge removes messages: those of a subject, or those below a sequence.
func (s stream) purge(ctx context.Context, subject string, below uint64) error {
	request := struct {
		Filter string `json:"filter,omitempty"`
		Seq    uint64 `json:"seq,omitempty"`
	}{subject, below}
	var answer struct{}
	return s.ask(ctx, "STREAM.PURGE", request, &answer)
}

// barrier returns when the leader has proved that most replicas follow it. Earlier
// answers may have come from an old leader; later ones are up to date. It does so with a
// purge below the first possible sequence: that removes nothing, but most replicas have
// to agree to it.
func (s stream) barrier(ctx context.Context) error { return s.purge(ctx, "", 1) }

// unanswered returns the error of a request that had no answer: errGone if the stream
// does not exist, else that of transportError.
func (s stream) unanswered(ctx context.Context, err error) error {
	if errors.Is(err, nats.ErrNoResponders) {
		if _, infoErr := s.info(ctx); errors.Is(infoErr, errGone) {
			return infoErr
		}
	}
	return s.c.transportError(ctx, s.name, err)
}

// publish stores a message, and returns when the stream has confirmed it.
func (s stream) publish(ctx context.Context, m *nats.Msg) (*natsjs.PubAck, error) {
	m.Header.Set(natsjs.ExpectedStreamHeader, s.name)
	answer, err := s.c.roundTrip(ctx, m)
	if err != nil {
		return nil, s.unanswered(ctx, err)
	}
	var ack struct {
		natsjs.PubAck
		Error *natsjs.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return nil, fmt.Errorf("stream %s: answer to a message: %w", s.name, err)
	}
	if ack.Error != nil {
		return nil, serverError(s.name, ack.Error)
	}
	return &ack.PubAck, nil
}

// deleted returns a deletedError if err is errGone, because tideover never deletes a
// stream. It returns other errors unchanged.
func (s stream) deleted(err error) error {
	if !errors.Is(err, errGone) {
		return err
	}
	return &deletedError{s.name, s.c.missing(s.name), err}
}
