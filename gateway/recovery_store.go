package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/tideover/tideover/health"
	"github.com/tideover/tideover/internal/atomicfile"
)

// recoveryStore has the statistics of outages of all providers. It is stored in a
// file, so that they survive a restart.
type recoveryStore struct {
	path string // "" means that it is not stored

	mu    sync.Mutex
	known map[string]*learned // by provider
	dirty atomic.Bool
}

// learned has the statistics of outages of one provider.
type learned struct {
	BaseURL  string           `json:"base_url"` // statistics of another address are not used
	Recovery *health.Recovery `json:"recovery"`
}

// stored is the JSON of the file.
type stored struct {
	Version   int                 `json:"version"`
	Providers map[string]*learned `json:"providers"`
}

const (
	storedVersion = 1
	maxStored     = 16 << 20
)

// loadRecoveryStore reads the file. If the file can't be read, the store is empty.
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
	maps.Copy(m.known, s.Providers)
	maps.DeleteFunc(m.known, func(_ string, l *learned) bool { return l == nil || l.Recovery == nil })
	return m
}

func readCapped(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxStored:
		return nil, fmt.Errorf("not a regular file of at most %d bytes", maxStored)
	}
	return os.ReadFile(path)
}

// recovery returns the statistics of a provider at a base URL, and adds empty ones if
// there are none. The provider's health gate adds its outages to them.
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

// touch records that there is something to save.
func (s *recoveryStore) touch() { s.dirty.Store(true) }

// save writes the file, if something has changed since it was last written.
func (s *recoveryStore) save() error {
	if s.path == "" || !s.dirty.CompareAndSwap(true, false) {
		return nil
	}
	s.mu.Lock()
	text, err := json.Marshal(stored{storedVersion, s.known})
	s.mu.Unlock()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(s.path), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(s.path, text)
	}
	if err != nil {
		s.dirty.Store(true)
		return fmt.Errorf("store the learned outage durations: %w", err)
	}
	return nil
}
