package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

// MoveOptions says how a move is done.
type MoveOptions struct {
	// From and To are what people call the two logs: a folder, the name of a
	// cluster. They are stored and shown, and must have no secrets in them.
	From, To string

	// Workflows are those of the processes that will use the target. In a cluster,
	// runs of one with a limit are in one shard, and so they must be known here.
	Workflows []*Workflow

	// DryRun counts what would be moved, and writes nothing.
	DryRun bool

	// LeaveUnreadable leaves archives of finished runs behind that can't be read.
	// Otherwise such a one is an error.
	LeaveUnreadable bool

	// WithoutShards are shards of the source, a cluster, that are lost: what is in
	// them is left out. One that can be read, or may be later, is an error.
	WithoutShards []int

	// Progress is told how far the move is. nil means nobody.
	Progress func(MoveProgress)
}

// MoveProgress is how far a stage of a move is.
type MoveProgress struct {
	Stage string // read, archives, write, verify
	Done  int    // shards, or archives
	Total int
}

// Moved is what was moved, or would be.
type Moved struct {
	Runs       map[string]int `json:"runs"`     // by state
	Archived   int            `json:"archived"` // those of them that were in archives
	Orphans    int            `json:"orphans"`  // attempts that had not ended; they will be recorded as lost
	Keys       int            `json:"keys"`
	Schedules  int            `json:"schedules"`
	Bytes      int64          `json:"bytes"` // as stored in the target
	FromShards int            `json:"from_shards"`
	ToShards   int            `json:"to_shards"`
	Unreadable []string       `json:"unreadable,omitempty"` // archives that were left behind
	LeftOut    []LeftOut      `json:"left_out,omitempty"`   // shards of the source
	Stood      time.Duration  `json:"stood_ns"`             // how long neither log could be used
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

// Move moves everything from one log to another: from a folder to a cluster, back,
// or to a cluster with another number of shards. Nobody may use either meanwhile.
//
// The target must be empty. It is read back and compared before the source is
// marked as moved, and nobody can open it before that, or the source after it.
// Nothing is removed from the source. A move that was interrupted, at whatever
// point, is to be repeated: it begins anew, or does what was left to do.
func Move(ctx context.Context, from, to journal.Log, opts MoveOptions) (_ Moved, err error) {
	began := time.Now()
	m := newMover(opts)
	defer func() { err = errors.Join(err, m.close()) }()
	if err := m.lease(ctx, from, to); err != nil {
		return Moved{}, fmt.Errorf("move: %w", err)
	}
	if err := m.run(ctx); err != nil {
		return Moved{}, fmt.Errorf("move: %w%s", err, m.advice)
	}
	m.moved.Stood = time.Since(began)
	return m.moved, nil
}

// mover is a move that goes on.
type mover struct {
	opts     MoveOptions
	from, to side
	ticket   mark   // what the move is known by
	known    bool   // the source knows which one it is
	arrived  bool   // everything is in the target, and the source is marked
	advice   string // what to do if it fails now

	source  []*folded
	layout  *machine.Layout
	parts   []*machine.Machine // what is to be in the shards of the target
	seed    maphash.Seed
	want    account
	missing map[machine.Hash]bool // definitions that were not read back
	moved   Moved
}

// account is what must be the same on both sides.
type account struct {
	state machine.Tally
	runs  int    // in archives
	sum   uint64 // of them
}

func newMover(opts MoveOptions) *mover {
	opts.From, opts.To = cmp.Or(opts.From, "another log"), cmp.Or(opts.To, "another log")
	return &mover{
		opts: opts, from: side{what: "source", without: opts.WithoutShards}, to: side{what: "target"},
		seed: maphash.MakeSeed(), missing: map[machine.Hash]bool{}, moved: Moved{Runs: map[string]int{}},
	}
}

func (m *mover) lease(ctx context.Context, from, to journal.Log) error {
	if err := m.from.lease(ctx, from); err != nil {
		return err
	}
	if err := m.to.lease(ctx, to); err != nil {
		return err
	}
	m.moved.FromShards, m.moved.ToShards, m.moved.LeftOut = m.from.shards, m.to.shards, m.from.lost
	return nil
}

func (m *mover) close() error {
	for _, f := range m.source {
		f.cold.close()
	}
	return errors.Join(m.to.release(), m.from.release())
}

func (m *mover) run(ctx context.Context) error {
	if err := m.look(ctx); err != nil {
		return err
	}
	if err := m.read(ctx); err != nil {
		return err
	}
	rest := []func(context.Context) error{m.prepare, m.store, m.verify, m.seal}
	switch {
	case m.opts.DryRun:
		rest = []func(context.Context) error{m.count}
	case m.arrived:
		rest = []func(context.Context) error{m.count, m.seal}
	}
	for _, step := range rest {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *mover) tell(stage string, done, total int) {
	if m.opts.Progress != nil {
		m.opts.Progress(MoveProgress{stage, done, total})
	}
}
