package engine

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// shardTable has the shards of this process in a cluster, and the errors of those that can't
// be opened or have failed.
type shardTable struct {
	log    *slog.Logger
	redact func(string) string

	mu      sync.Mutex
	shards  map[int]*shard  // open shards, by number
	opening map[int]*shard  // shards that are being opened
	wrong   map[int]Trouble // shards that can't be opened or have failed
}

func (st *shardTable) init(log *slog.Logger, redact func(string) string) {
	st.log, st.redact = log, redact
	st.shards, st.opening, st.wrong = map[int]*shard{}, map[int]*shard{}, map[int]Trouble{}
}

// put adds an open shard.
func (st *shardTable) put(sh *shard) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.shards[sh.number] = sh
}

// remove removes a shard that has ended.
func (st *shardTable) remove(sh *shard) {
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.shards, sh.number)
}

// beginOpening adds a shard that is being opened, and returns a function that removes it.
func (st *shardTable) beginOpening(sh *shard) (done func()) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.opening[sh.number] = sh
	return func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		delete(st.opening, sh.number)
	}
}

// get returns an open shard of this process; nil if this process does not have it.
func (st *shardTable) get(n int) *shard {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.shards[n]
}

// own returns the open shards of this process.
func (st *shardTable) own() []*shard {
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
		t = Trouble{What: fmt.Sprintf("can't work on shard %d", n), Since: time.Now()}
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
func (st *shardTable) troubles() (list []Trouble) {
	st.mu.Lock()
	defer st.mu.Unlock()
	list = slices.AppendSeq(list, maps.Values(st.wrong))
	for _, sh := range st.opening {
		list = append(list, ofShard(sh.number, sh.troubles())...)
	}
	return list
}
