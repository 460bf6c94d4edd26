// Package journaltest is the suite that every backend of a journal passes: a
// test for each sentence of the contract, which uses only its interface.
//
// A backend needs tests of its own for further guarantees, and for the ways in which it
// loses a lease that was not released.
package journaltest

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

// Opener opens the log of a folder. The same folder is the same log, also after it was
// closed, and while it is open a second time: the suite restarts a log in this way, and
// simulates two processes.
type Opener func(t *testing.T, dir string) journal.Log

// Run runs the suite.
func Run(t *testing.T, open Opener) {
	groups := []struct {
		name  string
		tests []test
	}{
		{"log", logTests},
		{"lease", leaseTests},
		{"blobs", blobTests},
		{"at once", concurrencyTests},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, test := range g.tests {
				t.Run(test.name, func(t *testing.T) {
					noLeaks(t)
					test.run(t, &fixture{dir: t.TempDir(), open: open})
				})
			}
		})
	}
}

type test struct {
	name string
	run  func(t *testing.T, f *fixture)
}

// withLease returns a test that leases an empty log and calls run.
func withLease(run func(t *testing.T, f *fixture, l journal.Lease)) func(*testing.T, *fixture) {
	return func(t *testing.T, f *fixture) {
		t.Helper()
		run(t, f, f.lease(t))
	}
}

// noLeaks fails the test if goroutines are left after everything was closed.
func noLeaks(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		what := fmt.Sprintf("there are no more goroutines than before, which is %d", before)
		testwait.Until(t, what, func() bool { return runtime.NumGoroutine() <= before })
	})
}

// Process is a member of a cluster that can be killed.
type Process interface {
	journal.Cluster

	// Kill ends the process as SIGKILL does: it releases nothing, answers no
	// requests, and all its later calls fail. The suite calls Close after it.
	Kill()
}

// ClusterOpener joins a new process to the cluster of a folder, and creates the cluster,
// empty and with this number of shards, at the first call for the folder.
type ClusterOpener func(t *testing.T, dir string, shards int) Process

// RunCluster runs the suite for logs that several processes share: a test for
// each sentence of [journal.Cluster]. Use [Run] to test that each shard is a log.
//
// It waits as long as a backend needs, for example to take over from a member that
// was killed. It is fast if the backend has short timeouts.
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
			// All tests of a group share one cluster, because creating a real one is
			// slow. A test begins with the entries and blobs that the last one left.
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
	members int // number of members that have joined when the test begins
	run     func(t *testing.T, c *cluster, members []Process)
}
