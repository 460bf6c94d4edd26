package account

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/cmd/tideover/internal/lockfile"
)

// maxFile is the size of the largest file that is read; a larger one counts as damaged.
const maxFile = 64 << 10

// lockTimeout limits the wait for the lock of a file, which is held for one write to the disk.
const lockTimeout = 5 * time.Second

var (
	errDamaged = errors.New("the file is damaged")
	errNewer   = errors.New("the file was written by a newer release")
)

// readState reads the file of an account. A missing file is an empty state.
func readState(path string) (*state, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return new(state), nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: not a regular file", errDamaged)
	}
	if err := fileaccess.Check(path, info, fileaccess.GroupOrOthers); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|lockfile.NoFollow, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxFile:
		return nil, fmt.Errorf("%w: larger than %d bytes", errDamaged, maxFile)
	}
	return parseState(text)
}

// parseState parses the content of a file.
func parseState(text []byte) (*state, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	switch {
	case head.Version > stateVersion:
		return nil, fmt.Errorf("%w: version %d", errNewer, head.Version)
	case head.Version != stateVersion:
		return nil, fmt.Errorf("%w: version %d", errDamaged, head.Version)
	}
	s := new(state)
	err := json.Unmarshal(text, s)
	if err == nil {
		err = s.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if l := s.Limit; l != nil {
		l.By, l.Why = shorten(l.By), shorten(l.Why)
	}
	if s.Probe != nil {
		s.Probe.By = shorten(s.Probe.By)
	}
	return s, nil
}

// writeState writes the file atomically. The caller holds the lock, so the temporary file always has
// the same name, and a kill leaves at most one of them.
func writeState(path string, s *state) error {
	s.Version = stateVersion
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	next := path + ".tmp"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
	}
	return err
}

// tryLock takes the lock of a file, which it creates if necessary. held is true if another process
// has it.
func tryLock(path string) (unlock func(), held bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|lockfile.NoFollow, 0o600)
	if err != nil {
		return nil, false, err
	}
	if held, err = lockfile.Try(f); held || err != nil {
		return nil, held, errors.Join(err, f.Close())
	}
	return func() {
		lockfile.Release(f)
		_ = f.Close()
	}, false, nil
}

// takeLock waits up to lockTimeout for the lock of a file.
func takeLock(path string) (unlock func(), err error) {
	for end := time.Now().Add(lockTimeout); ; {
		unlock, held, err := tryLock(path)
		if err != nil || !held {
			return unlock, err
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%s is held by another process", filepath.Base(path))
		}
	}
}
