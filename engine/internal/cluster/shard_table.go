package cluster

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/shard"
)

// shardTable has the shards of this process in a cluster, and the errors of those that can't
// be opened or have failed.
type shardTable struct {
	log    *slog.Logger
	redact func(string) string

	mu      sync.Mutex
	shards  map[int]*shard.Shard // open shards, by number
	opening map[int]*shard.Shard // shards that are being opened
	wrong   map[int]info.Trouble // shards that can't be opened or have failed
}

func (st *shardTable) init(log *slog.Logger, redact func(string) string) {
	st.log, st.redact = log, redact
	st.shards, st.opening, st.wrong = map[int]*shard.Shard{}, map[int]*shard.Shard{}, map[int]info.Trouble{}
}

// put adds a shard to one of the lists: shards or opening.
func (st *shardTable) put(to map[int]*shard.Shard, sh *shard.Shard) {
	st.mu.Lock()
	defer st.mu.Unlock()
	to[sh.Number] = sh
}

// remove removes a shard from one of the lists.
func (st *shardTable) remove(from map[int]*shard.Shard, sh *shard.Shard) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(from, sh.Number)
}

// get returns an open shard of this process; nil if this process does not have it.
func (st *shardTable) get(n int) *shard.Shard {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.shards[n]
}

// own returns the open shards of this process.
func (st *shardTable) own() []*shard.Shard {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Collect(maps.Values(st.shards))
}

// setTrouble notes why a shard can't be opened or has failed, and logs a new error.
func (st *shardTable) setTrouble(n int, err error) {
	text := st.redact(err.Error())
	st.mu.Lock()
	defer st.mu.Unlock()
	t, known := st.wrong[n]
	if !known {
		t = info.Trouble{What: fmt.Sprintf("can't work on shard %d", n), Since: time.Now()}
	}
	if t.Error != text {
		st.log.Error("can't open or run a shard; trying again", "shard", n, "error", text)
	}
	t.Error = text
	st.wrong[n] = t
}

// anyTrouble returns the error of any shard that can't be opened or has failed; "" if there is
// none.
func (st *shardTable) anyTrouble() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, t := range st.wrong {
		return t.Error
	}
	return ""
}

// clearTrouble notes that a shard is open, or is not assigned to this process any more.
func (st *shardTable) clearTrouble(n int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if _, wrong := st.wrong[n]; wrong {
		st.log.Info("the shard works again, or another process has it", "shard", n)
	}
	delete(st.wrong, n)
}

// troubles returns the troubles of shards that are not open.
func (st *shardTable) troubles() (list []info.Trouble) {
	st.mu.Lock()
	defer st.mu.Unlock()
	list = slices.AppendSeq(list, maps.Values(st.wrong))
	for _, sh := range st.opening {
		list = append(list, shard.OfShard(sh.Number, sh.Troubles())...)
	}
	return list
}
