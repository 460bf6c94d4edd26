package machine

import (
	"bytes"
	"slices"
	"time"
)

func applyOpened(m *state, rec *Record) {
	m.boot = rec.Text
	// A snapshot belongs to one owner. If a run of the snapshot knows entries after
	// this one, the log has lost them: apply the new entries to the run.
	for _, r := range m.all {
		r.restored = false
	}
}

func applyDefined(m *state, rec *Record) error {
	d, err := ParseDefinition(rec.Data)
	if err != nil {
		return err
	}
	m.define(d)
	m.use(d.hash, rec.At)
	return nil
}

func applyCron(m *state, rec *Record) {
	if rec.Data == nil {
		delete(m.schedules, rec.Text)
		return
	}
	m.schedules[rec.Text] = &Schedule{Name: rec.Text, Due: rec.Due, Data: bytes.Clone(rec.Data)}
}

func applyHalted(m *state, rec *Record) {
	var p *Pause
	if rec.count > 0 {
		p = &Pause{At: rec.At, By: string(rec.Data)}
	}
	m.workflow(rec.Text).setPause(p)
}

// applyJumped applies a change of the wall clock: it moves all times by the same amount, so that
// the rest of each wait stays the same. It does not move times that a caller has set as points of
// the wall clock.
func applyJumped(m *state, rec *Record) {
	by, was := rec.Delay, rec.At-int64(rec.Delay)
	for _, r := range m.all {
		if knows(r, m.seq) || r.Finished() {
			continue
		}
		if start := endOfWait(r); start > was && !hasBegun(r) && !r.delayed {
			// The run's time begins with its start, which is still in the future, or is
			// now because of the jump.
			move(&r.Deadline, time.Duration(max(rec.At-start, 0)))
		} else {
			move(&r.Deadline, by)
		}
		moveSteps(r, by, was)
		m.timers.reset(r)
		m.touch(r)
	}
	m.timers.rebuild()
}

// moveSteps moves the times of the steps of a run. was is the time before the clock was set.
func moveSteps(r *Run, by time.Duration, was int64) {
	for i := range r.Steps {
		s := &r.Steps[i]
		began := s.Attempt > 0 || i > 0 && r.flow != nil || r.delayed // the wait is not for a start at a point of the wall clock
		move(&s.First, by)
		if s.Status == Running || s.Status == NoHandler || s.Status == Waiting && (s.At <= was || !s.clock && began) {
			move(&s.At, by)
		}
	}
}

// applyPurged applies a record of kind Purged. It removes the keys of runs that have finished, the
// runs that have died and are not kept, and the definitions that were last used before both times.
// It must not depend on which finished runs are in memory, because that is not recorded.
func applyPurged(m *state, rec *Record) {
	p := purge{rec.At, rec.Due, rec.Data}
	m.ended = slices.DeleteFunc(m.ended, func(e expiry) bool {
		if e.at >= p.ended {
			return false
		}
		if r := m.byID(m.keys[e.key].id); r != nil && knows(r, m.seq) {
			return false // the snapshot has a later state: the run ends after this entry
		}
		delete(m.keys, e.key)
		return true
	})
	for _, d := range m.defs {
		d.open = false
	}
	for _, r := range purgedRuns(m, &p) {
		if k := m.keys[r.Key]; k.id == r.ID {
			delete(m.keys, r.Key)
		}
		m.remove(r)
		m.purged = append(m.purged, r.ID)
	}
	m.definitionSet.purge(min(p.ended, p.dead))
}

// purgedRuns returns the dead runs that are deleted, and marks the definitions of runs that stay. A dead
// run that an earlier record of the same entry has changed stays until the next purge: if it is written
// to a snapshot when it is removed, a replay applies the whole entry to it again.
func purgedRuns(m *state, p *purge) (dead []*Run) {
	keep := p.kept()
	for _, r := range m.all {
		switch known := knows(r, m.seq); {
		case r.Closed() && !r.Finished() && r.Ended < p.dead && r.version < m.seq && !keep[r.ID] && !r.IsNeeded():
			dead = append(dead, r)
		case known || !r.Finished() || r.IsNeeded():
			r.Def.open = true
		}
	}
	return dead
}

// move adds a duration to a time, without overflow. 0 means no time, and stays 0.
func move(t *int64, by time.Duration) {
	switch {
	case *t == 0:
	case by > 0:
		*t = later(*t, by)
	default:
		*t += int64(by)
	}
}

// later returns t + d, or the largest int64 if that overflows.
func later(t int64, d time.Duration) int64 {
	if s := t + int64(d); s >= t {
		return s
	}
	return 1<<63 - 1
}
