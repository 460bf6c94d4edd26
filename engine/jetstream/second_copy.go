package jetstream

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/engine/journal"
)

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
