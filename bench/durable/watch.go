package durable

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// watcher detects when snapshots are written: it polls which files of the folder of
// snapshots this process has open. The engine keeps the last snapshot open to read from
// it, so a snapshot is being written while an unfinished or a second file is open.
type watcher struct {
	dir  string
	quit chan struct{}
	done chan struct{}

	mu    sync.Mutex
	spans spans
	last  time.Time // when a snapshot was last being written
}

type spans [][2]time.Time

const (
	watchEvery = 5 * time.Millisecond
	pause      = 200 * time.Millisecond // longest pause between two files of one snapshot
)

func watchFiles(dir string) *watcher {
	w := &watcher{dir: dir, quit: make(chan struct{}), done: make(chan struct{})}
	if path, err := filepath.EvalSymlinks(dir); err == nil {
		w.dir = path
	}
	go w.run()
	return w
}

func (w *watcher) run() {
	defer close(w.done)
	tick := time.Tick(watchEvery)
	for {
		select {
		case <-w.quit:
			return
		case now := <-tick:
			if w.busy() {
				w.recordSnapshot(now)
			}
		}
	}
}

// recordSnapshot records that a snapshot is being written.
func (w *watcher) recordSnapshot(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.spans); n > 0 && now.Sub(w.last) < pause {
		w.spans[n-1][1] = now
	} else {
		w.spans = append(w.spans, [2]time.Time{now.Add(-watchEvery), now})
	}
	w.last = now
}

func (w *watcher) busy() bool {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return false
	}
	n := 0
	for _, fd := range list {
		to, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err != nil || filepath.Dir(to) != w.dir {
			continue
		}
		if n++; n > 1 || strings.HasPrefix(filepath.Base(to), ".tmp-") {
			return true
		}
	}
	return false
}

// sawSnapshot reports whether a snapshot was written since the watcher began.
func (w *watcher) sawSnapshot() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.spans) > 0 && time.Since(w.last) > pause
}

func (w *watcher) stop() spans {
	close(w.quit)
	<-w.done
	return w.spans
}

// overlaps reports whether a part of the call is within one of the spans.
func (s spans) overlaps(c start) bool {
	return slices.ContainsFunc(s, func(span [2]time.Time) bool {
		return c.at.Before(span[1]) && c.at.Add(c.took).After(span[0])
	})
}

func (s spans) seconds() (sum float64) {
	for _, span := range s {
		sum += span[1].Sub(span[0]).Seconds()
	}
	return sum
}
