package jetstream

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
)

// cache is a folder with local copies of blobs: the engine reads a blob at random
// offsets, but NATS can only send it from the start. The name of a copy has the shard
// and the digest of the contents. Several processes may use one folder.
type cache struct {
	dir       string
	temporary bool

	checked sync.Map // names of files whose contents match the digest in the name
}

func openCache(dir string) (*cache, error) {
	c := &cache{dir: dir, temporary: dir == ""}
	var err error
	if c.temporary {
		c.dir, err = os.MkdirTemp("", "tideover-blobs-")
	} else {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	return c, removeOld(c.dir)
}

// removeOld removes unfinished files of processes that have ended long ago.
func removeOld(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), disk.TempPrefix) && time.Since(info.ModTime()) > 24*time.Hour {
			_ = os.Remove(filepath.Join(dir, e.Name())) // the next process tries again
		}
	}
	return nil
}

func (c *cache) close() error {
	if !c.temporary {
		return nil
	}
	return os.RemoveAll(c.dir)
}

// name returns the file name of a copy. It has the digest in hexadecimal: the form that
// NATS uses depends on upper and lower case, which not every file system distinguishes.
func (c *cache) name(shard int, digest string) string {
	sum, err := base64.URLEncoding.DecodeString(strings.TrimPrefix(digest, "SHA-256="))
	if err != nil {
		sum = []byte(digest)
	}
	return fmt.Sprintf("%d-%s", shard, hex.EncodeToString(sum))
}

// open returns the copy of a blob, or an error if there is none or it is damaged. It
// removes a damaged copy.
func (c *cache) open(shard int, digest string) (*os.File, error) {
	name := c.name(shard, digest)
	f, err := os.Open(filepath.Join(c.dir, name))
	if err != nil {
		return nil, err
	}
	if _, checked := c.checked.Load(name); checked {
		return f, nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil || natsjs.GetObjectDigestValue(sum) != digest {
		return nil, errors.Join(err, errors.New("the copy is damaged"), f.Close(), os.Remove(f.Name()))
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	c.checked.Store(name, true)
	return f, nil
}

// drop removes a copy. A reader that has it open can continue to read it.
func (c *cache) drop(shard int, digest string) {
	name := c.name(shard, digest)
	c.checked.Delete(name)
	_ = os.Remove(filepath.Join(c.dir, name)) // a file that can't be removed does no harm
}

// keepOnly removes the copies of a shard whose blobs are gone.
func (c *cache) keepOnly(shard int, infos []*natsjs.ObjectInfo) {
	keep := map[string]bool{}
	for _, info := range infos {
		keep[c.name(shard, info.Digest)] = true
	}
	paths, err := filepath.Glob(filepath.Join(c.dir, fmt.Sprintf("%d-*", shard)))
	if err != nil {
		return // can't happen: the pattern is valid
	}
	for _, path := range paths {
		if !keep[filepath.Base(path)] {
			_ = os.Remove(path)
		}
	}
}

// localFile is a file in the cache that is being written. keep makes it the local copy of
// a blob.
type localFile struct {
	*os.File
	cache  *cache
	buffer *bufio.Writer
	sum    hash.Hash
	size   int64
	digest string // set by whole
}

func (c *cache) create() (*localFile, error) {
	f, err := os.CreateTemp(c.dir, disk.TempPrefix) // with mode 0600
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	return &localFile{File: f, cache: c, buffer: bufio.NewWriterSize(f, 64<<10), sum: sha256.New()}, nil
}

// Write implements [io.Writer].
func (f *localFile) Write(p []byte) (int, error) {
	n, err := f.buffer.Write(p)
	_, _ = f.sum.Write(p[:n]) // never fails
	f.size += int64(n)
	return n, err
}

// whole is called after the last Write: it flushes the buffer, computes the digest, and
// seeks to the start of the file.
func (f *localFile) whole() error {
	if err := f.buffer.Flush(); err != nil {
		return err
	}
	f.digest = natsjs.GetObjectDigestValue(f.sum)
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// keep renames the complete file to the name of a blob's copy.
func (f *localFile) keep(shard int) error {
	name := f.cache.name(shard, f.digest)
	if err := os.Rename(f.Name(), filepath.Join(f.cache.dir, name)); err != nil {
		return err
	}
	f.cache.checked.Store(name, true)
	return nil
}

// abandon removes the file, unless keep has renamed it.
func (f *localFile) abandon() {
	f.Close()
	_ = os.Remove(f.Name()) // if it fails, removeOld removes the file later
}

// secondCopy stores second copies of blobs as files in Config.SecondPlace, a folder
// outside of NATS. A file starts with a line that has the size and the checksum of the
// rest.
type secondCopy struct {
	dir string

	failed atomic.Pointer[error] // result of the last copy, a nil error if it succeeded; nil before the first copy
}

const secondMagic = "tideover-blob-1"

func openSecondCopy(cfg Config) (*secondCopy, error) {
	if cfg.SecondPlace == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	dir, err := filepath.Abs(cfg.SecondPlace)
	if err != nil {
		return nil, fmt.Errorf("second place: %w", err)
	}
	if err := checkFolder(dir); err != nil {
		return nil, err
	}
	return &secondCopy{dir: filepath.Join(dir, cfg.Name)}, nil
}

// usable returns an error if this process has no permission to write to the folder. A
// full disk is no error: the copies on it can still be read, and it may have room later.
func (s *secondCopy) usable() error {
	if s == nil {
		return nil
	}
	if err := s.try(); errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("second place: it can't be written; make it writable for this process: %w", err)
	}
	return nil
}

// try writes, syncs and removes a file in the folder.
func (s *secondCopy) try() error { return disk.TryWrite(s.root()) }

// shards returns the shards that have copies in the folder.
func (s *secondCopy) shards() (list []int) {
	if s == nil {
		return nil
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil // copies that can't be listed can't be used
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if blobs, listErr := s.list(n); err == nil && listErr == nil && len(blobs) > 0 {
			list = append(list, n)
		}
	}
	return list
}

// root returns the folder of [Config].SecondPlace.
func (s *secondCopy) root() string { return filepath.Dir(s.dir) }

func (s *secondCopy) path(shard int, blob string) string {
	return filepath.Join(s.dir, strconv.Itoa(shard), blob)
}

// write stores a copy of the file under a temporary name.
func (s *secondCopy) write(ctx context.Context, shard int, from *os.File) (tmp string, err error) {
	if _, err := os.Stat(s.root()); err != nil {
		return "", err // the disk may not be mounted, so the folder is not created
	}
	dir := filepath.Dir(s.path(shard, "x"))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := removeOld(dir); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, disk.TempPrefix)
	if err != nil {
		return "", err
	}
	defer f.Close()
	err = copyWithSum(disk.ContextWriter(ctx, f), from)
	return f.Name(), errors.Join(err, f.Sync())
}

// put makes the temporary file the copy of a blob.
func (s *secondCopy) put(shard int, blob, tmp string) error {
	path := s.path(shard, blob)
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return disk.SyncDir(filepath.Dir(path))
}

// copyWithSum writes the first line, with the size and the checksum, and the contents.
func copyWithSum(to io.Writer, from *os.File) error {
	sum := sha256.New()
	size, err := io.Copy(sum, io.NewSectionReader(from, 0, 1<<62))
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(to, "%s %d %s\n", secondMagic, size, hex.EncodeToString(sum.Sum(nil))); err != nil {
		return err
	}
	_, err = io.Copy(to, io.NewSectionReader(from, 0, size))
	return err
}

// get copies a blob to the writer, or fails with ErrNoBlob or ErrDamaged.
func (s *secondCopy) get(shard int, blob string, to io.Writer) error {
	path := s.path(shard, blob)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", journal.ErrNoBlob, path)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	size, want, err := secondHeader(r)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", journal.ErrDamaged, path, err)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, sum), r)
	if err != nil {
		return err
	}
	if n != size || hex.EncodeToString(sum.Sum(nil)) != want {
		return fmt.Errorf("%w: %s: its checksum is wrong", journal.ErrDamaged, path)
	}
	return nil
}

