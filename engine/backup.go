package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/move"
)

// Backup copies everything to a folder, while the engine goes on. The copy is
// opened like an engine's own folder. It has everything that was acknowledged
// before the call, and attempts that were running then are lost in it. Of a
// cluster the copy is one folder too, from which [move.Move] makes a cluster again.
func (e *Engine) Backup(ctx context.Context, dir string) error {
	_, err := e.BackupWithout(ctx, dir, nil)
	return err
}

// BackupWithout is Backup of a cluster that has lost shards: what is in them is left
// out. A shard that can be read, or may be later, is an error. Of a cluster it returns
// what was copied.
func (e *Engine) BackupWithout(ctx context.Context, dir string, shards []int) (copied move.Moved, err error) {
	if e.cluster != nil {
		copied, err = move.Copy(ctx, e.cluster.log, dir, shards)
	} else if len(shards) > 0 {
		err = fmt.Errorf("shard %d %w: this is no cluster", shards[0], move.ErrNotLost)
	} else if b, ok := e.alone.lease.(journal.Backuper); ok {
		err = b.Backup(ctx, dir)
	} else {
		err = errors.New("this log can't be copied")
	}
	if err != nil {
		return move.Moved{}, fmt.Errorf("backup: %w", err)
	}
	return copied, nil
}

// DiskUsage returns the bytes that the engine's folder takes, by file.
func (e *Engine) DiskUsage() (map[string]int64, error) {
	sizes := map[string]int64{}
	err := filepath.WalkDir(e.cfg.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			name, _ := filepath.Rel(e.cfg.Dir, path)
			sizes[name] = info.Size()
		}
		return err
	})
	return sizes, err
}
