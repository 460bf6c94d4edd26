package sqlitelog

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/internal/sqlitefile"
	"github.com/tideover/tideover/engine/journal"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// blobPath returns the path of a blob's file, or an error if the name is not allowed.
func blobPath(dir, name string) (string, error) {
	return filepath.Join(dir, "blobs", name), disk.CheckBlobName(name)
}

// leaseBlobs has the methods of a lease for blobs.
type leaseBlobs struct {
	lease *lease

	mu    sync.Mutex
	known map[string]blobRecord // the table blobs, by name; each has its file
}

// Put implements [journal.Lease].
func (b *leaseBlobs) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	path, err := blobPath(b.lease.dir, name)
	if err == nil {
		err = b.put(ctx, path, write)
	}
	return disk.Wrapf(err, "put blob %q", name)
}

func (b *leaseBlobs) put(ctx context.Context, path string, write func(io.Writer) error) error {
	if err := b.lease.usable(ctx); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, disk.TempPrefix) // with mode 0600
	if err != nil {
		return describe(dir, err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // after success it is renamed already; otherwise sweepBlobs removes it later
	defer f.Close()
	sum := crc32.New(castagnoli)
	w := bufio.NewWriterSize(io.MultiWriter(disk.ContextWriter(ctx, f), sum), 64<<10)
	if err := errors.Join(write(w), w.Flush()); err != nil {
		return describe(path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return describe(path, err)
	}
	record := blobRecord{size: info.Size(), sum: sum.Sum32(), summed: true}
	// Sync even without full durability: the name may reach the disk before the content.
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return describe(path, err)
	}
	return b.changeBlobs(ctx, func() error {
		name := filepath.Base(path)
		if err := b.unregister(ctx, name); err != nil {
			return err
		}
		if err := os.Rename(f.Name(), path); err != nil {
			return describe(path, err)
		}
		if err := disk.SyncDir(dir); err != nil {
			return describe(path, err)
		}
		return b.register(ctx, name, record)
	})
}

// changeBlobs calls change while no backup copies blobs, after checking that the lease is still
// valid.
func (b *leaseBlobs) changeBlobs(ctx context.Context, change func() error) error {
	if err := b.lease.lockChannel(ctx, b.lease.changing); err != nil {
		return err
	}
	defer func() { <-b.lease.changing }()
	if err := b.lease.confirm(ctx); err != nil {
		return err
	}
	if b.lease.durability != Full {
		// Sync the entries first: after a power failure there must be no snapshot without the
		// entries that it was made from.
		if err := b.change(ctx, "UPDATE meta SET epoch = epoch"); err != nil {
			return err
		}
	}
	return change()
}

// Get implements [journal.Lease]. While a record is known, the file is that of the record: the lock keeps
// it so until the file is open.
func (b *leaseBlobs) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	unusable := b.lease.usable(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	record, ok := b.known[name]
	return openBlob(b.lease.dir, name, record, ok, unusable)
}

// openBlob opens the blob with a record; ok is false if there is none. If unusable is not nil, the blob
// can't be opened.
func openBlob(dir, name string, record blobRecord, ok bool, unusable error) (io.ReadCloser, error) {
	path, err := blobPath(dir, name)
	if err = cmp.Or(err, unusable); err == nil && !ok {
		err = journal.ErrNoBlob
	}
	var f *blobFile
	if err == nil {
		f, err = record.open(path)
	}
	if err != nil {
		return nil, fmt.Errorf("get blob %q: %w", name, err)
	}
	return f, nil
}

// Blobs implements [journal.Lease]. Files that are not registered are no blobs of this log: they belong
// to another one, or their process was killed before it could register them.
func (b *leaseBlobs) Blobs(ctx context.Context) ([]journal.Blob, error) {
	if err := b.lease.usable(ctx); err != nil {
		return nil, fmt.Errorf("list blobs of %s: %w", b.lease.dir, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var blobs []journal.Blob
	for _, name := range slices.Sorted(maps.Keys(b.known)) {
		blob := journal.Blob{Name: name, Size: b.known[name].size}
		info, err := os.Stat(filepath.Join(b.lease.dir, "blobs", name))
		if err == nil {
			blob.Time = info.ModTime()
		} else if !errors.Is(err, fs.ErrNotExist) { // Get reports that it is missing
			return nil, fmt.Errorf("list blobs: %w", err)
		}
		blobs = append(blobs, blob)
	}
	return blobs, nil
}

// Delete implements [journal.Lease].
func (b *leaseBlobs) Delete(ctx context.Context, name string) error {
	path, err := blobPath(b.lease.dir, name)
	if err == nil {
		err = b.changeBlobs(ctx, func() error {
			if err := b.unregister(ctx, name); err != nil {
				return err
			}
			if err := disk.Remove(path); err != nil {
				return err
			}
			return disk.SyncDir(filepath.Dir(path))
		})
	}
	return disk.Wrapf(err, "delete blob %q", name)
}

// sweepBlobs removes files that were being written when a process ended.
func sweepBlobs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), disk.TempPrefix) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// The table blobs has the blobs of the log. A blob is registered after its file is on disk, and removed
// from the table before its file is deleted. So each registered blob has a file, unless it was lost, and
// a file that is not registered is not needed.

// blobRecord is a row of the table blobs.
type blobRecord struct {
	size   int64
	sum    uint32
	summed bool // false if an earlier version has written the blob
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
	b.mu.Lock()
	_, ok := b.known[name]
	b.mu.Unlock()
	if !ok {
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
	before := b.known
	if b.known, err = adoptBlobs(b.lease.dir, before); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(b.known)) {
		if b.known[name] == before[name] {
			continue
		}
		err := sqlitex.Execute(conn, "INSERT OR REPLACE INTO blobs (name, size, sum) VALUES (?1, ?2, NULL)",
			&sqlitex.ExecOptions{Args: []any{name, b.known[name].size}})
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

// adoptBlobs returns the records of the blobs in a folder that an earlier version has owned, which did not
// know the table blobs. known are the records in the table.
func adoptBlobs(dir string, known map[string]blobRecord) (map[string]blobRecord, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "blobs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	adopted := map[string]blobRecord{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		r, ok := known[e.Name()]
		if !ok || r.size != info.Size() {
			r = blobRecord{size: info.Size()}
		}
		if !strings.HasPrefix(e.Name(), ".") {
			adopted[e.Name()] = r
		}
	}
	return adopted, nil
}

// readRecords reads the table blobs without SQLite. A name that no blob can have is damage.
func readRecords(f *sqlitefile.File) (map[string]blobRecord, error) {
	records := map[string]blobRecord{}
	err := f.Rows("blobs", 0, func(_ int64, row []sqlitefile.Value) error {
		if len(row) < 3 {
			return nil
		}
		name := string(row[0].Bytes)
		if err := disk.CheckBlobName(name); err != nil {
			return fmt.Errorf("%w: the blob %q: %w", sqlitefile.ErrDamaged, name, err)
		}
		records[name] = blobRecord{row[1].Int, uint32(row[2].Int), row[2].Bytes == nil && !row[2].Null}
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
