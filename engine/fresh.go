package engine

import (
	"context"
	"time"
)

// freshWithin is how long a list waits for the view at most.
const freshWithin = time.Second

// viewWait is somebody who waits until the view is as far as an entry.
type viewWait struct {
	seq  uint64
	seen chan struct{} // closed when it is
}

// refresh waits until the view has what was acknowledged before the call. An owner
// who can't store, or a view that can't be written, is not waited for in the end:
// a list that is behind is better than none.
func (sh *shard) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, freshWithin)
	defer cancel()
	seen := make(chan struct{})
	err := sh.do(ctx, func(*turn) error {
		sh.viewer.await(sh, seen)
		return nil
	})
	if err != nil {
		return
	}
	select {
	case <-seen:
	case <-sh.done:
	case <-ctx.Done():
	}
}

// await closes the channel when the view has everything up to now. Nothing is held
// back meanwhile.
func (v *viewer) await(sh *shard, seen chan struct{}) {
	if v.batches == nil || v.current(sh) {
		close(seen)
		return
	}
	v.waits = append(v.waits, viewWait{sh.seq, seen})
}

// current reports whether the view has everything.
func (v *viewer) current(sh *shard) bool {
	return !v.busy && len(v.deleted) == 0 && v.behind(sh.m) == 0
}

// arrived tells those who wait how far the view is. After an error nobody knows
// when it goes on.
func (v *viewer) arrived(sh *shard, failed bool) {
	kept := v.waits[:0]
	for _, w := range v.waits {
		if failed || w.seq <= v.cursor || v.current(sh) {
			close(w.seen)
		} else {
			kept = append(kept, w)
		}
	}
	clear(v.waits[len(kept):])
	v.waits = kept
}
