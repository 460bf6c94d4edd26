package engine

import (
	"context"
	"time"
)

// freshWithin is how long a list waits for the view at most.
const freshWithin = time.Second

// viewWait is a list that waits until the view is as far as an entry.
type viewWait struct {
	seq  uint64
	seen chan struct{} // closed when it is
}

// refresh waits until the view has what was acknowledged before the call, but not for
// longer than freshWithin if the owner can't store or the view can't be written: a list
// that is behind is better than none. Any goroutine may call it.
func (v *viewWriter) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, freshWithin)
	defer cancel()
	seen := make(chan struct{})
	err := v.sh.do(ctx, func(*turn) error {
		v.addWait(seen)
		return nil
	})
	if err != nil {
		return
	}
	select {
	case <-seen:
	case <-v.sh.done:
	case <-ctx.Done():
	}
}

// addWait has the channel closed when the view has everything up to now. Nothing is held
// back meanwhile.
func (v *viewWriter) addWait(seen chan struct{}) {
	if v.batches == nil || v.isCurrent() {
		close(seen)
		return
	}
	v.waits = append(v.waits, viewWait{v.o.seq, seen})
}

// isCurrent reports whether the view has everything.
func (v *viewWriter) isCurrent() bool {
	return !v.busy && len(v.deleted) == 0 && v.behind() == 0
}

// endWaits ends the waits that the view is far enough for, and after an error all of them.
func (v *viewWriter) endWaits(failed bool) {
	kept := v.waits[:0]
	for _, w := range v.waits {
		if failed || w.seq <= v.cursor || v.isCurrent() {
			close(w.seen)
		} else {
			kept = append(kept, w)
		}
	}
	clear(v.waits[len(kept):])
	v.waits = kept
}
