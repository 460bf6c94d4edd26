// Package faultdisk simulates, for tests, a disk that fails and a machine that loses
// power.
//
// [New] puts a simulated disk under the SQLite databases of a folder. Written data is
// in the page cache until it is synced, and then on the disk. A sync that fails
// behaves as on Linux: some of the written data is on the disk, the rest is not, and no
// later sync writes it; each open file reports the error once. [Disk.Cut] cuts the
// power: the disk has all synced data, and any part of the rest.
package faultdisk

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// sector is the unit that a disk writes whole or not at all.
const sector = 512

// Config says which faults the disk has.
type Config struct {
	Seed uint64

	// FailSync reports whether a sync of the file fails. Nil means that none does.
	FailSync func(name string) bool

	// Delay is how long each sync takes.
	Delay time.Duration

	// Drop makes a failed sync remove the data that it did not write from the page
	// cache. Otherwise that data can be read as before, until the power is cut.
	Drop bool
}

// Disk simulates the disk under the databases of one folder.
type Disk struct {
	dir string
	cfg Config

	mu     sync.Mutex
	random *rand.Rand
	files  map[string]*file // by path
	failed int
	off    bool // the power is cut
}

// file is a file of the disk. Its page cache is the real file.
type file struct {
	durable []byte // the contents on the disk
	onDisk  bool   // the file exists on the disk
	removed bool   // the file was deleted in the page cache
	writes  []write
	failure int // number of failed syncs; each handle reports each of them once
}

// write is a change that was not synced yet.
type write struct {
	offset   int64
	data     []byte
	truncate bool // the file is truncated to offset
}

var (
	errIO = errors.New("input/output error (simulated)")
	errNo = errors.New("no power (simulated)")
)

// New puts a simulated disk under the databases of the folder. Files that exist are on
// the disk. Close it when the databases are closed.
func New(dir string, cfg Config) (*Disk, error) {
	install()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	d := &Disk{dir: dir, cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 1)), files: map[string]*file{}}
	if err := d.load(); err != nil {
		return nil, err
	}
	disks.Lock()
	defer disks.Unlock()
	if disks.byDir[dir] != nil {
		return nil, errors.New("the folder has a simulated disk already")
	}
	disks.byDir[dir] = d
	return d, nil
}

// load reads the files that are on the disk.
func (d *Disk) load() error {
	paths, err := filepath.Glob(filepath.Join(d.dir, "*.db*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if isSharedMemory(path) {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		d.files[path] = &file{durable: data, onDisk: true}
	}
	return nil
}

// Close removes the simulated disk from the folder. After a power cut it also drops the
// files of the disk, which a database may still have open, because it could not be
// closed.
func (d *Disk) Close() {
	disks.Lock()
	defer disks.Unlock()
	delete(disks.byDir, d.dir)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		d.files = nil
	}
}

// Failed returns how many syncs have failed.
func (d *Disk) Failed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// disks are the simulated disks of the process.
var disks = struct {
	sync.Mutex
	byDir map[string]*Disk
}{byDir: map[string]*Disk{}}

// isSharedMemory reports whether SQLite uses the file only as shared memory.
func isSharedMemory(path string) bool { return strings.HasSuffix(path, "-shm") }

// diskOf returns the simulated disk that the file is on, or nil.
func diskOf(path string) *Disk {
	if isSharedMemory(path) {
		return nil
	}
	disks.Lock()
	defer disks.Unlock()
	return disks.byDir[filepath.Dir(path)]
}

// handle is an open file.
type handle struct {
	disk     *Disk
	path     string
	reported int // failures of the file that this handle has reported
}

// open returns a handle for a file that the operating system has opened. created says
// whether the file is new.
func (d *Disk) open(path string, created bool) (*handle, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return nil, errNo
	}
	f := d.files[path]
	switch {
	case f == nil && created:
		f = &file{}
	case f == nil: // the file got its name by a rename, and counts as synced
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f = &file{durable: data, onDisk: true}
	case f.removed:
		// On a real disk the deleted file may still exist; this simulation drops it.
		*f = file{}
	}
	d.files[path] = f
	return &handle{d, path, f.failure}, nil
}

// wrote records a change of the page cache that is not synced yet.
func (h *handle) wrote(w write) {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if f := h.disk.files[h.path]; f != nil { // nil if the disk was closed after a power cut
		f.writes = append(f.writes, w)
	}
}

func (d *Disk) powerless() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.off
}

// sync writes the page cache of a file to the disk, or fails.
func (h *handle) sync() error {
	if h.disk.cfg.Delay > 0 {
		time.Sleep(h.disk.cfg.Delay)
	}
	d := h.disk
	fails := d.cfg.FailSync != nil && d.cfg.FailSync(filepath.Base(h.path))
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return errNo
	}
	f := d.files[h.path]
	if h.reported < f.failure {
		h.reported = f.failure
		return errIO
	}
	if fails {
		d.failed++
		f.failure++
		h.reported = f.failure
		return errors.Join(errIO, d.failWrites(h.path, f))
	}
	for _, w := range f.writes {
		f.durable = w.apply(f.durable)
	}
	f.writes, f.onDisk = nil, true
	return nil
}

// failWrites writes some parts of the changes to the disk, and drops the rest.
func (d *Disk) failWrites(path string, f *file) error {
	for _, w := range f.writes {
		f.durable = d.part(w, f.durable)
	}
	writes := f.writes
	f.writes = nil
	if !d.cfg.Drop {
		return nil
	}
	cache, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer cache.Close()
	for _, w := range writes {
		end := min(w.offset+int64(len(w.data)), int64(len(f.durable)))
		lost := make([]byte, len(w.data)) // data beyond the end of the file on the disk reads as zero
		if w.offset < end {
			copy(lost, f.durable[w.offset:end])
		}
		if _, err := cache.WriteAt(lost, w.offset); err != nil {
			return err
		}
	}
	return nil
}

// apply returns the contents with the change.
func (w write) apply(contents []byte) []byte {
	end := w.offset + int64(len(w.data))
	if n := end - int64(len(contents)); n > 0 {
		contents = append(contents, make([]byte, n)...)
	}
	if w.truncate {
		return contents[:w.offset]
	}
	copy(contents[w.offset:], w.data)
	return contents
}

// part returns the contents with all, nothing or some sectors of the change.
func (d *Disk) part(w write, contents []byte) []byte {
	switch d.random.IntN(3) {
	case 0:
		return contents
	case 1:
		return w.apply(contents)
	}
	for len(w.data) > 0 {
		n := min(sector-w.offset%sector, int64(len(w.data)))
		if d.random.IntN(2) == 0 {
			contents = write{offset: w.offset, data: w.data[:n]}.apply(contents)
		}
		w.offset, w.data = w.offset+n, w.data[n:]
	}
	return contents
}

// Cut cuts the power. Nothing reaches the disk any more, and all calls fail. It returns
// the contents of the disk by file name: all synced data, and a random part of the other
// changes.
func (d *Disk) Cut() map[string][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	contents := map[string][]byte{}
	for path, f := range d.files {
		if !f.onDisk && d.random.IntN(2) == 0 || f.removed && d.random.IntN(2) == 0 {
			continue
		}
		data := append([]byte(nil), f.durable...)
		for _, w := range f.writes {
			data = d.part(w, data)
		}
		contents[filepath.Base(path)] = data
	}
	return contents
}

// Write writes the contents that Cut returned into a folder.
func Write(dir string, contents map[string][]byte) error {
	for name, data := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
