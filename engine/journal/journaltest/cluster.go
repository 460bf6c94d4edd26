package journaltest

import (
	"testing"

	"github.com/tideover/tideover/engine/journal"
)

// Process is a member of a cluster that can be killed.
type Process interface {
	journal.Cluster

	// Kill ends the process as SIGKILL does: it releases nothing, answers
	// nothing, and what it does from now on fails. Close is called after it.
	Kill()
}

// ClusterOpener joins a new process to the cluster that belongs to a folder and
// has so many shards. The same folder is the same cluster; it begins empty.
type ClusterOpener func(t *testing.T, dir string, shards int) Process

// RunCluster runs the suite for logs that several processes share: a test for
// each sentence of [journal.Cluster]. That each shard is a log like any other is
// for [Run].
//
// It waits long for what takes a real cluster long, such as taking over from a
// member that was killed. A backend with short times makes it fast.
func RunCluster(t *testing.T, open ClusterOpener) {
	groups := []struct {
		name  string
		tests []clusterTest
	}{
		{"members", memberTests},
		{"shards", shardTests},
		{"calls", callTests},
		{"status", statusTests},
		{"deaths", deathTests},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			// One cluster for all of a group, because making one is slow where it
			// is real. What one test leaves behind is what the next one begins with.
			dir := t.TempDir()
			for _, test := range g.tests {
				t.Run(test.name, func(t *testing.T) {
					noLeaks(t)
					c := &cluster{dir: dir, open: open, killed: map[Process]bool{}, closed: map[Process]bool{}}
					test.run(t, c, c.join(t, test.members))
				})
			}
		})
	}
}

type clusterTest struct {
	name    string
	members int // that have joined when it begins
	run     func(t *testing.T, c *cluster, members []Process)
}
