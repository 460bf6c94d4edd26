package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tideover/tideover/internal/console/control"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/move"
)

// BackupRequest says where to store a backup and which shards to leave out.
type BackupRequest struct {
	// Dir is the absolute path of an empty or missing folder on the server's machine.
	Dir string `json:"dir"`

	// WithoutShards are the lost shards of a cluster to leave out. A shard that is not lost is an error.
	WithoutShards []int `json:"without_shards,omitempty"`
}

// Backup copies all runs to a folder.
func (s *System) Backup(ctx context.Context, q BackupRequest) (Backup, error) {
	if err := checkTarget(s.config.Data, q.Dir); err != nil {
		return Backup{}, err
	}
	c, err := s.engine.Operator().BackupWithout(ctx, q.Dir, q.WithoutShards)
	if err != nil {
		return Backup{}, backupProblem(err, q.Dir)
	}
	return Backup{q.Dir, c.FromShards, c.Runs, c.Keys, c.Schedules, c.LeftOut}, nil
}

// backupProblem converts the error of a backup to an [*Error]: with the field of the request that
// caused it, or with a hint about a lost shard. It returns [engine.ErrClosed] unchanged.
func backupProblem(err error, dir string) error {
	switch {
	case atTarget(err, dir):
		return control.Invalid("dir", "%v", err)
	case errors.Is(err, move.ErrNotLost):
		return control.Invalid("without_shards", "%v", err)
	case errors.Is(err, engine.ErrClosed):
		return err
	}
	p := control.NewError(control.CodeInternal, err.Error(), "")
	p.Err = err
	if lost, ok := errors.AsType[*move.LostShardError](err); ok {
		p.Hint = fmt.Sprintf("if it can't be restored, leave it out: --without-shard %d, or %d in without_shards", lost.Shard, lost.Shard)
	}
	return p
}

// checkTarget returns an error if a backup can't be stored in dir: the path is relative, it is in
// the data folder, or the folder is not empty. It does not check whether the folder is writable.
func checkTarget(data, dir string) error {
	if !filepath.IsAbs(dir) || strings.ContainsRune(dir, 0) {
		return control.Invalid("dir", "%q is not the absolute path of a folder", control.Excerpt(dir))
	}
	if data != "" && within(resolved(data), resolved(dir)) {
		return control.Invalid("dir", "%q is in the data folder %s; the copy must be elsewhere", control.Excerpt(dir), data)
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		return control.Invalid("dir", "the folder %q is not empty: it has %q", control.Excerpt(dir), entries[0].Name())
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return control.Invalid("dir", "%v", err)
	}
	return nil
}

// resolved resolves the symbolic links in the part of the path that exists.
func resolved(path string) string {
	path = filepath.Clean(path)
	if found, err := filepath.EvalSymlinks(path); err == nil {
		return found
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(resolved(parent), filepath.Base(path))
	}
	return path
}

// within reports whether path is the folder dir or is inside it.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// atTarget reports whether a backup failed because its target folder dir can't be written.
func atTarget(err error, dir string) bool {
	p, ok := errors.AsType[*fs.PathError](err)
	if !ok || !within(dir, p.Path) && !within(p.Path, dir) {
		return false
	}
	causes := []error{fs.ErrPermission, fs.ErrExist, syscall.ENOTDIR, syscall.EROFS, syscall.ENAMETOOLONG}
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}
