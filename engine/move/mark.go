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
	"github.com/tideover/tideover/internal/textfmt"
)

// The names of the blobs that mark the logs of a move.
const (
	movedBlob  = "moved"  // in a source: everything was moved to a target
	movingBlob = "moving" // in a target: the move is not complete
	originBlob = "origin" // in a source: has an id by which a target recognises the source
)

// mark is the content of a blob that marks a log.
type mark struct {
	ID     string    `json:"id"`     // id of the move; the same if the move is repeated
	Origin string    `json:"origin"` // id of the source
	From   string    `json:"from"`
	To     string    `json:"to"`
	At     time.Time `json:"at"`
	Seq    uint64    `json:"seq,omitempty"` // the last entry that was moved
}

// MovedError says that everything in a log was moved to another log.
type MovedError struct {
	To string    // name of the other log
	At time.Time // when it was moved
}

// Error implements error.
func (e *MovedError) Error() string {
	return fmt.Sprintf("everything here was moved to %s on %s; open that one: if this one is opened too, runs are executed twice", e.To, e.At.Format(time.RFC3339))
}

// MovingError says that a log is the target of a move that is not complete.
type MovingError struct {
	From string    // name of the source
	At   time.Time // when the move began
}

// Error implements error.
func (e *MovingError) Error() string {
	return fmt.Sprintf("a move from %s to here began on %s and is not complete; repeat it", e.From, e.At.Format(time.RFC3339))
}

// Check returns a [*MovedError] if the log was moved to another one, and a [*MovingError] if it is
// the target of a move that is not complete. No engine may open such a log.
func Check(ctx context.Context, lease journal.Reader) error {
	return cmp.Or(refuseMarked(ctx, lease, movedBlob), refuseMarked(ctx, lease, movingBlob))
}

// refuseMarked returns the error that the mark with this name stands for; nil if the log does not have it.
func refuseMarked(ctx context.Context, lease journal.Reader, name string) error {
	k, err := readMark(ctx, lease, name)
	switch {
	case err != nil || k == nil:
		return err
	case name == movedBlob:
		return &MovedError{k.To, k.At}
	default:
		return &MovingError{k.From, k.At}
	}
}

// readMark returns the mark with this name; nil if there is none.
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

// marks returns the mark with this name of each shard; nil for shards without it.
func (s *side) marks(ctx context.Context, name string) (list []*mark, err error) {
	err = s.each(func(_ int, l journal.Lease) error {
		k, err := readMark(ctx, l, name)
		list = append(list, k)
		return err
	})
	return list, err
}

// checkBoth checks that the two logs can be the source and the target of a move, and finds the marks
// of earlier attempts at the same move.
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
			continue // its content is from an earlier attempt, and will be removed
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

// identify reads the id of the source, if it has one. It fails if the source is the target of
// another move, or the target was moved to another log.
func (m *mover) identify(ctx context.Context) error {
	m.ticket = newTicket(m.opts)
	// The mark is in the first shard that was not lost at the first attempt.
	origins, err := m.from.marks(ctx, originBlob)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(origins, func(k *mark) bool { return k != nil }); i >= 0 {
		m.known, m.ticket.Origin = true, origins[i].Origin
	}
	if err := m.from.each(func(_ int, l journal.Lease) error { return refuseMarked(ctx, l, movingBlob) }); err != nil {
		return err
	}
	return m.to.each(func(_ int, l journal.Lease) error { return refuseMarked(ctx, l, movedBlob) })
}

// isMarked reports whether an earlier attempt at this move has marked all shards of the source, and
// nothing was appended to the source since then. If so, the target is complete. It fails if the
// source was moved to another target.
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

// isUntouched reports whether a shard of the source has no entries after seq, except the
// fences of this move (see side.fence).
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

// checkEmpty returns an error if a shard of the target is not empty.
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
	paused := 0 // not in the tally: every shard has the pauses of all workflows
	for _, w := range s.Machine.Workflows() {
		if w.Pause != nil {
			paused++
		}
	}
	if !t.Empty() || paused > 0 || len(s.Archives) > 0 {
		return &RefusedError{
			"the target is not empty: use a new folder or cluster, in which no server has started",
			m.to.wrap(shard, errors.New("it has "+contents(&t, paused, len(s.Archives)))),
		}
	}
	return nil
}

// contents describes what a shard has, for the error of checkEmpty.
func contents(t *machine.Tally, paused, archives int) string {
	var list []string
	add := func(n int, one, many string) {
		if n > 0 {
			list = append(list, textfmt.PluralOf(n, one, many))
		}
	}
	for state, n := range t.Runs {
		name := machine.State(state).String()
		add(n, name+" run", name+" runs")
	}
	add(t.Keys, "key", "keys")
	add(t.Schedules, "schedule", "schedules")
	add(paused, "paused workflow", "paused workflows")
	add(archives, "archive of finished runs", "archives of finished runs")
	return cmp.Or(strings.Join(list, ", "), "the counts of earlier runs")
}
