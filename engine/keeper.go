package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

const (
	wellFor    = time.Minute            // after which a shard that ends is begun again at once
	lockedWait = 200 * time.Millisecond // before a shard is asked for again
)

var (
	// openPolicy is how a shard is waited for: that its owner lets go of it, or that
	// its log can be read.
	openPolicy = retry.Must("decorrelated(100ms..5s) attempts=unlimited")

	// keepPolicy is how a shard is begun again that ended soon after it began: each
	// time its attempts are lost.
	keepPolicy = retry.Must("exponential(1s..30s) jitter=equal attempts=unlimited").Policy()
)

// keeper keeps a shard in this process.
type keeper struct {
	cl     *cluster
	number int
	ctx    context.Context //nolint:containedctx // until the shard is to be left
	leave  context.CancelFunc
}

func (cl *cluster) keep(n int) *keeper {
	k := &keeper{cl: cl, number: n}
	k.ctx, k.leave = context.WithCancel(context.Background())
	go k.run()
	return k
}

func (k *keeper) run() {
	defer func() { k.cl.left <- k }()
	defer k.leave()
	pace := pace{policy: keepPolicy}
	for {
		sh, err := retry.Value(k.ctx, openPolicy, k.open)
		if err != nil {
			k.cl.right(k.number)
			return // it is to be left
		}
		k.cl.put(sh)
		begin := time.Now()
		go sh.run()
		select {
		case <-sh.done:
		case <-k.ctx.Done():
			k.close(sh)
		}
		k.cl.remove(sh)
		k.settle(sh)
		if !errors.Is(sh.err, ErrClosed) && !errors.Is(sh.err, journal.ErrStale) {
			k.cl.trouble(k.number, sh.err)
		}
		if time.Since(begin) > wellFor {
			pace.reset()
		}
		select {
		case <-time.After(pace.next(sh.err, rand.Uint64())):
		case <-k.ctx.Done():
		}
	}
}

// open opens the shard, once nobody else has it.
func (k *keeper) open(ctx context.Context) (*shard, error) {
	e := k.cl.e
	dir, err := k.dir(ctx)
	if err != nil {
		if ctx.Err() == nil {
			k.cl.trouble(k.number, err)
		}
		return nil, err
	}
	sh := newShard(&e.process, k.number, k.cl.log.Shards(), dir)
	opened := k.cl.opens(sh)
	err = sh.open(ctx, k.cl.log)
	opened()
	if err == nil {
		err = sh.lease.(journal.Shared).Serve(k.cl.answer(sh))
		if err != nil {
			sh.shut()
		}
	}
	switch {
	case err == nil:
		k.cl.right(k.number)
		return sh, nil
	case errors.Is(err, journal.ErrLocked), errors.Is(err, journal.ErrStale):
		return nil, retry.After(err, lockedWait) // whoever has it is about to let go of it
	case ctx.Err() == nil:
		k.cl.trouble(k.number, err)
	}
	return nil, err
}

// dir makes the folder of the shard's view. The views of another cluster that used
// Dir are somewhere else.
func (k *keeper) dir(ctx context.Context) (string, error) {
	root := k.cl.e.cfg.Dir
	if root == "" {
		return "", nil
	}
	name, err := k.cl.log.Settle(ctx, "name", fmt.Sprintf("%016x", rand.Uint64()))
	if err != nil {
		return "", fmt.Errorf("name of the cluster: %w", err)
	}
	dir := filepath.Join(root, name, fmt.Sprintf("shard-%03d", k.number))
	return dir, os.MkdirAll(dir, 0o700)
}

// close lets go of the shard: in order, for as long as there is.
func (k *keeper) close(sh *shard) {
	ctx, cancel := context.WithCancel(k.cl.hurry)
	defer cancel()
	if k.cl.stop.Err() == nil {
		sh.given.Store(true)
		ctx, cancel = context.WithTimeout(ctx, k.cl.e.cfg.Grace)
		defer cancel()
	}
	sh.close(ctx)
}

// settle waits until the handlers of a shard that was lost have ended, so that
// they are not called again beside themselves. One that does not end is not
// waited for longer than its grace.
func (k *keeper) settle(sh *shard) {
	ended := make(chan struct{})
	go func() {
		sh.attempts.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(sh.cfg.Grace):
	case <-k.cl.hurry.Done():
	}
}
