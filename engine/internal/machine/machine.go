package machine

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/internal/codec"
)

// ErrEncoding says that stored bytes are not in the format of this package.
var ErrEncoding = codec.ErrEncoding

// ErrFormat says that something was stored by a newer version.
var ErrFormat = errors.New("stored by a newer version")

// Machine is the state of a shard. [Commands] decides what happens next and returns
// records; [Machine.Apply] changes the state by them.
type Machine struct {
	Commands
}

// New returns the state of an empty log.
func New() *Machine { return &Machine{Commands{newState()}} }

// Seq returns the entry that was applied last.
func (m *Machine) Seq() uint64 { return m.seq }

// Clock returns the times in the header of the last entry, and the boot that they
// belong to.
func (m *Machine) Clock() (h Header, boot string) {
	return Header{At: m.at, SinceBoot: m.sinceBoot}, m.boot
}

// Schedule is a workflow that is started by the calendar.
type Schedule struct {
	Name string
	Due  int64 // the next start, by the wall clock
	Data []byte
}

// Schedules returns the schedules by name.
func (m *Machine) Schedules() map[string]*Schedule { return m.schedules }

func (m *Machine) applyCron(rec *Record) {
	if rec.Data == nil {
		delete(m.schedules, rec.Text)
		return
	}
	m.schedules[rec.Text] = &Schedule{Name: rec.Text, Due: rec.Due, Data: bytes.Clone(rec.Data)}
}

// Due removes the timers that are due, at most so many, and puts their steps into
// their queues. It returns the runs whose time is over: they need a record.
// The changes are not recorded, because they follow from the time.
func (m *Machine) Due(now int64, most int) (expired []*Run) {
	for range most {
		t, ok := m.timers.first()
		if !ok || t.due > now {
			break
		}
		m.timers.unset(t.run, t.step)
		if t.step == deadline {
			expired = append(expired, t.run)
			continue
		}
		m.enqueue(t.run, int(t.step))
		m.updateCounts(t.run)
	}
	return expired
}

// Forget removes a run from memory that is finished and has been seen by the reader of
// changes. Its key stays until it is purged.
func (m *Machine) Forget(r *Run) error {
	if !r.Finished() {
		return fmt.Errorf("run %s is not finished", r.ID)
	}
	if m.runs[r.ID] == r { // and was not purged meanwhile
		m.remove(r)
	}
	return nil
}
