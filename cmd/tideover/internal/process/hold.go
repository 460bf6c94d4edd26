//go:build unix

package process

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
)

// hold stores the outputs of all attempts in a temporary file, in the order in which they arrive. If
// the file can't be written, as on a full disk, the hold passes on what it has, and the rest directly.
type hold struct {
	dsts [2]*os.File

	mu     sync.Mutex
	file   *os.File // nil before the first output
	size   int64    // of the complete records in file
	passed bool     // the output is passed on
}

// recordHead is the size of the head of a record: the number of the stream and the length of the output.
const recordHead = 5

// heldStream is the writer of a stream, by its place in hold.dsts.
type heldStream struct {
	*hold
	stream byte
}

// Write stores output, or passes it on.
func (s heldStream) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	h := s.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.passed && h.store(s.stream, p) == nil {
		return len(p), nil
	}
	if err := h.pass(); err != nil {
		return 0, err
	}
	return h.dsts[s.stream].Write(p)
}

func (h *hold) store(stream byte, p []byte) (err error) {
	if h.file == nil {
		if h.file, err = scratch(); err != nil {
			return err
		}
	}
	head := binary.BigEndian.AppendUint32([]byte{stream}, uint32(len(p)))
	if _, err := h.file.WriteAt(head, h.size); err != nil {
		return err
	}
	if _, err := h.file.WriteAt(p, h.size+recordHead); err != nil {
		return err
	}
	h.size += recordHead + int64(len(p))
	return nil
}

// passOn writes the stored output.
func (h *hold) passOn() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pass()
}

// pass writes the stored output, unless that was done before. If one of the streams can't be written, it
// writes the other one. The caller holds the lock.
func (h *hold) pass() error {
	if h.passed || h.file == nil {
		h.passed = true
		return nil
	}
	h.passed = true
	var failed [2]error
	buf := make([]byte, copySize)
	for at := int64(0); at < h.size; {
		if _, err := h.file.ReadAt(buf[:recordHead], at); err != nil {
			return err
		}
		stream, p := buf[0], buf[:binary.BigEndian.Uint32(buf[1:])]
		if _, err := h.file.ReadAt(p, at+recordHead); err != nil {
			return err
		}
		if failed[stream] == nil {
			_, failed[stream] = h.dsts[stream].Write(p)
		}
		at += recordHead + int64(len(p))
	}
	return errors.Join(failed[:]...)
}

func (h *hold) close() error {
	if h == nil || h.file == nil {
		return nil
	}
	return h.file.Close()
}
