package jetstream

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/journaltest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		os.Exit(childMain(url, os.Getenv(childNameEnv)))
	}
	// Most tests wait for servers most of the time.
	flag.Parse()
	flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0))))
	code := m.Run()
	natstest.StopShared()
	if left := leftOver(); left != "" && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines are left after all tests:\n"+left)
		code = 1
	}
	os.Exit(code)
}

// leftOver returns the goroutines of this package, or of NATS's client, that do not
// end although everything was closed.
func leftOver() string {
	var others []byte
	for range 500 {
		stacks := make([]byte, 1<<20)
		_, others, _ = bytes.Cut(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) // the first is this one
		if !bytes.Contains(others, []byte("engine/jetstream.")) && !bytes.Contains(others, []byte("nats%2ego.(*Conn)")) {
			return ""
		}
		time.Sleep(10 * time.Millisecond)
	}
	return string(others)
}

// nameOf returns the name of the cluster that belongs to a folder.
func nameOf(dir string) string {
	h := fnv.New64a()
	h.Write([]byte(dir))
	return fmt.Sprintf("t-%x", h.Sum64())
}

func mustOpen(t *testing.T, cfg Config) *Log {
	t.Helper()
	log, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func TestConformanceOfOneNode(t *testing.T) {
	nodes := natstest.Start(t, 1)
	journaltest.Run(t, func(t *testing.T, dir string) journal.Log {
		t.Helper()
		return mustOpen(t, Config{URL: nodes.URL(), Name: nameOf(dir), Shards: 1})
	})
}

func TestConformanceOfThreeNodes(t *testing.T) {
	nodes := natstest.Shared(t)
	journaltest.Run(t, func(t *testing.T, dir string) journal.Log {
		t.Helper()
		return mustOpen(t, Config{URL: nodes.URL(), Name: nameOf(dir), Shards: 1})
	})
}

// killable is a member that can be killed.
type killable struct{ *Log }

// Kill implements [journaltest.Process].
func (k killable) Kill() { k.kill() }

// kill ends the member as the end of its process does: nobody is told.
func (l *Log) kill() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.end()
	l.c.nc.Close()
	l.endLeases(errors.New("the process was killed"))
}

func TestConformanceOfClusters(t *testing.T) {
	nodes := natstest.Shared(t)
	journaltest.RunCluster(t, func(t *testing.T, dir string, shards int) journaltest.Process {
		t.Helper()
		return killable{mustOpen(t, Config{URL: nodes.URL(), Name: nameOf(dir), Shards: shards, LeaseTime: 2 * time.Second})}
	})
}
