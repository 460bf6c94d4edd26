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
func (e *Engine) Backup(ctx context.Context, dir string) (err error) {
	if e.cluster != nil {
		err = backup(ctx, e.cluster.log, dir)
	} else if b, ok := e.alone.lease.(journal.Backuper); ok {
		err = b.Backup(ctx, dir)
	} else {
		err = errors.New("this log can't be copied")
	}
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// backup copies a cluster to a folder. It is a move that leaves the source as it is.
func backup(ctx context.Context, from journal.Cluster, dir string) (err error) {
	if before, _ := os.ReadDir(dir); len(before) == 0 {
		defer func() {
			if err != nil { // half a copy must not be taken for one
				err = errors.Join(err, empty(dir))
			}
		}()
	}
	to, err := sqlitelog.Open(ctx, sqlitelog.Config{Dir: dir})
	if err != nil {
		return err
	}
	m := newMover(MoveOptions{From: "a cluster, as a copy", To: dir})
	defer func() { err = errors.Join(err, m.close(), to.Close()) }()
	if err := m.to.lease(ctx, to); err != nil {
		return err
	}
	if err := m.to.refuse(ctx); err != nil {
		return err
	}
	if err := m.empty(ctx, 0); err != nil {
		return err
	}
	if err := m.from.peek(ctx, from); err != nil {
		return err
	}
	m.ticket, m.known = newTicket(m.opts), true // the source is not told
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
