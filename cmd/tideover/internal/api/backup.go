package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/move"
)

// Backup is what was copied.
type Backup struct {
	Dir       string         `json:"dir"`
	Shards    int            `json:"shards,omitempty"` // of the cluster; 0 without one, and then the following is not known
	Runs      map[string]int `json:"runs,omitempty"`   // by state
	Keys      int            `json:"keys,omitempty"`
	Schedules int            `json:"schedules,omitempty"`
	LeftOut   []move.LeftOut `json:"left_out,omitempty"` // shards that are lost: what was in them is not in the copy
}

// BackupWithout copies everything to a folder on the server's machine, but what is in
// shards that are lost.
func (c *Client) BackupWithout(ctx context.Context, dir string, shards []int) (b Backup, err error) {
	in := map[string]any{"dir": dir}
	if len(shards) > 0 {
		in["without_shards"] = shards
	}
	err = c.call(ctx, http.MethodPost, "backup", nil, in, &b)
	return b, err
}

// backup is for those who could copy the files anyway.
func (s *server) backup(w http.ResponseWriter, r *http.Request, _ string) error {
	if !Local(r.Context()) {
		return &Problem{
			Status: http.StatusForbidden, Code: CodeForbidden, Message: "a backup can only be asked for over the unix socket",
			Hint: "run 'tideover backup' on the machine itself",
		}
	}
	var dir string
	var without []int
	o, err := body(r)
	if err != nil {
		return err
	}
	if err := o.fields("dir", &dir, "without_shards", &without); err != nil {
		return err
	}
	if err := s.checkTarget(dir); err != nil {
		return err
	}
	ctx, cancel := patient(w, r, time.Hour)
	defer cancel()
	copied, err := s.engine.BackupWithout(ctx, dir, without)
	if err != nil {
		return backupProblem(err, dir)
	}
	return answer(w, http.StatusOK, Backup{dir, copied.FromShards, copied.Runs, copied.Keys, copied.Schedules, copied.LeftOut})
}

// backupProblem returns how the error of a backup is told.
func backupProblem(err error, dir string) error {
	switch {
	case atTarget(err, dir):
		return bad("dir", "%v", err)
	case errors.Is(err, move.ErrNotLost):
		return bad("without_shards", "%v", err)
	case errors.Is(err, engine.ErrClosed):
		return err
	}
	p := &Problem{Status: http.StatusInternalServerError, Code: CodeInternal, Message: err.Error()}
	if lost, ok := errors.AsType[*move.LostShardError](err); ok {
		p.Hint = fmt.Sprintf("if it can't be restored, leave it out: --without-shard %d, or %d in without_shards", lost.Shard, lost.Shard)
	}
	return p
}

// checkTarget refuses folders that a backup can't be made in. Those that may not
// be written to show when it begins.
func (s *server) checkTarget(dir string) error {
	if !filepath.IsAbs(dir) || strings.ContainsRune(dir, 0) {
		return bad("dir", "%q is not the absolute path of a folder", excerpt(dir))
	}
	if s.data != "" && within(resolved(s.data), resolved(dir)) {
		return bad("dir", "%q is in the data folder %s; the copy must be elsewhere", excerpt(dir), s.data)
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		return bad("dir", "the folder %q is not empty: it has %q", excerpt(dir), entries[0].Name())
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return bad("dir", "%v", err)
	}
	return nil
}

// resolved returns a path without symbolic links, as far as it exists.
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

// within reports whether a path is the folder, or in it.
func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// atTarget reports whether a backup was not possible because of the folder that
// was named.
func atTarget(err error, dir string) bool {
	p, ok := errors.AsType[*fs.PathError](err)
	if !ok || !within(dir, p.Path) && !within(p.Path, dir) {
		return false
	}
	for _, why := range []error{fs.ErrPermission, fs.ErrExist, syscall.ENOTDIR, syscall.EROFS, syscall.ENAMETOOLONG} {
		if errors.Is(err, why) {
			return true
		}
	}
	return false
}
