package jetstream

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/internal/disk"
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
