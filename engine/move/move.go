// Package move moves everything that an engine stores from one log to another: from a
// folder to a cluster, back, or to a cluster with another number of shards. It also copies
// a cluster that is in use to a folder.
//
// It works on logs that no engine has open: see engine.Engine.Backup for a copy of a
// folder that is in use.
package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/sqlitelog"
)

// Options says how a move is done.
type Options struct {
	// From and To are what people call the two logs: a folder, the name of a
	// cluster. They are stored and shown, and must have no secrets in them.
	From, To string

	// Limited are the names of the workflows that have a limit of runs or attempts in
	// the processes that will use the target: see engine.Workflow.Limited. In a cluster,
	// runs of such a workflow are in one shard.
	Limited []string

	// DryRun counts what would be moved, and writes nothing.
	DryRun bool

	// LeaveUnreadable leaves archives of finished runs behind that can't be read.
	// Otherwise such an archive is an error.
	LeaveUnreadable bool

	// WithoutShards are shards of the source, a cluster, that are lost: what is in
	// them is left out. A shard that can be read, or may be later, is an error.
	WithoutShards []int

	// Progress is called when the move is a step further. nil means no call.
	Progress func(Progress)
}

// Progress is how far a stage of a move is.
type Progress struct {
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

// Move moves everything from one log to another. No process may use either meanwhile.
//
// The target must be empty. It is read back and compared before the source is marked as
// moved. No engine opens the target before that, or the source after it. Nothing is
// removed from the source. Repeat a move that was interrupted, at any point: it begins
// anew, or does what is left to do.
func Move(ctx context.Context, from, to journal.Log, opts Options) (_ Moved, err error) {
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

// Copy copies a cluster that is in use to a folder, and leaves the cluster as it is.
// Shards that are lost are left out if without names them.
func Copy(ctx context.Context, from journal.Cluster, dir string, without []int) (copied Moved, err error) {
	if before, _ := os.ReadDir(dir); len(before) == 0 {
		defer func() {
			if err != nil { // half a copy must not be taken for one
				err = errors.Join(err, removeAllIn(dir))
			}
		}()
	}
	to, err := sqlitelog.Open(ctx, sqlitelog.Config{Dir: dir})
	if err != nil {
		return copied, err
	}
	m := newMover(Options{From: "a cluster, as a copy", To: dir, WithoutShards: without})
	defer func() { err = errors.Join(err, m.close(), to.Close()) }()
	if err := m.to.lease(ctx, to); err != nil {
		return copied, err
	}
	if err := Check(ctx, m.to.leases[0]); err != nil {
		return copied, m.to.wrap(0, err)
	}
	if err := m.checkEmpty(ctx, 0); err != nil {
		return copied, err
	}
	err = m.copy(ctx, from)
	return m.moved, err
}

// removeAllIn removes the contents of a folder.
func removeAllIn(dir string) error {
	list, err := os.ReadDir(dir)
	for _, f := range list {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, f.Name())))
	}
	return err
}

// mover is a move that goes on.
type mover struct {
	opts     Options
	from, to side
	ticket   mark   // by which both logs know the move
	known    bool   // the source has its origin stored
	arrived  bool   // everything is in the target, and the source is marked
	advice   string // what to do if it fails now

	source  []*store.State
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

func newMover(opts Options) *mover {
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
	for _, s := range m.source {
		s.Close()
	}
	return errors.Join(m.to.release(), m.from.release())
}

func (m *mover) run(ctx context.Context) error {
	if err := m.checkBoth(ctx); err != nil {
		return err
	}
	if err := m.read(ctx); err != nil {
		return err
	}
	rest := []func(context.Context) error{m.prepare, m.write, m.verify, m.seal}
	switch {
	case m.opts.DryRun:
		rest = []func(context.Context) error{m.countArchives}
	case m.arrived:
		rest = []func(context.Context) error{m.countArchives, m.seal}
	}
	for _, step := range rest {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// copy copies a cluster that is in use. Nothing is stored in the cluster.
func (m *mover) copy(ctx context.Context, from journal.Cluster) error {
	if err := m.from.peek(ctx, from); err != nil {
		return err
	}
	m.moved.FromShards, m.moved.ToShards, m.moved.LeftOut = m.from.shards, m.to.shards, m.from.lost
	m.ticket, m.known = newTicket(m.opts), true
	for _, step := range []func(context.Context) error{m.read, m.prepare, m.write, m.verify} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return m.to.leases[0].Delete(ctx, movingBlob)
}

func (m *mover) reportProgress(stage string, done, total int) {
	if m.opts.Progress != nil {
		m.opts.Progress(Progress{stage, done, total})
	}
}
