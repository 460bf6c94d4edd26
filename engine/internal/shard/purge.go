package shard

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/workflow"
)

// purge deletes the runs whose retention is over.
type purge struct {
	state         *state
	retention     time.Duration
	deadRetention time.Duration
	at            time.Time // when such runs were looked for last
}

// every returns the time between two searches for runs whose retention is over.
func (p *purge) every() time.Duration { return min(time.Hour, p.retention/20, p.deadRetention/20) }

// record returns the record that deletes the runs whose retention is over, except dead
// runs that a follow-up run refers to. ok is false if there is nothing to delete.
func (p *purge) record(now int64) (rec machine.Record, ok bool) {
	dead := now - int64(p.deadRetention)
	return p.state.m.Purge(now-int64(p.retention), dead, p.referenced(dead))
}

// referenced returns the dead runs whose input a follow-up run may still need. A follow-up
// run may need it until it has succeeded or was canceled, or was dead for longer than the
// retention: dead is the time before which dead runs are deleted.
func (p *purge) referenced(dead int64) map[machine.ID]bool {
	ids := map[machine.ID]bool{}
	for _, r := range p.state.m.All() {
		if r.Finished() || r.Closed() && r.Ended < dead {
			continue
		}
		text, follows := strings.CutPrefix(r.Source(), giveUpSource)
		switch {
		case r.IsCold(): // its input is not in memory, and may be a reference
		case !workflow.IsReference(r.Input):
			continue
		case !follows: // it repeats a follow-up run
			var g info.GaveUp
			if json.Unmarshal(r.Input, &g) == nil && g.ByReference != nil {
				text, follows = g.ByReference.Run, true
			}
		}
		if id, err := machine.ParseID(text); follows && err == nil {
			ids[id] = true
		}
	}
	return ids
}
