package control

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal"
)

// Cluster has the members of a cluster, its shards, and their problems.
type Cluster struct {
	engine.ClusterInfo
	Troubles []engine.Trouble `json:"troubles"` // of this server, and of shards that other members own
}

// clusterTimeout is how long the other processes of a cluster may take to answer.
const clusterTimeout = 10 * time.Second

// Cluster returns the members and the shards of the cluster. If the engine is not in a cluster, the
// error has the code [CodeNotFound].
func (s *System) Cluster(ctx context.Context) (Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	info, ok, err := s.engine.Cluster(ctx)
	if !ok {
		return Cluster{}, NewError(CodeNotFound, "this server is in no cluster", "to make it a member of a cluster, set engine.nats in its configuration")
	}
	if err != nil {
		return Cluster{}, fmt.Errorf("read the state of the cluster: %w", err)
	}
	c := Cluster{ClusterInfo: info, Troubles: NotNil(s.engine.Troubles())}
	c.Members, c.Shards = NotNil(c.Members), NotNil(c.Shards)
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

// Silent returns a sentence that names the shards that did not answer; "" for an empty list.
func Silent(shards []int) string {
	switch len(shards) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("shard %d did not answer; its runs are missing", shards[0])
	}
	return fmt.Sprintf("shards %s did not answer; their runs are missing", numbers(shards))
}

// NotChanged returns a sentence that names the shards that did not answer when their runs were to be
// changed.
func NotChanged(shards []int) string {
	if len(shards) == 1 {
		return fmt.Sprintf("the runs of shard %d were not changed", shards[0])
	}
	return fmt.Sprintf("the runs of the shards %s were not changed", numbers(shards))
}

// numbers formats a sorted list, such as "1, 4-7": three or more consecutive numbers become a
// range.
func numbers(list []int) string {
	var parts []string
	for i := 0; i < len(list); {
		end := i
		for end+1 < len(list) && list[end+1] == list[end]+1 {
			end++
		}
		if end < i+2 {
			parts = append(parts, fmt.Sprint(list[i]))
			i++
			continue
		}
		parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[end]))
		i = end + 1
	}
	return strings.Join(parts, ", ")
}

// NotNil returns an empty list for nil, which JSON would encode as null.
func NotNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
