package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

// folded is the state that a log has.
type folded struct {
	m        *machine.Machine
	cold     cold
	archives []string
}

// fold reads the last snapshot that can be read, and the log after it. It changes
// nothing.
func fold(ctx context.Context, log journal.Reader) (*folded, error) {
	f := &folded{m: machine.New()}
	err := f.restore(ctx, log)
	if err == nil {
		err = f.replay(ctx, log)
	}
	if err != nil {
		f.cold.close()
		return nil, err
	}
	return f, nil
}

func (f *folded) restore(ctx context.Context, log journal.Reader) error {
	blobs, err := log.Blobs(ctx)
	if err != nil {
		return err
	}
	first, last, err := log.Bounds(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, b := range blobs {
		if _, ok := blobSeq(b.Name, "archive-"); ok {
			f.archives = append(f.archives, b.Name)
		}
		if seq, ok := blobSeq(b.Name, "snapshot-"); ok && seq+1 >= first && seq <= last {
			names = append(names, b.Name)
		}
	}
	var bad []error
	for _, name := range slices.Backward(names) {
		m, err := f.cold.readSnapshot(ctx, log, name, time.Now().UnixNano())
		if err == nil {
			f.m = m
			return nil
		}
		bad = append(bad, fmt.Errorf("snapshot %s: %w", name, err))
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

func (f *folded) replay(ctx context.Context, log journal.Reader) error {
	for entry, err := range log.Read(ctx, f.m.Seq()+1) {
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if err := apply(f.m, entry); err != nil {
			return err
		}
	}
	return nil
}
