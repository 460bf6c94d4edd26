package jetstream

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// memberRecord is what the bucket says of a member.
type memberRecord struct {
	Name     string    `json:"name"`
	Joined   time.Time `json:"joined"`
	Wall     time.Time `json:"wall"` // the member's clock at the sign of life
	Beat     uint64    `json:"beat"` // signs of life so far
	revision uint64
}

// shardRecord is what the bucket says of a shard.
type shardRecord struct {
	Owner    string `json:"owner"` // empty means nobody
	Epoch    uint64 `json:"epoch"`
	Last     uint64 `json:"last"` // sequence of the log's last entry when this was written
	revision uint64
}

// view is what the bucket said at one time. It does not change.
type view struct {
	revision uint64
	members  map[string]memberRecord
	shards   []shardRecord
}

// newView reads the records of the bucket.
func newView(records []record, revision uint64, shards int) (*view, error) {
	v := &view{revision: revision, members: map[string]memberRecord{}, shards: make([]shardRecord, shards)}
	for _, r := range records {
		id, n := parseKey(r.key)
		var err error
		switch {
		case id != "":
			m := memberRecord{revision: r.revision}
			err = json.Unmarshal(r.value, &m)
			v.members[id] = m
		case n >= 0 && n < shards:
			v.shards[n].revision = r.revision
			err = json.Unmarshal(r.value, &v.shards[n])
		}
		if err != nil {
			return nil, fmt.Errorf("%w: key %s of the bucket: %w", journal.ErrDamaged, r.key, err)
		}
	}
	return v, nil
}

// ids returns the members, and the one that is certainly there.
func (v *view) ids(self string) []string {
	ids := slices.Collect(maps.Keys(v.members))
	if self != "" && !slices.Contains(ids, self) {
		ids = append(ids, self)
	}
	return ids
}

// assigned returns the shards that should be the member's.
func (v *view) assigned(self string) (shards []int) {
	if self == "" {
		return nil
	}
	for n, owner := range journal.Assign(v.ids(self), len(v.shards)) {
		if owner == self {
			shards = append(shards, n)
		}
	}
	return shards
}

// same reports whether nothing has changed but signs of life.
func (v *view) same(w *view) bool {
	return slices.Equal(v.shards, w.shards) &&
		maps.EqualFunc(v.members, w.members, func(memberRecord, memberRecord) bool { return true })
}
