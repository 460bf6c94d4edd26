package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/tideover/tideover/engine/internal/cluster"
	"github.com/tideover/tideover/engine/move"
)

// Operator has what an operator asks about a process and its place in a cluster: see [Engine.Operator].
type Operator struct {
	router *cluster.Router
	dir    string
}

// Operator returns the methods for operators and their tools. Programs that only start and follow runs
// do not need them.
func (e *Engine) Operator() Operator { return Operator{&e.router, e.cfg.Dir} }

// AskMembers sends a request to all other members of the cluster at once, and returns their
// answers in the order of their names. It returns nothing if the engine is not part of a
// cluster. A member of an older release answers with an error.
func (o Operator) AskMembers(ctx context.Context, request json.RawMessage) ([]MemberReply, error) {
	return o.router.AskMembers(ctx, request)
}

// OwnStats is [Engine.Stats] of the shards that this process owns, and their number. Without
// a cluster it returns the same as Stats, and 1. It is cheap, because it sends no requests
// to other processes.
func (o Operator) OwnStats(ctx context.Context) (s Stats, shards int, err error) {
	return o.router.OwnStats(ctx)
}

// BackupWithout is [Engine.Backup] for a cluster that has lost shards: it leaves out the
// given shards. It fails if one of them can be read, or may become readable later. It
// returns what was copied, but only for a cluster.
func (o Operator) BackupWithout(ctx context.Context, dir string, shards []int) (copied move.Moved, err error) {
	return o.router.Backup(ctx, dir, shards)
}

// DiskUsage returns the size in bytes of each file in [Config.Dir], by its path relative
// to Dir.
func (o Operator) DiskUsage() (map[string]int64, error) {
	sizes := map[string]int64{}
	err := filepath.WalkDir(o.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			name, _ := filepath.Rel(o.dir, path)
			sizes[name] = info.Size()
		}
		return err
	})
	return sizes, err
}

// Cluster returns the members and shards of the cluster. ok is false if the engine is not
// part of a cluster.
func (e *Engine) Cluster(ctx context.Context) (info ClusterInfo, ok bool, err error) {
	return e.router.ClusterInfo(ctx)
}