// secondHeader reads the first line of a file.
func secondHeader(r *bufio.Reader) (size int64, sum string, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, "", err
	}
	var magic string
	if _, err := fmt.Sscanf(line, "%s %d %s\n", &magic, &size, &sum); err != nil || magic != secondMagic {
		return 0, "", errors.New("it does not start like a blob of tideover")
	}
	return size, sum, nil
}

// list returns the blobs of a shard. Their contents are not checked.
func (s *secondCopy) list(shard int) (blobs []journal.Blob, err error) {
	entries, err := os.ReadDir(filepath.Dir(s.path(shard, "x")))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if b, _, err := s.stat(shard, e.Name()); err == nil {
			blobs = append(blobs, b)
		}
	}
	return blobs, nil
}

// stat describes a copy, with the digest of its contents as the object store writes it.
func (s *secondCopy) stat(shard int, blob string) (b journal.Blob, digest string, err error) {
	f, err := os.Open(s.path(shard, blob))
	if err != nil {
		return b, "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return b, "", err
	}
	size, sum, err := secondHeader(bufio.NewReader(f))
	raw, _ := hex.DecodeString(sum) // an invalid checksum gives the digest of no blob
	b = journal.Blob{Name: blob, Size: size, Time: info.ModTime()}
	return b, "SHA-256=" + base64.URLEncoding.EncodeToString(raw), err
}

// remove removes a copy. A missing one is not an error.
func (s *secondCopy) remove(shard int, blob string) error {
	return disk.Remove(s.path(shard, blob))
}
