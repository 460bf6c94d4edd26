package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/cmd/tideover/internal/lockfile"
)

// file is the audit log on the disk. An error closes it; the next write opens it again.
type file struct {
	path    string
	maxSize int64
	keep    int

	f    *os.File // nil when it is closed
	info os.FileInfo
	size int64
	torn bool // the last line has no end: a process died, or the disk became full, while it was written
}

// open opens the file, and makes it accessible only to its owner. It writes nothing, so that it
// succeeds on a full disk.
func (f *file) open() error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	// Check the type before opening the file: opening a pipe could block.
	if info, err := os.Lstat(f.path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("audit: %s is not a regular file: it is %v", f.path, info.Mode().Type())
	}
	// Do not follow a symbolic link: a user who can create one here could make us change another
	// file.
	h, err := os.OpenFile(f.path, os.O_RDWR|os.O_APPEND|os.O_CREATE|lockfile.NoFollow, 0o600)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if err := f.prepare(h); err != nil {
		return errors.Join(fmt.Errorf("audit: %w", err), h.Close())
	}
	return nil
}

func (f *file) prepare(h *os.File) (err error) {
	if f.info, err = h.Stat(); err != nil {
		return err
	}
	if f.info.Mode().Perm() != 0o600 {
		if err := h.Chmod(0o600); err != nil {
			return err
		}
	}
	f.size, f.torn = f.info.Size(), false
	if f.size > 0 {
		var last [1]byte
		if _, err := h.ReadAt(last[:], f.size-1); err != nil {
			return err
		}
		f.torn = last[0] != '\n'
	}
	f.f = h
	return nil
}

// endTornLine ends the last line, if it has no end.
func (f *file) endTornLine() error {
	if !f.torn {
		return nil
	}
	if _, err := f.f.Write([]byte{'\n'}); err != nil {
		return errors.Join(fmt.Errorf("audit: %w", err), f.close())
	}
	f.size, f.torn = f.size+1, false
	return nil
}

// write appends lines, and returns the number of bytes of complete lines that were written.
func (f *file) write(p []byte) (done int, err error) {
	for len(p) > 0 {
		if err := f.ready(len(firstLine(p))); err != nil {
			return done, err
		}
		piece := f.fit(p)
		n, err := f.f.Write(piece)
		f.size += int64(n)
		if err != nil {
			_ = f.close()
			return done + bytes.LastIndexByte(piece[:n], '\n') + 1, fmt.Errorf("audit: %w", err)
		}
		done, p = done+n, p[n:]
	}
	return done, nil
}

// ready opens or rotates the file if necessary, so that a line of this size can be added.
func (f *file) ready(line int) error {
	if f.f != nil {
		// Another program, such as logrotate, may have moved or removed it.
		if there, err := os.Lstat(f.path); err != nil || !os.SameFile(there, f.info) {
			_ = f.close()
		}
	}
	if f.f == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	if err := f.endTornLine(); err != nil {
		return err
	}
	if f.maxSize > 0 && f.size > 0 && f.size+int64(line) > f.maxSize {
		return f.rotate()
	}
	return nil
}

// fit returns the first lines of p that fit into the file before its next rotation, at least one.
func (f *file) fit(p []byte) []byte {
	room := f.maxSize - f.size
	if f.maxSize == 0 || room >= int64(len(p)) {
		return p
	}
	n := len(firstLine(p))
	return p[:max(n, bytes.LastIndexByte(p[:max(room, 0)], '\n')+1)]
}

// firstLine returns the first line including its line end.
func firstLine(p []byte) []byte { return p[:bytes.IndexByte(p, '\n')+1] }

// rotate renames the file and the earlier ones, removes the oldest, and opens a new file.
func (f *file) rotate() error {
	if err := f.close(); err != nil {
		return err
	}
	if err := fileaccess.Rotate(f.path, f.keep); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if f.keep == 0 {
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("audit: %w", err)
		}
	}
	for more, i := true, f.keep+1; more; i++ { // remove files that an earlier, larger keep has left
		more = os.Remove(fileaccess.Rotated(f.path, i)) == nil
	}
	return f.open()
}

func (f *file) close() error {
	if f.f == nil {
		return nil
	}
	h := f.f
	f.f = nil
	if err := h.Close(); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}
