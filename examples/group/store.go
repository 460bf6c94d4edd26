package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tideover/tideover/internal/paxos"
)

// store is the file in which an acceptor keeps what it must not forget.
type store struct{ path string }

// memory is what an acceptor must not forget.
type memory struct {
	Known map[int]int  // for each member, how many epochs it knows at least
	Slots []paxos.Slot // what was promised, accepted and decided
}

// load returns what was saved last, nothing when there is no file.
func (s store) load() (memory, error) {
	m := memory{Known: map[int]int{}}
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%s: %w; an acceptor that can't remember must not answer", s.path, err)
	}
	if m.Known == nil {
		m.Known = map[int]int{}
	}
	return m, nil
}

// save replaces the file by one with what is remembered now: what is forgotten is
// not in it. When it returns it is on disk; whenever the process dies the file is
// the old one or the new one.
func (s store) save(m memory) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	dir := filepath.Dir(s.path)
	next := s.path + ".next"
	if err := writeSynced(next, data); err != nil {
		return err
	}
	if err := os.Rename(next, s.path); err != nil {
		return err
	}
	return syncFolder(dir)
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncFolder makes a rename last.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
