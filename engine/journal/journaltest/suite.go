// Package journaltest is the suite that every backend of a journal passes: a
// test for each sentence of the contract, which uses only its interface.
//
// A backend needs tests of its own for further guarantees, and for the ways in which it
// loses a lease that was not released.
package journaltest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
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
	for _, g := range []group[test]{logTests, leaseTests, blobTests, concurrencyTests} {
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

// group has the tests of a part of the contract.
type group[T any] struct {
	name  string
	tests []T
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
	for _, g := range []group[clusterTest]{memberTests, shardTests, callTests, statusTests, deathTests} {
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

// fixture is the log of one test.
type fixture struct {
	dir  string
	open Opener
}

// log opens the log until the end of the test.
func (f *fixture) log(t *testing.T) journal.Log {
	t.Helper()
	log := f.open(t, f.dir)
	t.Cleanup(func() {
		if err := log.Close(); err != nil && !timedOut(err) {
			t.Errorf("Close() = %v", err)
		}
	})
	return log
}

// lease opens the log and becomes its owner until the end of the test.
func (f *fixture) lease(t *testing.T) journal.Lease {
	t.Helper()
	return leaseShard(t, f.log(t), 0)
}

// reopen releases the old lease and returns that of the next owner.
func (f *fixture) reopen(t *testing.T, old journal.Lease) journal.Lease {
	t.Helper()
	release(t, old)
	return f.lease(t)
}

// leaseShard leases a shard. In a cluster it waits while the shard is locked, because the
// other members may learn late that the last owner has released it.
func leaseShard(t *testing.T, log journal.Log, shard int) (l journal.Lease) {
	t.Helper()
	_, cluster := log.(journal.Cluster)
	eventually(t, func(ctx context.Context) (err error) {
		l, err = log.Lease(ctx, shard)
		if err != nil && !timedOut(err) && (!cluster || !errors.Is(err, journal.ErrLocked)) {
			t.Fatalf("Lease(%d) = %v", shard, err)
		}
		return err
	})
	return l
}

func release(t *testing.T, l journal.Lease) {
	t.Helper()
	if err := l.Release(); err != nil && !timedOut(err) {
		t.Fatalf("Release() = %v", err)
	}
}

// timedOut reports whether a backend has given up because the machine or its servers
// are slow. The operation may be repeated.
func timedOut(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// entryID returns the id of the n-th entry that a test appends; entryData returns its
// data.
func entryID(n uint64) (id journal.ID) {
	binary.BigEndian.PutUint64(id[:], n)
	return id
}

func entryData(n uint64) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("entry %d;", n)), 1+int(n%97))
}

// appendN appends entries after the one with the sequence last.
func appendN(t *testing.T, l journal.Lease, last uint64, count int) {
	t.Helper()
	for n := last + 1; n <= last+uint64(count); n++ {
		seq, err := appendEntry(t.Context(), l, n)
		if err != nil || seq != n {
			t.Fatalf("Append(%d) = %d, %v; want %d", n-1, seq, err, n)
		}
	}
}

// appendEntry appends the n-th entry, and repeats that after a timeout, as an owner
// does.
func appendEntry(ctx context.Context, l journal.Lease, n uint64) (seq uint64, err error) {
	for {
		seq, err = l.Append(ctx, n-1, entryID(n), entryData(n))
		if !timedOut(err) || ctx.Err() != nil {
			return seq, err
		}
	}
}

func wantBounds(t *testing.T, l journal.Reader, first, last uint64) {
	t.Helper()
	gotFirst, gotLast, err := l.Bounds(t.Context())
	if err != nil || gotFirst != first || gotLast != last {
		t.Fatalf("Bounds() = %d, %d, %v; want %d, %d", gotFirst, gotLast, err, first, last)
	}
}

// readAll checks that the entries follow each other and are those of appendN,
// and returns the sequence after the last one.
func readAll(ctx context.Context, l journal.Reader, from uint64) (next uint64, err error) {
	next = from
	for e, err := range l.Read(ctx, from) {
		if err != nil {
			return next, err
		}
		if e.Seq != next {
			return next, fmt.Errorf("Read(%d) yields %d where %d is next", from, e.Seq, next)
		}
		if e.ID != entryID(e.Seq) || !bytes.Equal(e.Data, entryData(e.Seq)) {
			return next, fmt.Errorf("Read(%d) yields entry %d with other contents than were appended", from, e.Seq)
		}
		next++
	}
	return next, nil
}

func wantEntries(t *testing.T, l journal.Reader, from, to uint64) {
	t.Helper()
	next, err := readAll(t.Context(), l, from)
	if err != nil || next != to+1 {
		t.Fatalf("Read(%d) ends at %d, %v; want %d", from, next-1, err, to)
	}
}

// wantLog checks the bounds of the log, and all entries between them.
func wantLog(t *testing.T, l journal.Reader, first, last uint64) {
	t.Helper()
	wantBounds(t, l, first, last)
	wantEntries(t, l, first, last)
}

// wantStale checks that an append after the expected entry is refused.
func wantStale(t *testing.T, when string, l journal.Lease, expected uint64) {
	t.Helper()
	_, err := l.Append(testwait.Context(t), expected, entryID(expected+1), entryData(expected+1))
	wantError(t, "Append "+when, err, journal.ErrStale)
}

// wantLaterEpoch checks that the epoch of the lease is above the epoch before.
func wantLaterEpoch(t *testing.T, l journal.Lease, before uint64) {
	t.Helper()
	if l.Epoch() <= before {
		t.Fatalf("Epoch() = %d after %d", l.Epoch(), before)
	}
}

// canceled returns a context that has ended.
func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func wantError(t *testing.T, call string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s = %v; want %v", call, err, want)
	}
}

func wantNoError(t *testing.T, call string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s = %v", call, err)
	}
}

func put(t *testing.T, l journal.Lease, name, text string) {
	t.Helper()
	putFrom(t, l, name, writeText(text))
}

func putFrom(t *testing.T, l journal.Lease, name string, write func(io.Writer) error) {
	t.Helper()
	wantNoError(t, fmt.Sprintf("Put(%q)", name), l.Put(t.Context(), name, write))
}

// writeText returns a function that writes the text in pieces.
func writeText(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.Copy(w, struct{ io.Reader }{strings.NewReader(text)})
		return err
	}
}

func wantBlob(t *testing.T, l journal.Reader, name, want string) {
	t.Helper()
	r, err := l.Get(t.Context(), name)
	wantNoError(t, fmt.Sprintf("Get(%q)", name), err)
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != want {
		t.Fatalf("Get(%q) reads %q, %v; want %q", name, got, err, want)
	}
}

func wantNames(t *testing.T, l journal.Reader, want ...string) {
	t.Helper()
	blobs, err := l.Blobs(t.Context())
	wantNoError(t, "Blobs()", err)
	var names []string
	for _, b := range blobs {
		names = append(names, b.Name)
	}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		t.Fatalf("Blobs() = %q; want %q", names, want)
	}
}
