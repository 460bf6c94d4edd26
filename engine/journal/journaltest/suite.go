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
