// Package journaltest is the suite that every backend of a journal passes: a
// test for each sentence of the contract, with nothing but its interface.
//
// What a backend promises beyond it, and how it loses a lease that was not
// given up, is for its own tests.
package journaltest

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

// Opener opens the log that belongs to a folder. The same folder is the same
// log, also after it was closed, and while it is open elsewhere: that is how
// the suite restarts a log, and how it plays two processes.
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

// withLease makes a test of one that begins with the lease of an empty log.
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
