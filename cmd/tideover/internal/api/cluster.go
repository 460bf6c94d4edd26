package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal"
)

// Cluster is who shares the work, and what keeps them from it.
type Cluster struct {
	engine.ClusterInfo
	Troubles []engine.Trouble `json:"troubles"` // of the server that was asked, and of the shards of others
}

// clusterTime is how long somebody who wants to see the cluster waits for it.
const clusterTime = 10 * time.Second

// LookAtCluster returns who shares the work. The error of an engine that is in no
// cluster is a [*Problem].
func LookAtCluster(ctx context.Context, e *engine.Engine) (Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	info, ok, err := e.Cluster(ctx)
	if !ok {
		return Cluster{}, &Problem{
			Status: http.StatusNotFound, Code: CodeNotFound, Message: "this server is in no cluster",
			Hint: "engine.nats in its configuration makes it one of several",
		}
	}
	if err != nil {
		return Cluster{}, fmt.Errorf("look at the cluster: %w", err)
	}
	c := Cluster{ClusterInfo: info, Troubles: notNil(e.Troubles())}
	c.Members, c.Shards = notNil(c.Members), notNil(c.Shards)
	for i := range c.Shards {
		s := &c.Shards[i]
		if s.Owner == info.Self {
			continue // which has told of it
		}
		for _, t := range s.Troubles {
			t.What = fmt.Sprintf("shard %d %s", s.Number, t.What)
			c.Troubles = append(c.Troubles, t)
		}
	}
	return c, nil
}

// Owned returns how many shards a member has.
func (c *Cluster) Owned(m *journal.Member) (n int) {
	for i := range c.Shards {
		if c.Shards[i].Owner == m.ID {
			n++
		}
	}
	return n
}

func (s *server) cluster(w http.ResponseWriter, r *http.Request, _ string) error {
	if _, err := queryOf(r); err != nil {
		return err
	}
	c, err := LookAtCluster(r.Context(), s.engine)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, c)
}

// Cluster returns who shares the work of the server.
func (c *Client) Cluster(ctx context.Context) (out Cluster, err error) {
	err = c.call(ctx, http.MethodGet, "cluster", nil, nil, &out)
	return out, err
}

// Silent says which shards did not answer, in words; "" if all did.
func Silent(shards []int) string {
	switch len(shards) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("shard %d did not answer; its runs are missing", shards[0])
	}
	return fmt.Sprintf("shards %s did not answer; their runs are missing", numbers(shards))
}

// numbers writes numbers in order, those that follow each other as a range.
func numbers(list []int) (text string) {
	for i := 0; i < len(list); {
		end := i
		for end+1 < len(list) && list[end+1] == list[end]+1 {
			end++
		}
		if text != "" {
			text += ", "
		}
		switch {
		case end > i+1:
			text += fmt.Sprintf("%d-%d", list[i], list[end])
			i = end + 1
		default:
			text += fmt.Sprint(list[i])
			i++
		}
	}
	return text
}
