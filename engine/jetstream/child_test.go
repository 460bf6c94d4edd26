package jetstream

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
)

// Environment variables with the servers and the name of a cluster. If they are set, the
// test binary runs as a member of that cluster and runs no tests.
const (
	childEnv     = "JETSTREAM_CHILD_URL"
	childNameEnv = "JETSTREAM_CHILD_NAME"
)

// childMain leases shard 0 and appends until an append fails. It prints each step.
func childMain(url, name string) int {
	ctx := context.Background()
	log, err := Open(ctx, Config{URL: url, Name: name, MemberName: "child"})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	l, err := log.Lease(ctx, 0)
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	_, last, err := l.Bounds(ctx)
	fmt.Println("owner", log.Member(), l.Epoch())
	for err == nil {
		if err = appendData(ctx, l, last+1, testData(last+1)); err == nil {
			last++
			fmt.Println("appended", last)
		}
	}
	fmt.Println("error", err)
	<-l.Lost()
	fmt.Println("lost")
	return 0
}

// child is a member in a process of its own.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startChild(t *testing.T, url, name string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+url, childNameEnv+"="+name, "GORACE=atexit_sleep_ms=0",
		"TMPDIR="+t.TempDir()) // a process that is killed leaves its files there
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return &child{t, cmd, bufio.NewScanner(out)}
}

// await reads lines until one starts with the word, and returns what follows it.
func (c *child) await(word string) string {
	c.t.Helper()
	stop := context.AfterFunc(testwait.Context(c.t), func() { c.cmd.Process.Kill() })
	defer stop()
	var seen []string
	for c.lines.Scan() {
		if rest, ok := strings.CutPrefix(c.lines.Text(), word); ok {
			return strings.TrimSpace(rest)
		}
		seen = append(seen, c.lines.Text())
	}
	c.t.Fatalf("the child ended without %q: %q", word, seen[max(0, len(seen)-5):])
	return ""
}

// last reads the lines that are left, and returns the last entry appended.
func (c *child) last() (n uint64) {
	for c.lines.Scan() {
		if rest, ok := strings.CutPrefix(c.lines.Text(), "appended "); ok {
			fmt.Sscan(rest, &n)
		}
	}
	return n
}
