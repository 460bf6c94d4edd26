package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/tideover/tideover/engine/internal/sqlitefile"
	"github.com/tideover/tideover/engine/journal"
)

// The table blobs has the blobs of the log. A blob is registered after its file is on disk, and removed
// from the table before its file is deleted. So each registered blob has a file, unless it was lost, and
// a file that is not registered is not needed.

// blobRecord is a row of the table blobs.
type blobRecord struct {
	size   int64
	sum    uint32
	summed bool // false if an earlier version has written the blob
}

// record returns the record of a blob.
func (b *leaseBlobs) record(name string) (r blobRecord, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok = b.known[name]
	return r, ok
}

// register adds a blob to the table. The caller holds the lock changing.
func (b *leaseBlobs) register(ctx context.Context, name string, r blobRecord) error {
	b.mu.Lock()
	b.known[name] = r // even if the write fails: it may have been stored
	b.mu.Unlock()
	return b.change(ctx, "INSERT OR REPLACE INTO blobs (name, size, sum) VALUES (?1, ?2, ?3)", name, r.size, int64(r.sum))
}

// unregister removes a blob from the table, if it is there. The caller holds the lock changing.
func (b *leaseBlobs) unregister(ctx context.Context, name string) error {
	if _, ok := b.record(name); !ok {
		return nil
	}
	if err := b.change(ctx, "DELETE FROM blobs WHERE name = ?1", name); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.known, name)
	return nil
}

// change executes a statement and syncs.
func (b *leaseBlobs) change(ctx context.Context, statement string, args ...any) error {
	if err := b.lease.lockChannel(ctx, b.lease.writer.turn); err != nil {
		return err
	}
	defer func() { <-b.lease.writer.turn }()
	return describe(b.lease.path, b.lease.writer.change(Full, func(conn *sqlite.Conn) error {
		return sqlitex.Execute(conn, statement, &sqlitex.ExecOptions{Args: args})
	}))
}

// readBlobs reads the table. If an earlier version has owned the folder, which did not know the table,
// it registers the blobs as they are.
func (b *leaseBlobs) readBlobs(conn *sqlite.Conn, adopt bool) error {
	b.known = map[string]blobRecord{}
	err := sqlitex.Execute(conn, "SELECT name, size, sum FROM blobs", &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		b.known[s.ColumnText(0)] = blobRecord{s.ColumnInt64(1), uint32(s.ColumnInt64(2)), !s.ColumnIsNull(2)}
		return nil
	}})
	if err != nil || !adopt {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(b.lease.dir, "blobs"))
	if err != nil {
		return err
	}
	before := b.known
	b.known = map[string]blobRecord{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		r, ok := before[e.Name()]
		if strings.HasPrefix(e.Name(), ".") || ok && r.size == info.Size() {
			if ok {
				b.known[e.Name()] = r
			}
			continue
		}
		b.known[e.Name()] = blobRecord{size: info.Size()}
		err = sqlitex.Execute(conn, "INSERT OR REPLACE INTO blobs (name, size, sum) VALUES (?1, ?2, NULL)",
			&sqlitex.ExecOptions{Args: []any{e.Name(), info.Size()}})
		if err != nil {
			return err
		}
	}
	for name := range before {
		if _, ok := b.known[name]; ok {
			continue
		}
		if err := sqlitex.Execute(conn, "DELETE FROM blobs WHERE name = ?1", &sqlitex.ExecOptions{Args: []any{name}}); err != nil {
			return err
		}
	}
	return nil
}

// readRecords reads the table blobs without SQLite. root is 0 if there is no such table.
func readRecords(f *sqlitefile.File, root uint32) (map[string]blobRecord, error) {
	records := map[string]blobRecord{}
	if root == 0 {
		return records, nil
	}
	err := f.Rows(root, 0, func(_ int64, row []sqlitefile.Value) error {
		if len(row) >= 3 {
			records[string(row[0].Bytes)] = blobRecord{row[1].Int, uint32(row[2].Int), row[2].Bytes == nil && !row[2].Null}
		}
		return nil
	})
	return records, err
}

// verify returns an error if the file is not what was stored.
func (r blobRecord) verify(path string) error {
	f, err := r.open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, f)
	return errors.Join(err, f.Close())
}

// open opens the file of the blob.
func (r blobRecord) open(path string) (*blobFile, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: it is missing: %w", journal.ErrDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() != r.size {
		err = fmt.Errorf("%w: %s has %d bytes, and had %d", journal.ErrDamaged, path, info.Size(), r.size)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &blobFile{file: f, record: r, sum: crc32.New(castagnoli)}, nil
}

// blobFile is an open blob. When it is read to its end, it checks the checksum.
type blobFile struct {
	file   *os.File
	record blobRecord
	sum    hash.Hash32
}

// Read implements [io.Reader].
func (f *blobFile) Read(p []byte) (int, error) {
	n, err := f.file.Read(p)
	_, _ = f.sum.Write(p[:n]) // it never fails
	if errors.Is(err, io.EOF) && f.record.summed && f.sum.Sum32() != f.record.sum {
		err = fmt.Errorf("%w: %s is not what was stored: its checksum is wrong", journal.ErrDamaged, f.file.Name())
	}
	return n, err
}

// ReadAt implements [io.ReaderAt].
func (f *blobFile) ReadAt(p []byte, at int64) (int, error) { return f.file.ReadAt(p, at) }

// Close implements [io.Closer].
func (f *blobFile) Close() error { return f.file.Close() }
