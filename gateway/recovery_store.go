package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/tideover/tideover/health"
)

// recoveryStore is what was learned of the outages of all destinations. It is kept in a
// file, so that a restart forgets nothing.
type recoveryStore struct {
	path string // "" means that it is not kept

	mu    sync.Mutex
	known map[string]*learned // by provider
	dirty atomic.Bool
}

// learned is what was learned of one.
type learned struct {
	BaseURL  string           `json:"base_url"` // another address is another destination
	Recovery *health.Recovery `json:"recovery"`
}

// stored is the form of the file.
type stored struct {
	Version   int                 `json:"version"`
	Providers map[string]*learned `json:"providers"`
}

const (
	storedVersion = 1
	maxStored     = 16 << 20
)

// loadRecoveryStore reads the file. A file that can't be read counts as empty.
func loadRecoveryStore(path string, log *slog.Logger) *recoveryStore {
	m := &recoveryStore{path: path, known: map[string]*learned{}}
	if path == "" {
		return m
	}
	text, err := readCapped(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m
	}
	var s stored
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && s.Version != storedVersion {
		err = fmt.Errorf("version %d, want %d", s.Version, storedVersion)
	}
	if err != nil {
		log.Warn("can't read the learned outage durations; starting without them", "file", path, "error", err)
		return m
	}
	for name, l := range s.Providers {
		if l != nil && l.Recovery != nil {
			m.known[name] = l
		}
	}
	return m
}

func readCapped(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxStored:
		return nil, errors.New("not a recovery file of tideover")
	}
	return os.ReadFile(path)
}

// recovery returns what is known of a destination, which the caller adds to.
func (s *recoveryStore) recovery(name, base string) *health.Recovery {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.known[name]; l != nil && l.BaseURL == base {
		return l.Recovery
	}
	r := new(health.Recovery)
	s.known[name] = &learned{BaseURL: base, Recovery: r}
	return r
}

// touch notes that there is something to save.
func (s *recoveryStore) touch() { s.dirty.Store(true) }

// save writes the file, if something was learned since the last time.
func (s *recoveryStore) save() error {
	if s.path == "" || !s.dirty.CompareAndSwap(true, false) {
		return nil
	}
	s.mu.Lock()
	text, err := json.Marshal(stored{storedVersion, s.known})
	s.mu.Unlock()
	if err == nil {
		err = replaceFile(s.path, text)
	}
	if err != nil {
		s.dirty.Store(true)
		return fmt.Errorf("store the learned outage durations: %w", err)
	}
	return nil
}

// replaceFile writes a file that is there whole or not at all.
func replaceFile(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
