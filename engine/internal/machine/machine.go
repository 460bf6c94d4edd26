package machine

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/internal/codec"
)

// ErrEncoding says that stored bytes are not in the format of this package.
var ErrEncoding = codec.ErrEncoding

// ErrFormat says that an entry or a snapshot was stored by a newer version.
var ErrFormat = errors.New("stored by a newer version")

// Machine is the state of a shard. [Commands] decides what happens next and returns records;
// [Machine.Apply] applies them to the state.
type Machine struct {
	Commands
}

// New returns the state of an empty log.
func New() *Machine { return &Machine{Commands{newState()}} }

// Seq returns the number of the entry that was applied last.
func (m *Machine) Seq() uint64 { return m.seq }

// Clock returns the times in the header of the last entry, and the boot id of the computer that
// the owner of the shard was running on.
func (m *Machine) Clock() (h Header, boot string) {
	return Header{At: m.at, SinceBoot: m.sinceBoot}, m.boot
}

// Schedule starts runs of a workflow at times of the wall clock.
type Schedule struct {
	Name string
	Due  int64  // time of the next start
	Data []byte // the rest of the schedule, which this package does not decode
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

// Halt decides to pause a workflow, or to resume it. ok is false if that changes nothing.
func (c Commands) Halt(workflow, by string, pause bool, now int64) (rec Record, ok bool) {
	if w := c.workflows[workflow]; pause == (w != nil && w.Pause != nil) {
		return rec, false
	}
	rec = Record{Kind: Halted, At: now, Text: workflow, Data: []byte(by)}
	if pause {
		rec.Count = 1
	}
	return rec, true
}

func (m *Machine) applyHalted(rec *Record) {
	var p *Pause
	if rec.Count > 0 {
		p = &Pause{At: rec.At, By: string(rec.Data)}
	}
	m.workflow(rec.Text).setPause(p)
}

// Forget removes a finished run from memory, unless it is needed: see Run.IsNeeded. The caller must
// have read the last change of the run. The run's key stays until a record of kind Purged removes
// it. Forget fails if the run is not finished.
func (m *Machine) Forget(r *Run) error {
	if !r.Finished() {
		return fmt.Errorf("run %s is not finished", r.ID)
	}
	if m.byID(r.ID) == r && !r.IsNeeded() { // it was not purged meanwhile
		m.remove(r)
	}
	return nil
}
