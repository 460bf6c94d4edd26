package machine

import (
	"bytes"
	"fmt"
)

// Extract returns a snapshot that has only this run, for Reopen. It has no arguments of steps and no
// run that follows, because a call of the function needs neither. The run must be a copy.
func Extract(r *Run, now int64) (out []byte, err error) {
	def, err := ParseDefinition(r.Def.text) // the owner of the shard uses r.Def
	if err != nil {
		return nil, err
	}
	def.OnEnd = nil
	for i := range def.Steps {
		def.Steps[i].Args = nil
	}
	if err := def.Prepare(); err != nil {
		return nil, err
	}
	m := New()
	m.at = now
	m.define(def)
	if err := m.adopt(r, def); err != nil {
		return nil, err
	}
	s := m.Snapshot()
	for more := true; more; {
		out, more = s.Next(out, 1)
	}
	return out, s.Err()
}

// Reopen returns a machine that has only the run of a snapshot that Extract returned. The run is one
// that has not ended, and its function is due: so it is called with what the run has stored. A
// pending sleep is as long as it was. Other pending operations wait for ever, as the engine must
// execute none.
func Reopen(snapshot []byte, now int64) (*Machine, *Run, error) {
	from, err := Restore(bytes.NewReader(snapshot))
	if err != nil {
		return nil, nil, err
	}
	if len(from.all) != 1 {
		return nil, nil, fmt.Errorf("%w: it has %d runs; want 1", ErrEncoding, len(from.all))
	}
	r := from.all[0]
	if (r.flow != nil) != r.Def.Flow {
		return nil, nil, fmt.Errorf("%w: run %s is not one of its workflow", ErrEncoding, r.ID)
	}
	m := New()
	m.Learn(r.Def.hash, from)
	if r.flow == nil {
		return m, r, nil
	}
	if f := r.flow; f.undo != nil {
		f.undo.done = false // the function is called to undo again, and finds the undos
	}
	r.flow.mustEnd = 0
	r.Outcome, r.Reason, r.Ended, r.Deadline = Undecided, 0, 0, 0
	r.Failing, r.Held, r.active, r.running = false, false, false, 0
	if x := r.extra; x != nil {
		x.parent, x.replacedBy, x.until = nil, ID{}, 0
	}
	r.Steps[0] = StepState{Status: Waiting, At: now, Attempt: r.Steps[0].Attempt}
	for i := range r.flow.ops {
		o, s := &r.flow.ops[i], &r.Steps[i+1]
		if OpKindOf(o.name).Waits != ForTime {
			s.Status = Blocked
			continue
		}
		s.At += now - from.at
	}
	return m, r, m.adopt(r, m.defs[r.Def.hash])
}
