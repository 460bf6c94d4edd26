package jetstream

import (
	"context"
	"errors"
	"fmt"

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
