package jetstream

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/journal"
)

// logState has the bounds and the size of a log.
type logState struct {
	first, last uint64
	bytes       uint64
	lag         uint64 // how many entries the slowest replica lacks
}

// logStream is the stream with the log of a shard.
type logStream struct {
	stream
	cluster string // id of the cluster that the stream was created with
}

// state asks the leader of the stream for the state of the log.
func (s logStream) state(ctx context.Context) (logState, error) {
	info, err := s.info(ctx)
	if err != nil {
		return logState{}, s.deleted(err)
	}
	return s.stateOf(info)
}

// stateOf returns the state of the log. It is an error if the stream is not the one that
// was created with the cluster, or has gaps.
func (s logStream) stateOf(info *natsjs.StreamInfo) (logState, error) {
	if id := info.Config.Metadata[identityKey]; id != s.cluster {
		return logState{}, fmt.Errorf("%w: stream %s is not the one that was created with the cluster; "+
			"restore that one from a backup", journal.ErrDamaged, s.name)
	}
	state := logState{first: info.State.FirstSeq, last: info.State.LastSeq, bytes: info.State.Bytes}
	if info.State.Msgs == 0 {
		state.first = state.last + 1
	}
	if info.Cluster != nil {
		for _, r := range info.Cluster.Replicas {
			state.lag = max(state.lag, r.Lag)
		}
	}
	if missing := state.last + 1 - state.first - info.State.Msgs; missing != 0 {
		return state, fmt.Errorf("%w: stream %s lacks %d entries between %d and %d; let another replica lead "+
			"(nats stream cluster step-down), which may have them, or restore it from a backup",
			journal.ErrDamaged, s.name, missing, state.first, state.last)
	}
	return state, nil
}

// stateSince is state for a log that has had the entry known. An answer that ends
// before that entry may come from an old leader, so it asks again after a barrier. If the
// second answer ends before it too, the log has lost entries, and the error is a
// [journal.LossError].
func (s logStream) stateSince(ctx context.Context, known uint64) (logState, error) {
	state, err := s.state(ctx)
	if err != nil || state.last >= known {
		return state, err
	}
	if err := s.barrier(ctx); err != nil {
		return state, err
	}
	if state, err = s.state(ctx); err != nil || state.last >= known {
		return state, err
	}
	return state, &journal.LossError{
		Loss: journal.Loss{Log: "stream " + s.name, From: state.last + 1, To: known, Shown: "the record of the shard"},
		Restore: "it was emptied, replaced or restored from an old backup: let another replica lead (nats stream cluster step-down), " +
			"which may have more, or restore it from the newest backup",
		Acceptable: true,
	}
}

// lastEpoch returns the epoch of the last entry, 0 if there is none.
func (s logStream) lastEpoch(ctx context.Context, state logState) (uint64, error) {
	if state.last < state.first {
		return 0, nil
	}
	e, err := s.entry(ctx, state.last)
	if errors.Is(err, errNoMessage) {
		return 0, fmt.Errorf("stream %s: entry %d was truncated meanwhile", s.name, state.last)
	}
	return e.Epoch, err
}

// entry returns the entry with the sequence, or errNoMessage.
func (s logStream) entry(ctx context.Context, seq uint64) (journal.Entry, error) {
	m, err := s.get(ctx, getRequest{Seq: seq})
	if err != nil {
		return journal.Entry{}, err
	}
	return decode(m)
}

// entryHeader is the header with the epoch and the checksum of an entry:
// "<epoch> <crc32c>". The id of the entry is the id of the message.
const entryHeader = "Tideover-Entry"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the checksum of all fields of an entry, its sequence included.
func checksum(e journal.Entry) uint32 {
	var head [32]byte
	binary.BigEndian.PutUint64(head[:], e.Seq)
	binary.BigEndian.PutUint64(head[8:], e.Epoch)
	copy(head[16:], e.ID[:])
	return crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, e.Data)
}

// encode returns the message for an entry. The server stores it only directly after the
// entry with the sequence before.
func encode(subject string, e journal.Entry) *nats.Msg {
	return &nats.Msg{
		Subject: subject,
		Header: nats.Header{
			natsjs.MsgIDHeader:           {hex.EncodeToString(e.ID[:])},
			natsjs.ExpectedLastSeqHeader: {strconv.FormatUint(e.Seq-1, 10)},
			entryHeader:                  {fmt.Sprintf("%d %08x", e.Epoch, checksum(e))},
		},
		Data: e.Data,
	}
}

// decode returns the entry of a message, or ErrDamaged.
func decode(m message) (journal.Entry, error) {
	e := journal.Entry{Seq: m.Seq, Data: m.Data}
	sum, err := readHeader(m.header, &e)
	if err == nil && sum != checksum(e) {
		err = errors.New("its checksum is wrong")
	}
	if err != nil {
		return e, fmt.Errorf("%w: entry %d: %w; restore the stream from a backup", journal.ErrDamaged, m.Seq, err)
	}
	return e, nil
}

// readHeader sets the epoch and the id of the entry from the headers of its message, and
// returns the checksum in them.
func readHeader(h nats.Header, e *journal.Entry) (sum uint32, err error) {
	epoch, text, ok := strings.Cut(h.Get(entryHeader), " ")
	if !ok {
		return 0, errors.New("it was not written by tideover")
	}
	if e.Epoch, err = strconv.ParseUint(epoch, 10, 64); err != nil {
		return 0, err
	}
	id, err := hex.DecodeString(h.Get(natsjs.MsgIDHeader))
	if err != nil || len(id) != len(e.ID) {
		return 0, errors.New("its id can't be read")
	}
	copy(e.ID[:], id)
	crc, err := strconv.ParseUint(text, 16, 32)
	return uint32(crc), err
}
