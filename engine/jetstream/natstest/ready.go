package natstest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// polls is how often tests poll servers. It has no timeout: a test waits until
// the test binary's deadline.
var polls = retry.Must("exponential(10ms..200ms) jitter=20% attempts=unlimited")

// client keeps no connections open, because tests would report their goroutines as leaks.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Wait waits until the function returns no error. It fails the test when the error is
// permanent, or shortly before the test binary's deadline.
func Wait(t testing.TB, done func(context.Context) error) {
	t.Helper()
	if err := polls.Do(testwait.Context(t), done); err != nil {
		t.Fatal(err)
	}
}

// WaitReady waits until all running nodes are healthy, know each other and have
// a leader.
func (c *Cluster) WaitReady() {
	c.t.Helper()
	if err := polls.Do(testwait.Context(c.t), c.ready); err != nil {
		c.t.Fatalf("%v: %v%s", c, err, c.logs())
	}
}

func (c *Cluster) logs() (text string) {
	for _, n := range c.list {
		text += fmt.Sprintf("\n%s: %s", n.name, n.logTail())
	}
	return text
}

func (c *Cluster) ready(ctx context.Context) error {
	running := 0
	for _, n := range c.list {
		p := n.running()
		if p == nil {
			continue
		}
		running++
		select {
		case <-p.done:
			return retry.Permanent(fmt.Errorf("node %s has ended: %v", n.name, p.cmd.ProcessState))
		default:
		}
		if _, err := n.get(ctx, "/healthz"); err != nil {
			return err
		}
	}
	if len(c.list) == 1 {
		return nil
	}
	return c.checkLeader(ctx, running)
}

// checkLeader checks that the nodes have a leader that all of them have
// contacted.
func (c *Cluster) checkLeader(ctx context.Context, running int) error {
	leaders := 0
	for _, n := range c.list {
		if n.running() == nil {
			continue
		}
		meta, err := n.group(ctx, "")
		if err != nil {
			return err
		}
		if meta.Leader == "" {
			return fmt.Errorf("node %s knows no leader", n.name)
		}
		if meta.Leader != n.name {
			continue
		}
		leaders++
		current := 0
		for _, r := range meta.Replicas {
			if r.Current && !r.Offline {
				current++
			}
		}
		if current < running-1 {
			return fmt.Errorf("leader %s has heard of %d other nodes of %d", n.name, current, running-1)
		}
	}
	if leaders != 1 {
		return fmt.Errorf("%d nodes say they lead", leaders)
	}
	return nil
}

// group is the part of a server's answer about a group of replicas.
type group struct {
	Leader   string `json:"leader"`
	Replicas []struct {
		Current bool `json:"current"`
		Offline bool `json:"offline"`
	} `json:"replicas"`
}

// group returns the group of a stream; "" means that of all nodes.
func (n *node) group(ctx context.Context, stream string) (group, error) {
	var answer struct {
		Meta     group `json:"meta_cluster"`
		Accounts []struct {
			Streams []struct {
				Name    string `json:"name"`
				Cluster group  `json:"cluster"`
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	path := "/jsz"
	if stream != "" {
		path += "?accounts=true&streams=true&limit=10000"
	}
	text, err := n.get(ctx, path)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil || stream == "" {
		return answer.Meta, err
	}
	for _, a := range answer.Accounts {
		for _, s := range a.Streams {
			if s.Name == stream {
				return s.Cluster, nil
			}
		}
	}
	return group{}, nil
}

// get sends a request to the server's monitoring port.
func (n *node) get(ctx context.Context, path string) ([]byte, error) {
	url := fmt.Sprintf("http://127.0.0.1:%d%s", n.monitor, path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("node %s: %s: %s", n.name, resp.Status, text)
	}
	return text, err
}

// MetaLeader returns the node that leads the cluster.
func (c *Cluster) MetaLeader() int {
	c.t.Helper()
	return c.Leader("")
}

// Leader waits until a node reports that it leads a stream, and returns the node.
func (c *Cluster) Leader(stream string) (leader int) {
	c.t.Helper()
	c.must(polls.Do(testwait.Context(c.t), func(ctx context.Context) error {
		var errs []error
		for i, n := range c.list {
			if n.running() == nil {
				continue
			}
			g, err := n.group(ctx, stream)
			if err == nil && g.Leader == n.name {
				leader = i
				return nil
			}
			errs = append(errs, err)
		}
		return errors.Join(append(errs, fmt.Errorf("no node leads stream %q", stream))...)
	}))
	return leader
}
