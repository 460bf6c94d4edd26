package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

const (
	wellFor    = time.Minute            // a shard that has run for longer is reopened with the shortest delay
	lockedWait = 200 * time.Millisecond // delay before the next try to open a shard that has another owner
)

var (
	// openPolicy is the retry policy of opening a shard: its owner may not have
	// released it yet, or its log may not be readable.
	openPolicy = retry.Must("decorrelated(100ms..5s) attempts=unlimited")

	// keepPolicy is the retry policy of reopening a shard that has failed. Its delays
	// grow, because each failure loses the attempts of the shard.
	keepPolicy = retry.Must("exponential(1s..30s) jitter=equal attempts=unlimited").Policy()
)

// shardKeeper runs a shard in this process: it opens the shard, and reopens it after an error,
// until the shard is to be released.
type shardKeeper struct {
	process *shard.Process
	log     journal.Cluster
	table   *shardTable
	calls   *remoteCalls
	number  int
	left    chan<- *shardKeeper // gets the keeper when it has released the shard

	ctx    context.Context //nolint:containedctx // ends when the shard is to be released
	cancel context.CancelFunc
	stop   context.Context //nolint:containedctx // ends when the engine is closed
	hurry  context.Context //nolint:containedctx // ends when the shard must stop at once
}

func (k *shardKeeper) run() {
	defer func() { k.left <- k }()
	defer k.cancel()
	pace := shard.Pace{Policy: keepPolicy}
	for {
		sh, err := retry.Value(k.ctx, openPolicy, k.open)
		if err != nil {
			k.table.clearTrouble(k.number)
			return // the context has ended: the shard is to be released
		}
		k.table.put(k.table.shards, sh)
		begin := time.Now()
		go sh.Run()
		select {
		case <-sh.Done():
		case <-k.ctx.Done():
			k.close(sh)
		}
		k.table.remove(k.table.shards, sh)
		k.waitForHandlers(sh)
		err = sh.Err()
		if !errors.Is(err, shard.ErrClosed) && !errors.Is(err, journal.ErrStale) {
			k.table.setTrouble(k.number, err)
		}
		if time.Since(begin) > wellFor {
			pace.State = retry.State{}
		}
		select {
		case <-time.After(pace.Next(err, rand.Uint64())):
		case <-k.ctx.Done():
		}
	}
}

// open opens the shard and serves calls of other processes. It fails while another process
// owns the shard.
func (k *shardKeeper) open(ctx context.Context) (*shard.Shard, error) {
	dir, err := k.dir(ctx)
	if err != nil {
		if ctx.Err() == nil {
			k.table.setTrouble(k.number, err)
		}
		return nil, err
	}
	sh := shard.New(k.process, k.number, k.log.Shards(), dir)
	k.table.put(k.table.opening, sh)
	err = sh.Open(ctx, k.log)
	k.table.remove(k.table.opening, sh)
	if err == nil {
		if err = sh.Lease.(journal.Shared).Serve(k.calls.answerWith(sh.PerformForOthers)); err != nil {
			sh.Release()
		}
	}
	switch {
	case err == nil:
		k.table.clearTrouble(k.number)
		return sh, nil
	case errors.Is(err, journal.ErrLocked), errors.Is(err, journal.ErrStale):
		return nil, retry.After(err, lockedWait) // the owner is about to release it
	case ctx.Err() == nil:
		k.table.setTrouble(k.number, err)
	}
	return nil, err
}

// dir creates the folder of the shard's view and returns its path; "" without Config.Dir. The
// path has the name of the cluster in it, so that clusters which use the same Dir have
// separate views.
func (k *shardKeeper) dir(ctx context.Context) (string, error) {
	root := k.process.Settings.Dir
	if root == "" {
		return "", nil
	}
	name, err := k.log.Settle(ctx, "name", fmt.Sprintf("%016x", rand.Uint64()))
	if err != nil {
		return "", fmt.Errorf("name of the cluster: %w", err)
	}
	dir := filepath.Join(root, name, fmt.Sprintf("shard-%03d", k.number))
	return dir, os.MkdirAll(dir, 0o700)
}

// close closes the shard. If another process takes it over, the attempts have Config.Grace to
// end. If the engine is being closed, they have until the context of Close ends.
func (k *shardKeeper) close(sh *shard.Shard) {
	ctx, cancel := context.WithCancel(k.hurry)
	defer cancel()
	isHandover := k.stop.Err() == nil
	if isHandover {
		ctx, cancel = context.WithTimeout(ctx, k.process.Settings.Grace)
		defer cancel()
	}
	sh.Close(ctx, isHandover)
}

// waitForHandlers waits until the handlers of a closed shard have returned, so that the next
// attempts do not run beside them. It waits for at most Config.Grace.
func (k *shardKeeper) waitForHandlers(sh *shard.Shard) {
	ended := make(chan struct{})
	go func() {
		sh.WaitForHandlers()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(k.process.Settings.Grace):
	case <-k.hurry.Done():
	}
}
