package sqlitelog

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/internal/disk"
	"github.com/tideover/tideover/internal/boottime"
)

// The file log.last names the last acknowledged entry. It is written after each append, and the log is
// synced before it if the durability is full. So the log never ends before the entry that log.last
// names, unless it is damaged. log.last itself is synced only now and then: after a power failure it may
// name an earlier entry, or be damaged, which is no error.
const (
	witnessName  = "log.last"
	witnessMagic = "tidelast"
	witnessSize  = 64
	witnessEvery = time.Second // how long a change may be unsynced
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// acknowledged is the content of log.last.
type acknowledged struct {
	log   uint64 // identity of the log
	epoch uint64
	last  uint64   // last acknowledged entry
	lazy  bool     // the durability is OS: entries may not be on disk
	boot  [16]byte // hash of the id of the machine's boot; zero if it is not known
	until time.Time
}

func (a acknowledged) encode(b *[witnessSize]byte) {
	copy(b[:], witnessMagic)
	binary.LittleEndian.PutUint64(b[8:], a.log)
	binary.LittleEndian.PutUint64(b[16:], a.epoch)
	binary.LittleEndian.PutUint64(b[24:], a.last)
	if a.lazy {
		b[32] = 1
	}
	copy(b[40:], a.boot[:])
	binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
}

// readWitness reads log.last. ok is false if it is missing or damaged.
func readWitness(dir string) (a acknowledged, ok bool) {
	path := filepath.Join(dir, witnessName)
	b, err := os.ReadFile(path)
	if err != nil || len(b) != witnessSize || string(b[:8]) != witnessMagic ||
		binary.LittleEndian.Uint32(b[60:]) != crc32.Checksum(b[:60], castagnoli) {
		return a, false
	}
	a = acknowledged{
		log: binary.LittleEndian.Uint64(b[8:]), epoch: binary.LittleEndian.Uint64(b[16:]), last: binary.LittleEndian.Uint64(b[24:]),
		lazy: b[32] == 1, boot: [16]byte(b[40:]),
	}
	if info, err := os.Stat(path); err == nil {
		a.until = info.ModTime()
	}
	return a, true
}

// bootHash returns the hash of the id of the machine's boot; zero if it is not known.
func bootHash() (h [16]byte) {
	if _, id := boottime.Elapsed(); id != "" {
		sum := sha256.Sum256([]byte(id))
		copy(h[:], sum[:])
	}
	return h
}

// witness writes log.last. A goroutine that holds the writer's turn calls note.
type witness struct {
	file    disk.File
	now     acknowledged
	buf     [witnessSize]byte
	dirty   atomic.Bool
	wake    chan struct{}
	done    chan struct{}
	syncing sync.WaitGroup
}

// openWitness makes log.last anew.
func openWitness(dir string, a acknowledged) (*witness, error) {
	path := filepath.Join(dir, witnessName)
	w := &witness{now: a, wake: make(chan struct{}, 1), done: make(chan struct{})}
	w.now.encode(&w.buf)
	n, err := fileSize(path)
	if err == nil && n != witnessSize {
		err = os.WriteFile(path, w.buf[:], 0o600)
	}
	if err == nil {
		w.file, err = disk.Open(path)
	}
	if err != nil {
		return nil, err
	}
	if _, err := w.file.WriteAt(w.buf[:], 0); err != nil {
		_ = w.file.Close() // the first error is the one to report
		return nil, err
	}
	w.syncing.Go(w.run)
	return w, nil
}

// note writes that the entry is acknowledged. An error does not matter: log.last then names an earlier
// entry.
func (w *witness) note(seq uint64) {
	w.now.last = seq
	w.now.encode(&w.buf)
	_, _ = w.file.WriteAt(w.buf[:], 0)
	if !w.dirty.Swap(true) {
		w.wake <- struct{}{}
	}
}

// run syncs the file at most once in witnessEvery. Without changes it does nothing.
func (w *witness) run() {
	timer := time.NewTimer(witnessEvery)
	timer.Stop()
	for {
		select {
		case <-w.done:
			return
		case <-w.wake:
			timer.Reset(witnessEvery)
		case <-timer.C:
			w.dirty.Store(false)
			_ = w.file.Sync() // as in note
		}
	}
}

// close syncs and closes the file.
func (w *witness) close() {
	close(w.done)
	w.syncing.Wait()
	_ = w.file.Sync() // as in note
	_ = w.file.Close()
}
