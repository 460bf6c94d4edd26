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

// logState asks the leader of the stream for the state of a log.
func (b *backend) logState(ctx context.Context, s stream) (logState, error) {
	info, err := s.info(ctx)
	if err != nil {
		return logState{}, s.deleted(err)
	}
	return b.settings.logState(s, info)
}

// logState returns the state of a log. It is an error if the stream is not the one that
// was created with the cluster, or has gaps.
func (settings settings) logState(s stream, info *natsjs.StreamInfo) (logState, error) {
	if id := info.Config.Metadata[identityKey]; id != settings.ID {
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

// logStateSince is logState for a log that has had the entry known. An answer that ends
// before that entry may come from an old leader, so it asks again after a barrier. If the
// second answer ends before it too, the log has lost entries, and the error is a
// [journal.LossError].
func (b *backend) logStateSince(ctx context.Context, s stream, known uint64) (logState, error) {
	state, err := b.logState(ctx, s)
	if err != nil || state.last >= known {
		return state, err
	}
	if err := s.barrier(ctx); err != nil {
		return state, err
	}
	if state, err = b.logState(ctx, s); err != nil || state.last >= known {
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
func lastEpoch(ctx context.Context, s stream, state logState) (uint64, error) {
	if state.last < state.first {
		return 0, nil
	}
	e, err := s.entry(ctx, state.last)
	if errors.Is(err, errNoMessage) {
		return 0, fmt.Errorf("stream %s: entry %d was truncated meanwhile", s.name, state.last)
	}
	return e.Epoch, err
}
