package engine

import (
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/journal"
)

// ErrOldMember says that a run can't be started yet, because a process of the cluster has an
// older release, which can't read it. Nothing was started: finish the rolling deploy, and
// start the run again.
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
	return fmt.Errorf("%w: %s (%s)%s can read stored data up to format %d, and a workflow as code needs format %d: finish the rolling deploy, then start the run again",
		ErrOldMember, m.Name, m.ID, others, m.Format, format)
}

// members says which members of a cluster can't read a format. [journal.Cluster] implements it.
type members interface {
	Behind(format int) []journal.Member
}
