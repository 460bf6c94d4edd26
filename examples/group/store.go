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

// store is the file with the persistent state of an acceptor.
type store struct{ path string }

// savedState is the persistent state of an acceptor.
type savedState struct {
	Known map[int]int  // for each member, the least number of epochs that it knows
	Slots []paxos.Slot // what was promised, accepted and decided
}

// load returns the saved state; an empty one if there is no file.
func (s store) load() (savedState, error) {
	m := savedState{Known: map[int]int{}}
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%s: %w: restore the file: an acceptor without its state must not answer", s.path, err)
	}
	if m.Known == nil {
		m.Known = map[int]int{}
	}
	return m, nil
}

// save replaces the file. When it returns, the new file is on disk; if the
// process dies, the file is the old or the new one.
func (s store) save(m savedState) error {
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

// syncFolder makes a rename durable.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
