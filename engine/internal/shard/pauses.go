package shard

import (
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
)

// pauses has the paused workflows of a shard, for readers in other goroutines than the owner's.
type pauses struct {
	byName atomic.Pointer[map[string]info.PausedWorkflow]
}

// update copies the pauses of the state.
func (p *pauses) update(m *machine.Machine) {
	list := map[string]info.PausedWorkflow{}
	for name, w := range m.Workflows() {
		if w.Pause != nil {
			list[name] = *describePause(w.Pause)
		}
	}
	p.byName.Store(&list)
}

// describe sets Info.WorkflowPaused of a run. undoing says that the run undoes its operations: also
// then it may wait for a handler.
func (p *pauses) describe(i *info.Info, undoing bool) {
	if i.Finished() || undoing {
		return
	}
	if list := p.byName.Load(); list != nil {
		if one, paused := (*list)[i.Workflow]; paused {
			i.WorkflowPaused = &one
		}
	}
}

// describePause returns the pause of a workflow as it is shown; nil for nil.
func describePause(p *machine.Pause) *info.PausedWorkflow {
	if p == nil {
		return nil
	}
	return &info.PausedWorkflow{At: time.Unix(0, p.At), By: p.By}
}
