package config

import (
	"context"
	"crypto/sha256"
	"io/fs"
	"os"
	"time"
)

// pollEvery is the time between two checks of the file. Polling works on every file
// system, and also if an editor replaces the file by a rename.
const pollEvery = time.Second

// Watcher loads the configuration again when its file changes or when [Watcher.Reload]
// is called. A configuration that is not in effect is loaded again at every check, because
// it depends on more than its file: on the files of ${file:…}, on a certificate, on room
// on the disk.
type Watcher struct {
	src    Source
	reload chan struct{}
	seen   digest // of the content that was loaded last
	failed error  // why that content is not in effect; nil if it is
	stat   stamp
}

// stamp is the size and the time of a file when it was read. It shows that the file has
// not changed, without reading it again.
type stamp struct {
	size     int64
	modified time.Time
	read     time.Time
}

// NewWatcher returns a watcher for the file from which current was loaded. A
// change between that load and the start of the watch is not missed.
func NewWatcher(src Source, current *Config) *Watcher {
	src.Data = nil
	w := &Watcher{src: src, reload: make(chan struct{}, 1)}
	if current != nil {
		w.seen = current.digest
	}
	return w
}

// Reload makes the watcher load the file now, even if it has not changed, as after a
// SIGHUP. It returns at once.
func (w *Watcher) Reload() {
	select {
	case w.reload <- struct{}{}:
	default: // a reload is already pending
	}
}

// Run watches until the context ends, and returns the context's error. It calls apply on
// its own goroutine with the new configuration or with an error. apply returns nil if it
// has put the configuration into effect; otherwise the caller keeps the old one, and Run
// tries again. An error of the file that repeats is passed to apply only once.
func (w *Watcher) Run(ctx context.Context, apply func(*Config, error) error) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		forced := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.reload:
			forced = true
		case <-tick.C:
		}
		w.check(forced, apply)
	}
}

// check loads the file if it has changed, is not in effect, or forced is true.
func (w *Watcher) check(forced bool, apply func(*Config, error) error) {
	cfg, changed, err := w.load(forced || w.failed != nil)
	switch {
	case !changed:
	case err != nil && !forced && w.failed != nil && err.Error() == w.failed.Error():
	default:
		w.failed = apply(cfg, err)
	}
}

// load loads the file. changed is false if the file is the one that was loaded last, and
// again is false.
func (w *Watcher) load(again bool) (cfg *Config, changed bool, err error) {
	src := w.src
	if src.Path != "" {
		info, err := os.Stat(src.Path)
		if err == nil && !again && w.stat.same(info) {
			return nil, false, nil
		}
		read := time.Now()
		if src.Data, err = content(src); err != nil {
			return nil, true, err
		}
		if info != nil {
			w.stat = stamp{info.Size(), info.ModTime(), read}
		}
		sum := sha256.Sum256(src.Data)
		again, w.seen = again || sum != w.seen, sum
	}
	if !again {
		return nil, false, nil
	}
	cfg, err = Load(src)
	return cfg, true, err
}

// same reports whether the file is certain not to have changed since it was read. It is
// false if the file was read less than 2 s after its modification: another change within
// the resolution of the clock would leave the time as it is.
func (s stamp) same(info fs.FileInfo) bool {
	return s.size == info.Size() && s.modified.Equal(info.ModTime()) && s.read.Sub(s.modified) > 2*time.Second
}
