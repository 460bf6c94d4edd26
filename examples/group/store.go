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

// load returns what was saved last, nothing when there is no file.
func (s store) load() ([]paxos.Slot, error) {
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var slots []paxos.Slot
	if err := json.Unmarshal(data, &slots); err != nil {
		return nil, fmt.Errorf("%s: %w; an acceptor that can't remember must not answer", s.path, err)
	}
	return slots, nil
}

// save replaces the file by one with the slots. When it returns they are on
// disk; whenever the process dies the file is the old one or the new one.
func (s store) save(slots []paxos.Slot) error {
	data, err := json.Marshal(slots)
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
