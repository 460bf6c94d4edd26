package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/console/control"
)

// Cluster has the members of a cluster, its shards, and their problems.
type Cluster struct {
	engine.ClusterInfo
	Troubles []engine.Trouble `json:"troubles"` // of this server, and of shards that other members own
}

// clusterTimeout is how long the other processes of a cluster may take to answer.
const clusterTimeout = 10 * time.Second

// Cluster returns the members and the shards of the cluster. If the engine is not in a cluster, the
// error has the code [control.CodeNotFound].
func (s *System) Cluster(ctx context.Context) (Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	info, ok, err := s.engine.Cluster(ctx)
	if !ok {
		return Cluster{}, control.NewError(control.CodeNotFound, "this server is in no cluster", "to make it a member of a cluster, set engine.nats in its configuration")
	}
	if err != nil {
		return Cluster{}, fmt.Errorf("read the state of the cluster: %w", err)
	}
	c := Cluster{ClusterInfo: info, Troubles: control.NotNil(s.engine.Troubles())}
	c.Members, c.Shards = control.NotNil(c.Members), control.NotNil(c.Shards)
	for i := range c.Shards {
		shard := &c.Shards[i]
		if shard.Owner == info.Self {
			continue // s.engine.Troubles has them already
		}
		for _, t := range shard.Troubles {
			t.What = fmt.Sprintf("shard %d %s", shard.Number, t.What)
			c.Troubles = append(c.Troubles, t)
		}
	}
	return c, nil
}

// Owned returns how many shards a member owns.
func (c *Cluster) Owned(m *journal.Member) (n int) {
	for i := range c.Shards {
		if c.Shards[i].Owner == m.ID {
			n++
		}
	}
	return n
}
