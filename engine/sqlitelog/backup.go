package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tideover/tideover/engine/internal/disk"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// backupPages is how many pages are copied between two checks of the context.
const backupPages = 256

// Backup implements [journal.Backuper]. The folder must be empty or not exist. Appends continue
// during the backup. Changes of blobs wait until the blobs have been copied. On the same file system
// blobs are hard-linked and not copied, because their content never changes.
func (l *lease) Backup(ctx context.Context, dir string) error {
	return disk.Wrapf(l.backup(ctx, dir), "back up %s to %s", l.dir, dir)
}

func (l *lease) backup(ctx context.Context, dir string) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := l.lockChannel(ctx, l.copying); err != nil {
		return err
	}
	defer func() { <-l.copying }()
	made, err := makeTarget(dir)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			clearTarget(dir, made)
		}
	}()
	// Open a separate connection: those of the readers are for short reads.
	conn, err := connectReader(l.path)
	if err != nil {
		return describe(l.path, err)
	}
	err = l.copyAll(ctx, conn, dir)
	if err = errors.Join(err, conn.Close()); err != nil {
		return describe(filepath.Join(dir, "log.db"), err)
	}
	return errors.Join(disk.SyncDir(filepath.Join(dir, "blobs")), disk.SyncDir(dir), disk.SyncDir(filepath.Dir(dir)))
}

func makeTarget(dir string) (made bool, err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		made = true
	case err != nil:
		return false, err
	case len(entries) > 0:
		return false, fmt.Errorf("the folder is not empty: it has %q", entries[0].Name())
	}
	return made, os.MkdirAll(filepath.Join(dir, "blobs"), 0o700)
}

// clearTarget removes an incomplete copy. made says whether the backup created the folder.
func clearTarget(dir string, made bool) {
	for _, name := range []string{"log.db", "log.db.tmp", "log.db.tmp-journal", "blobs"} {
		os.RemoveAll(filepath.Join(dir, name)) //nolint:errcheck // the error of the backup is the one to report
	}
	if made {
		os.Remove(dir) //nolint:errcheck // as above
	}
}

// copyAll copies the blobs, and the database as it was at that moment. It renames the database to
// log.db at the end: an incomplete copy can't be opened.
func (l *lease) copyAll(ctx context.Context, conn *sqlite.Conn, dir string) error {
	if err := l.lockChannel(ctx, l.changing); err != nil {
		return err
	}
	err := l.gather(ctx, conn, filepath.Join(dir, "blobs"))
	<-l.changing
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "log.db.tmp")
	if err := l.copyPages(ctx, conn, tmp); err != nil {
		return err
	}
	if err := sqlitex.ExecuteTransient(conn, "COMMIT", nil); err != nil {
		return err
	}
	if err := syncFile(tmp); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, "log.db"))
}

// gather begins a read transaction and copies the blobs. The caller keeps blobs from changing, so no
// blob is newer than the entries that the transaction sees.
func (l *lease) gather(ctx context.Context, conn *sqlite.Conn, to string) error {
	if err := sqlitex.ExecuteTransient(conn, "BEGIN", nil); err != nil {
		return err
	}
	if _, err := number(conn, "SELECT epoch FROM meta"); err != nil {
		return err
	}
	blobs, err := l.Blobs(ctx)
	if err != nil {
		return err
	}
	for _, b := range blobs {
		from := filepath.Join(l.dir, "blobs", b.Name)
		if os.Link(from, filepath.Join(to, b.Name)) == nil {
			continue
		}
		if err := copyFile(ctx, from, filepath.Join(to, b.Name)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(ctx context.Context, from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(disk.ContextWriter(ctx, out), in)
	return errors.Join(err, out.Sync(), out.Close())
}

// copyPages copies the database, as the transaction of conn sees it, to a file.
func (l *lease) copyPages(ctx context.Context, conn *sqlite.Conn, path string) (err error) {
	if err := os.WriteFile(path, nil, 0o600); err != nil { // readable only for the owner
		return err
	}
	// No syncs are needed: the complete copy is synced at the end, and an incomplete one is
	// removed.
	to, err := connect(path, sqlite.OpenReadWrite, "synchronous = OFF", "journal_mode = OFF")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	b, err := sqlite.NewBackup(to, "main", conn, "main")
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	for more := true; more; {
		if err := l.usable(ctx); err != nil {
			return err
		}
		if more, err = b.Step(backupPages); err != nil {
			return err
		}
	}
	return nil
}
