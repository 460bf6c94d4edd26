package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/sqlitelog"
)

// shard is the engine of one log: everything there is, or in a cluster a part of
// it that this process owns.
type shard struct {
	*process
	number int
	shards int    // how many there are
	dir    string // of its view; empty for none
	lease  journal.Lease
	view   atomic.Pointer[view.View] // nil if nothing is ever forgotten

	starts chan *request // what may have to wait
	others chan *request // what must not
	reads  chan *request // what changes nothing
	room   chan struct{} // there may be a place for an attempt
	stop   chan struct{} // closed by close
	kill   chan struct{} // closed when the end must not be waited for
	done   chan struct{} // closed when the owner has returned
	err    error         // why; valid after done
	closed sync.Once
	killed sync.Once
	dead   atomic.Bool  // nobody hears how attempts end
	given  atomic.Bool  // to another process, which is why it ends
	stuck  atomic.Int64 // handlers that were given up and have not returned

	attempts sync.WaitGroup // handlers that run

	owner // the state; belongs to the goroutine of run
}

func newShard(p *process, number, shards int, dir string) *shard {
	sh := &shard{
		process: p, number: number, shards: shards, dir: dir,
		starts: make(chan *request, 1024), others: make(chan *request, 1024), reads: make(chan *request, 1024), room: make(chan struct{}, 1),
		stop: make(chan struct{}), kill: make(chan struct{}), done: make(chan struct{}),
	}
	sh.init(sh)
	return sh
}

// openFolder opens the log that is in a folder.
func openFolder(ctx context.Context, cfg Config) (journal.Log, error) {
	mode := sqlitelog.Full
	if cfg.Durability == OS {
		mode = sqlitelog.OS
	}
	return sqlitelog.Open(ctx, sqlitelog.Config{Dir: cfg.Dir, Durability: mode})
}

// close ends the shard in order, or at once when the context ends.
func (sh *shard) close(ctx context.Context) {
	if ctx.Err() != nil { // there is no time for an orderly end, not even to begin one
		sh.killed.Do(func() { close(sh.kill) })
	}
	sh.closed.Do(func() { close(sh.stop) })
	select {
	case <-sh.done:
	case <-ctx.Done():
		sh.killed.Do(func() { close(sh.kill) })
		<-sh.done
	}
}

// over returns why the shard has stopped.
func (sh *shard) over() error {
	select {
	case <-sh.done:
		return sh.err
	default:
		return nil
	}
}

// slot returns a slot for a new run. With a key it is that of the key, unless
// the key belongs to another shard: that of a schedule's start may.
func (sh *shard) slot(key string) int {
	if slot := machine.KeySlot(key); key != "" && slot%sh.shards == sh.number {
		return slot
	}
	return int(sh.random()%uint64(machine.Slots/sh.shards))*sh.shards + sh.number
}
