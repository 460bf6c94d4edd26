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
// is called.
type Watcher struct {
	src    Source
	reload chan struct{}
	seen   digest // of the content that was loaded last, valid or not
	gone   string // error of the last read; "" if it succeeded
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

// Run watches until the context ends, and returns the context's error. It calls changed
// on its own goroutine, once for each change, with the new configuration or with an
// error. After an error the caller keeps the old configuration.
func (w *Watcher) Run(ctx context.Context, changed func(*Config, error)) error {
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
		w.check(forced, changed)
	}
}

// check loads the file and calls changed if the file has changed or forced is true.
func (w *Watcher) check(forced bool, changed func(*Config, error)) {
	if w.src.Path == "" {
		if forced {
			changed(Load(w.src))
		}
		return
	}
	info, err := os.Stat(w.src.Path)
	if err == nil && !forced && w.stat.same(info) {
		return
	}
	read := time.Now()
	data, err := content(w.src)
	if err != nil {
		if why := err.Error(); forced || why != w.gone {
			w.gone = why
			changed(nil, err)
		}
		return
	}
	if info != nil {
		w.stat = stamp{info.Size(), info.ModTime(), read}
	}
	if sum := sha256.Sum256(data); !forced && w.gone == "" && sum == w.seen {
		return
	}
	src := w.src
	src.Data = data
	cfg, sum, err := load(src)
	w.seen, w.gone = sum, ""
	changed(cfg, err)
}

// same reports whether the file is certain not to have changed since it was read. It is
// false if the file was read less than 2 s after its modification: another change within
// the resolution of the clock would leave the time as it is.
func (s stamp) same(info fs.FileInfo) bool {
	return s.size == info.Size() && s.modified.Equal(info.ModTime()) && s.read.Sub(s.modified) > 2*time.Second
}
