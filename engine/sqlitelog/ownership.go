package sqlitelog

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/tideover/tideover/engine/journal"
)

// takeOwnership increments the epoch, records a loss, and reads the bounds and the losses. With any
// durability, the new epoch is on disk before it is used: so no two owners ever have the same epoch.
//
// The log gets a new identity if it has none, if it has lost entries, or if it is a copy: two logs that
// can differ never have the same one.
func (l *lease) takeOwnership(conn *sqlite.Conn, found *state) (err error) {
	if err := pragma(conn, synchronous(Full)); err != nil {
		return err
	}
	if l.identity = found.identity; l.identity == 0 || found.loss != nil || found.copied {
		// log.last names the old identity. If this process ends before it writes the new one, the
		// log must not count as another one.
		if err := removeWitness(l.dir); err != nil {
			return err
		}
		l.identity = newIdentity()
	}
	if err := l.recordOwner(conn, found); err != nil {
		return err
	}
	if err := l.readBounds(conn); err != nil {
		return err
	}
	if last := l.last.Load(); found.tables && last != found.last {
		return damaged(l.path, fmt.Errorf("it ends at entry %d when it is open, and at entry %d when it is read", last, found.last))
	}
	if err := l.readLosses(conn); err != nil {
		return err
	}
	return pragma(conn, synchronous(l.durability))
}

func newIdentity() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:])                         // it never fails
	return binary.LittleEndian.Uint64(b[:])>>1 | 1 // SQLite has signed numbers; 0 means none
}

func (l *lease) recordOwner(conn *sqlite.Conn, found *state) (err error) {
	end, err := sqlitex.ImmediateTransaction(conn)
	if err != nil {
		return err
	}
	defer end(&err)
	if err := sqlitex.ExecuteScript(conn, additions, nil); err != nil {
		return err
	}
	epoch, err := number(conn, "UPDATE meta SET epoch = epoch + 1 RETURNING epoch")
	if err != nil {
		return err
	}
	if epoch == 0 {
		return damaged(l.path, errors.New("the table meta is empty"))
	}
	l.epoch = uint64(epoch)
	if err := l.readBlobs(conn, found.tables && found.owned != found.epoch); err != nil {
		return err
	}
	err = sqlitex.Execute(conn, "INSERT OR REPLACE INTO folder VALUES (1, ?1, ?2)",
		&sqlitex.ExecOptions{Args: []any{int64(l.identity), epoch}})
	if err != nil || found.loss == nil {
		return err
	}
	why := journal.WhyAccepted
	if found.expected {
		why = "the machine was restarted, and the durability was os"
	}
	loss, until := found.loss, int64(0)
	if !loss.Until.IsZero() {
		until = loss.Until.UnixNano()
	}
	return sqlitex.Execute(conn, "INSERT INTO losses VALUES (?1, ?2, ?3, ?4, ?5, ?6)", &sqlitex.ExecOptions{
		Args: []any{time.Now().UnixNano(), int64(loss.From), int64(loss.To), loss.Shown, until, why},
	})
}

func (l *lease) readLosses(conn *sqlite.Conn) error {
	l.losses = nil
	return sqlitex.Execute(conn, "SELECT at, first, last, shown, until, why FROM losses ORDER BY at", &sqlitex.ExecOptions{
		ResultFunc: func(s *sqlite.Stmt) error {
			loss := journal.Loss{
				Log: l.path, At: time.Unix(0, s.ColumnInt64(0)), From: uint64(s.ColumnInt64(1)), To: uint64(s.ColumnInt64(2)),
				Shown: s.ColumnText(3), Why: s.ColumnText(5),
			}
			if until := s.ColumnInt64(4); until != 0 {
				loss.Until = time.Unix(0, until)
			}
			l.losses = append(l.losses, loss)
			return nil
		},
	})
}
