package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/sqlitelog"
)

// Backup copies everything to a folder, while the engine goes on. The copy is
// opened like an engine's own folder. It has everything that was acknowledged
// before the call, and attempts that were running then are lost in it. Of a
// cluster the copy is one folder too, from which [Move] makes a cluster again.
func (e *Engine) Backup(ctx context.Context, dir string) error {
	_, err := e.BackupWithout(ctx, dir, nil)
	return err
}

// BackupWithout is Backup of a cluster that has lost shards: what is in them is left
// out. One that can be read, or may be later, is an error. Of a cluster it returns
// what was copied.
func (e *Engine) BackupWithout(ctx context.Context, dir string, shards []int) (copied Moved, err error) {
	if e.cluster != nil {
		copied, err = backup(ctx, e.cluster.log, dir, shards)
	} else if len(shards) > 0 {
		err = fmt.Errorf("shard %d %w: this is no cluster", shards[0], ErrNotLost)
	} else if b, ok := e.alone.lease.(journal.Backuper); ok {
		err = b.Backup(ctx, dir)
	} else {
		err = errors.New("this log can't be copied")
	}
	if err != nil {
		return Moved{}, fmt.Errorf("backup: %w", err)
	}
	return copied, nil
}

// backup copies a cluster to a folder. It is a move that leaves the source as it is.
func backup(ctx context.Context, from journal.Cluster, dir string, without []int) (copied Moved, err error) {
	if before, _ := os.ReadDir(dir); len(before) == 0 {
		defer func() {
			if err != nil { // half a copy must not be taken for one
				err = errors.Join(err, empty(dir))
			}
		}()
	}
	to, err := sqlitelog.Open(ctx, sqlitelog.Config{Dir: dir})
	if err != nil {
		return copied, err
	}
	m := newMover(MoveOptions{From: "a cluster, as a copy", To: dir, WithoutShards: without})
	defer func() { err = errors.Join(err, m.close(), to.Close()) }()
	if err := m.to.lease(ctx, to); err != nil {
		return copied, err
	}
	if err := m.to.refuse(ctx); err != nil {
		return copied, err
	}
	if err := m.empty(ctx, 0); err != nil {
		return copied, err
	}
	err = m.copy(ctx, from)
	return m.moved, err
}

// copy copies a cluster that goes on, which is not told.
func (m *mover) copy(ctx context.Context, from journal.Cluster) error {
	if err := m.from.peek(ctx, from); err != nil {
		return err
	}
	m.moved.FromShards, m.moved.ToShards, m.moved.LeftOut = m.from.shards, m.to.shards, m.from.lost
	m.ticket, m.known = newTicket(m.opts), true
	for _, step := range []func(context.Context) error{m.read, m.prepare, m.store, m.verify} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return m.to.leases[0].Delete(ctx, movingBlob)
}

// empty removes what is in a folder.
func empty(dir string) error {
	list, err := os.ReadDir(dir)
	for _, f := range list {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, f.Name())))
	}
	return err
}

// refuse fails if a log has taken part in a move.
func (s *side) refuse(ctx context.Context) error {
	for i, l := range s.leases {
		if err := movedTo(ctx, l); err != nil {
			return s.wrap(i, err)
		}
	}
	return nil
}
