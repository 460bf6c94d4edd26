package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// file is the trail on the disk. Whatever goes wrong closes it; the next write
// opens it again.
type file struct {
	path    string
	maxSize int64
	keep    int

	f    *os.File // nil when it is closed
	info os.FileInfo
	size int64
}

// open opens the file, makes it private, and completes a line that was cut off
// when a process died.
func (f *file) open() error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	// Looked at before it is opened: to open a pipe may wait for its reader.
	if info, err := os.Lstat(f.path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("audit: %s is not a regular file, but %v", f.path, info.Mode().Type())
	}
	h, err := os.OpenFile(f.path, os.O_RDWR|os.O_APPEND|os.O_CREATE|noFollow, 0o600)
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
	f.size = f.info.Size()
	if f.size > 0 {
		var last [1]byte
		if _, err := h.ReadAt(last[:], f.size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			n, err := h.Write([]byte{'\n'})
			if err != nil {
				return err
			}
			f.size += int64(n)
		}
	}
	f.f = h
	return nil
}

// write appends lines, and returns how many bytes of them need not be written
// again: those of whole lines.
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

// ready makes the file one that a line of this size can be added to.
func (f *file) ready(line int) error {
	if f.f != nil {
		// Another program may have moved or removed it, as logrotate does.
		if there, err := os.Lstat(f.path); err != nil || !os.SameFile(there, f.info) {
			_ = f.close()
		}
	}
	if f.f == nil {
		if err := f.open(); err != nil {
			return err
		}
	}
	if f.maxSize > 0 && f.size > 0 && f.size+int64(line) > f.maxSize {
		return f.rotate()
	}
	return nil
}

// fit returns as many whole lines as the file has room for, and one at least.
func (f *file) fit(p []byte) []byte {
	room := f.maxSize - f.size
	if f.maxSize == 0 || room >= int64(len(p)) {
		return p
	}
	n := len(firstLine(p))
	return p[:max(n, bytes.LastIndexByte(p[:max(room, 0)], '\n')+1)]
}

// firstLine returns the first line with its end.
func firstLine(p []byte) []byte { return p[:bytes.IndexByte(p, '\n')+1] }

// rotate puts the file aside, removes those that are too many, and begins a new
// one. The highest number is moved first, so that nothing is lost should the
// process end here.
func (f *file) rotate() error {
	if err := f.close(); err != nil {
		return err
	}
	for i := f.keep - 1; i >= 0; i-- {
		if err := os.Rename(f.aside(i), f.aside(i+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("audit: %w", err)
		}
	}
	if f.keep == 0 {
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("audit: %w", err)
		}
	}
	for more, i := true, f.keep+1; more; i++ { // from when more were kept
		more = os.Remove(f.aside(i)) == nil
	}
	return f.open()
}

// aside returns the name of the i-th file that was put aside; the 0-th is the one
// that is written.
func (f *file) aside(i int) string {
	if i == 0 {
		return f.path
	}
	return f.path + "." + strconv.Itoa(i)
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
