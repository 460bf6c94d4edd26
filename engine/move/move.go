// Package move moves everything that an engine stores from one log to another: from a
// folder to a cluster, back, or to a cluster with another number of shards. It also copies
// a cluster that is in use to a folder.
//
// [Move] needs logs that no engine has open. For a copy of a folder that is in use, see
// engine.Engine.Backup.
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

// Options has the settings of a move.
type Options struct {
	// From and To are the names of the two logs for messages: a folder, or the name of a
	// cluster. They are stored and shown, and must not contain secrets.
	From, To string

	// Limited are the names of the workflows that have a limit of runs or attempts in
	// the processes that will use the target: see engine.Workflow.Limited. In a cluster,
	// runs of such a workflow are in one shard.
	Limited []string

	// DryRun only counts what would be moved, and writes nothing.
	DryRun bool

	// LeaveUnreadable skips damaged archives of finished runs. Without it, a damaged archive
	// is an error.
	LeaveUnreadable bool

	// WithoutShards has the numbers of lost shards of a source that is a cluster: the move
	// leaves them out. It fails if one of them can be read, or may become readable later.
	WithoutShards []int

	// Progress is called after each shard or archive of a stage. It may be nil.
	Progress func(Progress)
}

// Progress says how far a stage of a move is.
type Progress struct {
	Stage string // read, archives, write, verify
	Done  int    // number of shards, or of archives in the stage archives
	Total int
}

// Moved says what was moved, or what would be moved by a dry run.
type Moved struct {
	Runs       map[string]int `json:"runs"`     // number of runs, by state
	Archived   int            `json:"archived"` // number of these runs that were in archives
	Orphans    int            `json:"orphans"`  // attempts that had not ended; they will count as lost
	Keys       int            `json:"keys"`
	Schedules  int            `json:"schedules"`
	Bytes      int64          `json:"bytes"` // size in the target
	FromShards int            `json:"from_shards"`
	ToShards   int            `json:"to_shards"`
	Unreadable []string       `json:"unreadable,omitempty"` // names of damaged archives that were skipped
	LeftOut    []LeftOut      `json:"left_out,omitempty"`   // lost shards of the source
	Stood      time.Duration  `json:"stood_ns"`             // downtime: how long no engine could use either log
}

// Move moves everything from one log to another. No process may use either log meanwhile.
//
// The target must be empty. Move reads the target back and compares it with the source, and only
// then marks the source as moved. No engine can open the target before that, and no engine can open
// the source after it. Nothing is deleted in the source. A move that was interrupted, at any point,
// must be repeated: it starts again, or completes the rest.
func Move(ctx context.Context, from, to journal.Log, opts Options) (_ Moved, err error) {
	began := time.Now()
	m := newMover(opts)
	defer func() { err = errors.Join(err, m.close()) }()
	if err = m.from.lease(ctx, from); err == nil {
		err = m.to.lease(ctx, to)
	}
	if err != nil {
		return Moved{}, fmt.Errorf("move: %w", err)
	}
	if err := m.run(ctx); err != nil {
		return Moved{}, fmt.Errorf("move: %w%s", err, m.advice)
	}
	m.moved.Stood = time.Since(began)
	return m.moved, nil
}

// Copy copies a cluster that is in use to a folder, and does not change the cluster. It leaves out
// the lost shards in without, and fails if one of them can be read or may become readable.
func Copy(ctx context.Context, from journal.Cluster, dir string, without []int) (copied Moved, err error) {
	if before, _ := os.ReadDir(dir); len(before) == 0 {
		defer func() {
			if err != nil { // remove an incomplete copy
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

// mover is a move in progress.
type mover struct {
	opts     Options
	from, to side
	ticket   mark   // mark that identifies the move in both logs
	known    bool   // the source has its id stored already
	arrived  bool   // an earlier attempt has filled the target and marked the source
	advice   string // added to an error: the state of the logs and what to do

	source  []*store.State     // states of the source's shards
	layout  *machine.Layout    // assigns runs to the shards of the target
	parts   []*machine.Machine // states of the target's shards
	seed    maphash.Seed
	want    account
	missing map[machine.Hash]bool // definitions that were not found in the target yet
	moved   Moved
}

// account has counts and checksums that must be the same for source and target.
type account struct {
	state machine.Tally
	runs  int    // number of runs in archives
	sum   uint64 // checksum of the runs in archives
}

func newMover(opts Options) *mover {
	opts.From, opts.To = cmp.Or(opts.From, "another log"), cmp.Or(opts.To, "another log")
	return &mover{
		opts: opts, from: side{what: "source", without: opts.WithoutShards}, to: side{what: "target"},
		seed: maphash.MakeSeed(), missing: map[machine.Hash]bool{}, moved: Moved{Runs: map[string]int{}},
	}
}

func (m *mover) close() error {
	for _, s := range m.source {
		s.Close()
	}
	return errors.Join(m.to.release(), m.from.release())
}

func (m *mover) run(ctx context.Context) error {
	if err := inOrder(ctx, m.checkBoth, m.read); err != nil {
		return err
	}
	switch {
	case m.opts.DryRun:
		return m.countArchives(ctx)
	case m.arrived:
		return inOrder(ctx, m.countArchives, m.seal)
	}
	return inOrder(ctx, m.prepare, m.write, m.verify, m.seal)
}

// inOrder calls the stages, one after the other, until one fails.
func inOrder(ctx context.Context, stages ...func(context.Context) error) error {
	for _, stage := range stages {
		if err := stage(ctx); err != nil {
			return err
		}
	}
	return nil
}

// copy copies a cluster that is in use. It stores nothing in the cluster.
func (m *mover) copy(ctx context.Context, from journal.Cluster) error {
	if err := m.from.peek(ctx, from); err != nil {
		return err
	}
	m.ticket, m.known = newTicket(m.opts), true
	if err := inOrder(ctx, m.read, m.prepare, m.write, m.verify); err != nil {
		return err
	}
	return m.to.leases[0].Delete(ctx, movingBlob)
}

func (m *mover) reportProgress(stage string, done, total int) {
	if m.opts.Progress != nil {
		m.opts.Progress(Progress{stage, done, total})
	}
}
