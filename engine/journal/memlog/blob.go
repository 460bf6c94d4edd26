package memlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

func (l *lease) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := errors.Join(ctx.Err(), checkName(name)); err != nil {
		return err
	}
	if err := write(&b); err != nil {
		return err
	}
	_, err := do(ctx, l, "put", func(s *shard) (none, error) {
		s.blobs[name] = blob{b.Bytes(), time.Now()}
		return none{}, nil
	})
	return err
}

func (l *lease) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	return do(ctx, l, "get", func(s *shard) (io.ReadCloser, error) { return s.get(name) })
}

// get opens a blob.
func (s *shard) get(name string) (io.ReadCloser, error) {
	b, ok := s.blobs[name]
	if !ok {
		return nil, fmt.Errorf("memlog: %w: %s", journal.ErrNoBlob, name)
	}
	return io.NopCloser(bytes.NewReader(b.data)), nil
}

func (l *lease) Blobs(ctx context.Context) ([]journal.Blob, error) {
	return do(ctx, l, "blobs", func(s *shard) ([]journal.Blob, error) { return s.list(), nil })
}

// list lists the blobs.
func (s *shard) list() (list []journal.Blob) {
	for _, name := range slices.Sorted(maps.Keys(s.blobs)) {
		b := s.blobs[name]
		list = append(list, journal.Blob{Name: name, Size: int64(len(b.data)), Time: b.time})
	}
	return list
}

func (l *lease) Delete(ctx context.Context, name string) error {
	_, err := do(ctx, l, "delete", func(s *shard) (none, error) {
		delete(s.blobs, name)
		return none{}, nil
	})
	return err
}

// checkName refuses what is not a name by the contract.
func checkName(name string) error {
	ok := name != "" && name[0] != '.' && name[len(name)-1] != '.'
	for _, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-')
	}
	if !ok {
		return fmt.Errorf("memlog: %q is not the name of a blob", name)
	}
	return nil
}
