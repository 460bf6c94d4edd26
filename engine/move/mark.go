package move

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
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

// checkBoth finds out what earlier attempts have left, and whether the two logs can be the
// source and the target.
func (m *mover) checkBoth(ctx context.Context) error {
	if err := m.identify(ctx); err != nil {
		return err
	}
	begun, err := m.to.marks(ctx, movingBlob)
	if err != nil {
		return err
	}
	for i, k := range begun {
		if k == nil {
			continue
		}
		if k.Origin != m.ticket.Origin {
			return m.to.wrap(i, &MovingError{k.From, k.At})
		}
		m.ticket.ID = k.ID
	}
	if m.arrived, err = m.isMarked(ctx); err != nil || m.arrived {
		return err
	}
	for i, k := range begun {
		if k != nil {
			continue // its contents are of an earlier attempt
		}
		if err := m.checkEmpty(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func newTicket(o Options) mark {
	return mark{ID: rand.Text(), Origin: rand.Text(), From: o.From, To: o.To, At: time.Now()}
}

// identify finds out which source it is. It fails if one of the logs is part of another
// move.
func (m *mover) identify(ctx context.Context) error {
	m.ticket = newTicket(m.opts)
	// It is in the first shard, unless that was lost at an earlier attempt.
	origins, err := m.from.marks(ctx, originBlob)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(origins, isThere); i >= 0 {
		m.known, m.ticket.Origin = true, origins[i].Origin
	}
	filling, err := m.from.marks(ctx, movingBlob)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(filling, isThere); i >= 0 {
		return m.from.wrap(i, &MovingError{filling[i].From, filling[i].At})
	}
	away, err := m.to.marks(ctx, movedBlob)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(away, isThere); i >= 0 {
		return m.to.wrap(i, &MovedError{away[i].To, away[i].At})
	}
	return nil
}

func isThere(k *mark) bool { return k != nil }

// isMarked reports whether the whole source was marked by an earlier attempt at this
// move, which means that the target was complete then, and nothing has been
// recorded in the source since. A source that is moving elsewhere is an error.
func (m *mover) isMarked(ctx context.Context) (bool, error) {
	gone, err := m.from.marks(ctx, movedBlob)
	if err != nil {
		return false, err
	}
	all := true
	for i, k := range gone {
		if k == nil {
			all = false
			continue
		}
		if k.ID != m.ticket.ID {
			return false, m.from.wrap(i, &MovedError{k.To, k.At})
		}
		same, err := m.isUntouched(ctx, i, k.Seq)
		if err != nil {
			return false, err
		}
		all = all && same
	}
	return all, nil
}

// isUntouched reports whether nothing was recorded in a shard of the source after
// the entry, but by this move.
func (m *mover) isUntouched(ctx context.Context, shard int, seq uint64) (bool, error) {
	first, _, err := m.from.leases[shard].Bounds(ctx)
	if err != nil {
		return false, m.from.wrap(shard, err)
	}
	if seq+1 < first {
		return false, nil
	}
	for entry, err := range m.from.leases[shard].Read(ctx, seq+1) {
		if err != nil {
			return false, m.from.wrap(shard, err)
		}
		if entry.ID != fenceID(m.ticket.ID, entry.Seq) {
			return false, nil
		}
	}
	return true, nil
}

// checkEmpty fails if there is anything in a shard of the target.
func (m *mover) checkEmpty(ctx context.Context, shard int) error {
	s, err := store.Fold(ctx, m.to.leases[shard])
	if err != nil {
		return m.to.wrap(shard, err)
	}
	defer s.Close()
	t, err := s.Machine.Tally(m.seed)
	if err != nil {
		return m.to.wrap(shard, err)
	}
	if !t.Empty() || len(s.Archives) > 0 {
		return m.to.wrap(shard, fmt.Errorf("it is not empty, it has %s; move to an empty one", contents(&t, len(s.Archives))))
	}
	return nil
}

// contents lists what a shard has.
func contents(t *machine.Tally, archives int) string {
	var list []string
	add := func(n int, what string) {
		if n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, what))
		}
	}
	for state, n := range t.Runs {
		add(n, machine.State(state).String()+" runs")
	}
	add(t.Keys, "keys")
	add(t.Schedules, "schedules")
	add(archives, "archives of finished runs")
	return cmp.Or(strings.Join(list, ", "), "the counts of earlier runs")
}
