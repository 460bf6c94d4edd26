package move

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

// mark is the content of such a blob.
type mark struct {
	ID     string    `json:"id"`     // of the move to a target, however often it is begun
	Origin string    `json:"origin"` // which source it is
	From   string    `json:"from"`
	To     string    `json:"to"`
	At     time.Time `json:"at"`
	Seq    uint64    `json:"seq,omitempty"` // the last entry that was moved
}

// MovedError says that everything in a log was moved to another one.
type MovedError struct {
	To string
	At time.Time
}

// Error implements error.
func (e *MovedError) Error() string {
	return fmt.Sprintf("everything here was moved to %s on %s; open that one, or it will be done twice", e.To, e.At.Format(time.RFC3339))
}

// MovingError says that a log is the target of a move that is not complete.
type MovingError struct {
	From string
	At   time.Time
}

// Error implements error.
func (e *MovingError) Error() string {
	return fmt.Sprintf("a move from %s to here began on %s and is not complete; repeat it", e.From, e.At.Format(time.RFC3339))
}

// Check fails with a [*MovedError] or a [*MovingError] if no engine may open the log,
// because it was moved or is being filled.
func Check(ctx context.Context, lease journal.Reader) error {
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

// readMark returns a mark, or nil if there is none.
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

// marks returns the marks of all shards.
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

// checkUnmoved fails if a log has taken part in a move.
func (s *side) checkUnmoved(ctx context.Context) error {
	for i, l := range s.leases {
		if err := Check(ctx, l); err != nil {
			return s.wrap(i, err)
		}
	}
	return nil
}
