package engine

import (
	"context"
	"slices"

	"github.com/tideover/tideover/engine/journal"
)

// ClusterInfo is who shares the work of a cluster.
type ClusterInfo struct {
	Self    string           `json:"self"` // id of the member that was asked
	Members []journal.Member `json:"members"`
	Shards  []ShardInfo      `json:"shards"`
	Silent  []int            `json:"silent,omitempty"` // shards whose owners did not answer
}

// ShardInfo is a part of the work and how it goes on.
type ShardInfo struct {
	journal.Shard
	Name     string    `json:"name,omitempty"` // of the owner
	Running  int       `json:"running"`        // attempts
	Waiting  int       `json:"timers"`         // waits and deadlines
	Behind   int       `json:"view_behind"`    // runs the view has yet to see
	Troubles []Trouble `json:"troubles,omitempty"`
}

// Cluster returns who shares the work. Without a cluster it reports false.
func (e *Engine) Cluster(ctx context.Context) (info ClusterInfo, ok bool, err error) {
	if e.cluster == nil {
		return info, false, nil
	}
	status, err := e.cluster.log.Status(ctx)
	if err != nil {
		return info, true, err
	}
	info.Self, info.Members = e.cluster.log.Member(), status.Members
	answers, silent, _ := e.gather(ctx, &call{Op: opStats}) // an error is that all are silent
	info.Silent = silent
	for _, s := range status.Shards {
		one := ShardInfo{Shard: s}
		if i := slices.IndexFunc(status.Members, func(m journal.Member) bool { return m.ID == s.Owner }); i >= 0 {
			one.Name = status.Members[i].Name
		}
		if s.Number < len(answers) && answers[s.Number] != nil {
			st := answers[s.Number].Stats
			one.Running, one.Waiting, one.Behind, one.Troubles = st.Running, st.Waiting, st.Behind, st.Troubles
		}
		info.Shards = append(info.Shards, one)
	}
	return info, true, nil
}
