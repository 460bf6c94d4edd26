package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// The blobs by which logs know of a move.
const (
	movedBlob  = "moved"  // in a source: it was moved
	movingBlob = "moving" // in a target: it is not complete
	originBlob = "origin" // in a source: how targets know it again
)

// mark is what such a blob says.
type mark struct {
	ID     string    `json:"id"`     // of the move to a target, however often it is begun
	Origin string    `json:"origin"` // which source it is
	From   string    `json:"from"`
	To     string    `json:"to"`
	At     time.Time `json:"at"`
	Seq    uint64    `json:"seq,omitempty"` // the last entry that was moved
}

// movedTo says why the log of the lease must not be opened, if it has taken part
// in a move.
func movedTo(ctx context.Context, lease journal.Reader) error {
	moved, err := readMark(ctx, lease, movedBlob)
	if err != nil {
		return err
	}
	if moved != nil {
		return &MovedError{moved.To, moved.At}
	}
	moving, err := readMark(ctx, lease, movingBlob)
	if err != nil {
		return err
	}
	if moving != nil {
		return &MovingError{moving.From, moving.At}
	}
	return nil
}

// readMark returns nil if there is none.
func readMark(ctx context.Context, lease journal.Reader, name string) (*mark, error) {
	in, err := lease.Get(ctx, name)
	if errors.Is(err, journal.ErrNoBlob) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	k := new(mark)
	if err := json.NewDecoder(in).Decode(k); err != nil {
		return nil, fmt.Errorf("%w: blob %q: %w", journal.ErrDamaged, name, err)
	}
	return k, nil
}

func (k mark) put(ctx context.Context, lease journal.Lease, name string) error {
	return lease.Put(ctx, name, func(out io.Writer) error { return json.NewEncoder(out).Encode(k) })
}

// marks returns those of all shards.
func (s *side) marks(ctx context.Context, name string) (list []*mark, err error) {
	for i, l := range s.leases {
		k, err := readMark(ctx, l, name)
		if err != nil {
			return nil, s.wrap(i, err)
		}
		list = append(list, k)
	}
	return list, nil
}
