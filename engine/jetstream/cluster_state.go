package jetstream

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// memberRecord is the record of a member in the bucket.
type memberRecord struct {
	Name     string    `json:"name"`
	Joined   time.Time `json:"joined"`
	Wall     time.Time `json:"wall"`             // the member's clock at the heartbeat
	Beat     uint64    `json:"beat"`             // heartbeats so far
	Format   int       `json:"format,omitempty"` // see journal.Format; a release that knows only format 1 has none
	revision uint64
}

// shardRecord is the record of a shard in the bucket.
type shardRecord struct {
	Owner string `json:"owner"` // id of a member; empty means none
	Epoch uint64 `json:"epoch"`
	Last  uint64 `json:"last"` // sequence of the log's last entry when this was written

	Lost     string `json:"lost,omitempty"` // JSON of the losses that were accepted; a member of an earlier version drops it
	revision uint64
}

// losses returns the losses that were accepted.
func (r *shardRecord) losses() (list []journal.Loss) {
	_ = json.Unmarshal([]byte(r.Lost), &list) // an empty or damaged text means none: the losses are only shown
	return list
}

func (r *shardRecord) addLoss(loss journal.Loss) error {
	text, err := json.Marshal(append(r.losses(), loss))
	r.Lost = string(text)
	return err
}

// clusterState is the contents of the bucket at one time: the members and the owners of
// the shards. It is never changed after newClusterState.
type clusterState struct {
	revision uint64
	members  map[string]memberRecord
	shards   []shardRecord
}

// newClusterState decodes the records of the bucket.
func newClusterState(records []record, revision uint64, shards int) (*clusterState, error) {
	s := &clusterState{revision: revision, members: map[string]memberRecord{}, shards: make([]shardRecord, shards)}
	for _, r := range records {
		id, n := parseKey(r.key)
		var err error
		switch {
		case id != "":
			m := memberRecord{revision: r.revision}
			err = json.Unmarshal(r.value, &m)
			s.members[id] = m
		case n >= 0 && n < shards:
			s.shards[n].revision = r.revision
			err = json.Unmarshal(r.value, &s.shards[n])
		}
		if err != nil {
			return nil, fmt.Errorf("%w: key %s of the bucket: %w", journal.ErrDamaged, r.key, err)
		}
	}
	return s, nil
}

// ids returns the ids of the members, in order. It adds self if the state lacks it,
// unless self is "".
func (s *clusterState) ids(self string) []string {
	ids := slices.Collect(maps.Keys(s.members))
	if self != "" && !slices.Contains(ids, self) {
		ids = append(ids, self)
	}
	return ids
}

// assigned returns the shards that the member should own.
func (s *clusterState) assigned(self string) (shards []int) {
	if self == "" {
		return nil
	}
	for n, owner := range journal.Assign(s.ids(self), len(s.shards)) {
		if owner == self {
			shards = append(shards, n)
		}
	}
	return shards
}

// same reports whether the two states are equal apart from heartbeats.
func (s *clusterState) same(other *clusterState) bool {
	return slices.Equal(s.shards, other.shards) &&
		maps.EqualFunc(s.members, other.members, func(memberRecord, memberRecord) bool { return true })
}

// isBehind reports whether a member can't read the format.
func (s *clusterState) isBehind(format int) bool {
	for _, m := range s.members {
		if max(m.Format, 1) < format {
			return true
		}
	}
	return false
}

// orphans returns the shards that no member owns.
func (s *clusterState) orphans() (list []int) {
	for n, r := range s.shards {
		if _, there := s.members[r.Owner]; !there {
			list = append(list, n)
		}
	}
	return list
}
