package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

// place returns the shard of a new run, and its id.
func (cl *cluster) place(ctx context.Context, w *Workflow, key string) (shard int, id machine.ID, err error) {
	gathered, err := cl.gathered(ctx, w)
	if err != nil {
		return 0, id, err
	}
	n := cl.log.Shards()
	slot := machine.KeySlot(key)
	switch {
	case gathered:
		shard = machine.WorkflowSlot(w.Name()) % n
	case key != "":
		shard = slot % n
	default:
		shard = cl.aim.next(n)
	}
	if key == "" || slot%n != shard {
		slot = rand.IntN(machine.Slots/n)*n + shard
	}
	return shard, machine.NewID(time.Now().UnixNano(), rand.Uint64(), rand.Uint64()).In(slot), nil
}

// gathered reports whether a workflow has one shard for all its runs. One with a
// limit has, because only an owner can count. That is settled when it is first
// started, or a key that was used before might be looked for in another shard.
func (cl *cluster) gathered(ctx context.Context, w *Workflow) (bool, error) {
	name := w.Name()
	cl.mu.Lock()
	gathered, known := cl.settled[name]
	cl.mu.Unlock()
	if !known {
		var err error
		if gathered, err = settlePlace(ctx, cl.log, name, w.limited()); err != nil {
			return false, err
		}
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.settled[name] = gathered
	if !w.limited() {
		delete(cl.loose, name)
	} else if _, told := cl.loose[name]; !gathered && !told {
		cl.loose[name] = Trouble{
			What: "the limit of workflow " + name + " holds in each shard apart", Since: time.Now(),
			Error: "it had none when it was first started, and its runs are spread; give the workflow another name to have the limit for all of them",
		}
		cl.e.cfg.Logger.Warn(cl.loose[name].What, "because", cl.loose[name].Error)
	}
	return gathered, nil
}

// settlePlace settles whether the runs of a workflow are gathered in one shard.
func settlePlace(ctx context.Context, log journal.Cluster, workflow string, gathered bool) (bool, error) {
	wish := map[bool]string{true: "gathered", false: "spread"}[gathered]
	settled, err := retry.Value(ctx, askPolicy, func(ctx context.Context) (string, error) {
		return log.Settle(ctx, "workflow."+workflow, wish)
	})
	if err != nil {
		return false, fmt.Errorf("where the runs of %s are: %w", workflow, err)
	}
	return settled == "gathered", nil
}

// aim is where runs without a key are started. Those that come together go to the
// same shard, whose owner stores them in one entry; over time all get as many.
type aim struct {
	mu    sync.Mutex
	shard int
	until time.Time
	left  int
}

const (
	aimFor  = 50 * time.Millisecond
	aimRuns = 1000
)

func (a *aim) next(shards int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); a.left == 0 || now.After(a.until) {
		a.shard, a.until, a.left = rand.IntN(shards), now.Add(aimFor), aimRuns
	}
	a.left--
	return a.shard
}
