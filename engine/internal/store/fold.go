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

// State is the state of a shard that was read from its log.
type State struct {
	Machine  *machine.Machine
	Archives []string // names of the archives

	paging Paging
}

// Fold returns the state of a log: it reads the newest snapshot that can be read, and replays
// the entries after it. It does not change the log.
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

// List returns the number of the first entry of a log, the snapshots after which the log has all
// entries, newest first, and the names of the archives.
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

// Replay applies the entries of the log that are newer than the machine, and calls applied after
// each.
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
		m.Begin(entry.Seq, h) // not called for an entry without records: its time must not count
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

// IsDamage reports whether an error says that stored data is damaged, so that reading it again
// does not help.
func IsDamage(err error) bool {
	return errors.Is(err, journal.ErrDamaged) || errors.Is(err, machine.ErrEncoding) || errors.Is(err, io.ErrUnexpectedEOF)
}
