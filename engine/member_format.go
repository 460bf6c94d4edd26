package engine

import (
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

// ErrOldMember says that a run can't be started, or a workflow paused, yet, because a process of
// the cluster has an older release, which can't read it. Nothing was started or paused: finish the
// rolling deploy, and try again.
var ErrOldMember = errors.New("a member of the cluster has an older release")

// checkMembers returns an ErrOldMember if a member of the cluster can't read a format.
func (p *process) checkMembers(format int) error {
	if p.members == nil || format <= machine.FirstFormat {
		return nil
	}
	behind := p.members.Behind(format)
	if len(behind) == 0 {
		return nil
	}
	m, others := behind[0], ""
	if n := len(behind) - 1; n > 0 {
		others = fmt.Sprintf(" and %d more", n)
	}
	what, then := "a workflow as code", "start the run again"
	switch format {
	case machine.PauseFormat:
		what, then = "a paused workflow", "pause it again"
	case machine.ChildFormat:
		what, then = "a retry that continues the children of a run", "retry the run"
	}
	return fmt.Errorf("%w: %s (%s)%s can read stored data up to format %d, and %s needs format %d: finish the rolling deploy, then %s",
		ErrOldMember, m.Name, m.ID, others, m.Format, what, format, then)
}

// members says which members of a cluster can't read a format. [journal.Cluster] implements it.
type members interface {
	Behind(format int) []journal.Member
}
