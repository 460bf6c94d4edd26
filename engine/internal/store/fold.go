package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

// State is the state that a log has.
type State struct {
	Machine  *machine.Machine
	Archives []string // names

	paging Paging
}

// Fold reads the last snapshot that can be read, and the log after it. It changes
// nothing.
func Fold(ctx context.Context, log journal.Reader) (*State, error) {
	s := &State{Machine: machine.New()}
	err := s.restore(ctx, log)
	if err == nil {
		err = Replay(ctx, log, s.Machine, func(journal.Entry) {})
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close closes the snapshot that the state was read from.
func (s *State) Close() { s.paging.Close() }

// List returns the first entry of a log, the snapshots that its entries follow on, the
// newest first, and the names of the archives.
func List(ctx context.Context, log journal.Reader) (first uint64, snapshots []journal.Blob, archives []string, err error) {
	blobs, err := log.Blobs(ctx)
	if err != nil {
		return 0, nil, nil, err
	}
	first, last, err := log.Bounds(ctx)
	for _, b := range slices.Backward(blobs) {
		if seq, ok := ParseName(b.Name, SnapshotPrefix); ok && seq+1 >= first && seq <= last {
			snapshots = append(snapshots, b)
		}
	}
	for _, b := range blobs {
		if _, ok := ParseName(b.Name, ArchivePrefix); ok {
			archives = append(archives, b.Name)
		}
	}
	return first, snapshots, archives, err
}

func (s *State) restore(ctx context.Context, log journal.Reader) error {
	first, snapshots, archives, err := List(ctx, log)
	if err != nil {
		return err
	}
	s.Archives = archives
	var bad []error
	for _, b := range snapshots {
		m, err := s.paging.ReadSnapshot(ctx, log, b.Name, time.Now().UnixNano())
		if err == nil {
			s.Machine = m
			return nil
		}
		bad = append(bad, fmt.Errorf("snapshot %s: %w", b.Name, err))
		if errors.Is(err, machine.ErrFormat) {
			return errors.Join(bad...)
		}
	}
	if first > 1 {
		bad = append(bad, fmt.Errorf("%w: the log begins at entry %d and no snapshot leads up to it", journal.ErrDamaged, first))
		return errors.Join(bad...)
	}
	return nil
}

// Replay applies the entries of the log that the machine does not know, and calls applied
// after each.
func Replay(ctx context.Context, log journal.Reader, m *machine.Machine, applied func(journal.Entry)) error {
	for entry, err := range log.Read(ctx, m.Seq()+1) {
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if err := apply(m, entry); err != nil {
			return err
		}
		applied(entry)
	}
	return nil
}

// apply applies an entry of the log.
func apply(m *machine.Machine, entry journal.Entry) error {
	_, err := machine.ReadEntry(entry.Data, func(h machine.Header, rec *machine.Record) error {
		m.Begin(entry.Seq, h) // the time of an entry without records does not count
		return m.Apply(rec)
	})
	if errors.Is(err, machine.ErrEncoding) {
		err = fmt.Errorf("%w: %w", journal.ErrDamaged, err)
	}
	if err != nil {
		return fmt.Errorf("entry %d of the log: %w", entry.Seq, err)
	}
	return nil
}

// IsDamage reports whether something that is stored can't be read, today or ever.
func IsDamage(err error) bool {
	return errors.Is(err, journal.ErrDamaged) || errors.Is(err, machine.ErrEncoding) || errors.Is(err, io.ErrUnexpectedEOF)
}
