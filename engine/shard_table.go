package engine

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// shardTable has the shards of this process in a cluster, and why some do not work.
type shardTable struct {
	cfg *Config

	mu      sync.Mutex
	shards  map[int]*shard  // that work
	opening map[int]*shard  // that are about to
	wrong   map[int]Trouble // those that don't
}

func (st *shardTable) init(cfg *Config) {
	st.cfg, st.shards, st.opening, st.wrong = cfg, map[int]*shard{}, map[int]*shard{}, map[int]Trouble{}
}

// put adds a shard that works.
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

// get returns a shard of this process.
func (st *shardTable) get(n int) *shard {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.shards[n]
}

// own returns the shards of this process.
func (st *shardTable) own() (list []*shard) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, sh := range st.shards {
		list = append(list, sh)
	}
	return list
}

// setTrouble notes why a shard does not work.
func (st *shardTable) setTrouble(n int, err error) {
	text := st.cfg.Redact(err.Error())
	st.mu.Lock()
	defer st.mu.Unlock()
	t, known := st.wrong[n]
	if !known {
		t = Trouble{What: fmt.Sprintf("can't work on shard %d", n), Since: time.Now()}
	}
	if t.Error != text {
		st.cfg.Logger.Error("a shard can't be worked on; it is tried again", "shard", n, "error", text)
	}
	t.Error = text
	st.wrong[n] = t
}

// anyTrouble returns why a shard can't be worked on, if there is one.
func (st *shardTable) anyTrouble() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, t := range st.wrong {
		return t.Error
	}
	return ""
}

// clearTrouble notes that a shard works, or that another process has it.
func (st *shardTable) clearTrouble(n int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if _, wrong := st.wrong[n]; wrong {
		st.cfg.Logger.Info("the trouble with a shard is over", "shard", n)
	}
	delete(st.wrong, n)
}

// troubles returns why shards do not work.
func (st *shardTable) troubles() (list []Trouble) {
	st.mu.Lock()
	defer st.mu.Unlock()
	list = slices.AppendSeq(list, maps.Values(st.wrong))
	for _, sh := range st.opening {
		list = append(list, sh.health.listFor(sh.number)...)
	}
	return list
}
