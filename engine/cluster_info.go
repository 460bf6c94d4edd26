package engine

import (
	"context"
	"slices"

	"github.com/tideover/tideover/engine/journal"
)

// Cluster returns the members and shards of the cluster. ok is false if the engine is not
// part of a cluster.
func (e *Engine) Cluster(ctx context.Context) (info ClusterInfo, ok bool, err error) {
	if e.cluster == nil {
		return info, false, nil
	}
	status, err := e.cluster.log.Status(ctx)
	if err != nil {
		return info, true, err
	}
	info.Self, info.Members = e.cluster.log.Member(), status.Members
	answers, silent, _ := e.gather(ctx, &call{Op: opStats}) // an error means that no shard has answered: silent says so too
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
