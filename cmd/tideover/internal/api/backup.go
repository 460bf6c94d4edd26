package api

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tideover/tideover/engine"
)

// backup is for those who could copy the files anyway.
func (s *server) backup(w http.ResponseWriter, r *http.Request, _ string) error {
	if !Local(r.Context()) {
		return &Problem{
			Status: http.StatusForbidden, Code: CodeForbidden, Message: "a backup can only be asked for over the unix socket",
			Hint: "run 'tideover backup' on the machine itself",
		}
	}
	var dir string
	o, err := body(r)
	if err != nil {
		return err
	}
	if err := o.fields("dir", &dir); err != nil {
		return err
	}
	if err := s.checkTarget(dir); err != nil {
		return err
	}
	ctx, cancel := patient(w, r, time.Hour)
	defer cancel()
	if err := s.engine.Backup(ctx, dir); err != nil {
		if atTarget(err, dir) {
			return bad("dir", "%v", err)
		}
		if errors.Is(err, engine.ErrClosed) {
			return err
		}
		return &Problem{Status: http.StatusInternalServerError, Code: CodeInternal, Message: err.Error()}
	}
	return answer(w, http.StatusOK, map[string]any{"dir": dir})
}

// checkTarget refuses folders that a backup can't be made in. Those that may not
// be written to show when it begins.
func (s *server) checkTarget(dir string) error {
	if !filepath.IsAbs(dir) || strings.ContainsRune(dir, 0) {
		return bad("dir", "%q is not the absolute path of a folder", short([]byte(dir)))
	}
	if s.data != "" && within(resolved(s.data), resolved(dir)) {
		return bad("dir", "%q is in the data folder %s; the copy must be elsewhere", short([]byte(dir)), s.data)
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		return bad("dir", "the folder %q is not empty: it has %q", short([]byte(dir)), entries[0].Name())
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
