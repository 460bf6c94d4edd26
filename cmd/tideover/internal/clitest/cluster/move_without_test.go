//go:build unix

package cluster_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// deleteStream deletes a stream, as an operator could do by mistake.
func deleteStream(t *testing.T, nodes *natstest.Cluster, name string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(nodes.NodeURL(0), "nats://"), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "CONNECT {\"verbose\":false}\r\nSUB answer.%[1]s 1\r\nPUB $JS.API.STREAM.DELETE.%[1]s answer.%[1]s 0\r\n\r\n", name)
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		switch text := lines.Text(); {
		case strings.Contains(text, `"success":true`):
			return
		case strings.Contains(text, `"error"`), strings.HasPrefix(text, "-ERR"):
			t.Fatalf("delete stream %s: %s", name, text)
		}
	}
	t.Fatalf("delete stream %s: no answer, %v", name, lines.Err())
}

// sum returns the total number of runs.
func sum(runs map[string]int) (n int) {
	for _, count := range runs {
		n += count
	}
	return n
}

// The stream of a shard was deleted. The other shards are rescued by the procedure in
// docs/cluster-howto.md.
func TestAStreamWasDeleted(t *testing.T) {
	t.Parallel()
	nodes, name := natstest.SharedNode(t), clitest.ClusterName(t)
	f := clitest.NewCluster(t, movable+clitest.EngineSection(nodes, name))
	a := f.Serve("a")
	a.WaitForShards(1)
	a.WaitForSuccess(a.StartRuns("idle", 30))
	deleteStream(t, nodes, name+"-log-2")

	// A backup of the remaining shards, while they work.
	copied := func(folder string) string { return filepath.Join(f.Dir, folder) }
	// On a busy machine a server may lose its leases, and a backup then fails: try again.
	backup := func(code int, want string, args ...string) (o clitest.Outcome) {
		t.Helper()
		testwait.Until(t, fmt.Sprintf("backup %q ends with %d and says %q", args, code, want), func() bool {
			o = a.RunCommand(append([]string{"backup"}, args...)...)
			return o.Code == code && strings.Contains(o.Out+o.Stderr, want)
		})
		return o
	}
	o := backup(125, "stream "+name+"-log-2 was deleted", copied("none"))
	clitest.WantIn(t, "the error", o.Stderr, "if it can't be restored, leave it out: --without-shard 2")
	for _, c := range []struct{ shard, want string }{
		{"1", "shard 1 of the source can't be left out: it can be read"},
		{"4", "shard 4 can't be left out: the source has the shards 0 to 3"},
	} {
		backup(125, c.want, "--without-shard", c.shard, copied("none"))
	}
	o = backup(0, `{"warning":{"message":"NOT COMPLETE: shard 2 left out`, "--json", "--without-shard", "2", copied("one"))
	var b admin.Backup
	if err := json.Unmarshal([]byte(o.Out), &b); err != nil || len(b.LeftOut) != 1 || b.LeftOut[0].Shard != 2 || b.Shards != 4 || sum(b.Runs) == 0 || sum(b.Runs) >= 30 {
		t.Fatalf("backup: %+v, %v of %s; want all but shard 2", b, err, o.Out)
	}
	o = backup(0, fmt.Sprintf("copied to %s, from 3 of 4 shards: %d runs, ", copied("two"), sum(b.Runs)), "--without-shard", "2", copied("two"))
	clitest.WantIn(t, "what was left out", o.Out, "LEFT OUT shard 2, with all its runs, keys, schedules and history: ")
	a.Signal(syscall.SIGTERM)
	clitest.WantCode(t, a.End(), 0)

	// The remaining shards are moved.
	from := filepath.Join(f.Dir, "cluster.yaml")
	clitest.WriteFile(t, from, f.Text)
	o = clitest.Run(t, "move", from, copied("three"))
	clitest.WantCode(t, o, 125)
	clitest.WantIn(t, "the error", o.Stderr, "leave it out with --without-shard 2")
	o = clitest.Run(t, "move", "--without-shard", "2,3", from, copied("three"))
	clitest.WantCode(t, o, 125)
	clitest.WantIn(t, "the refusal", o.Stderr, "shard 3 of the source can't be left out: it can be read")
	o = clitest.Run(t, "move", "--dry-run", "--without-shard", "2", from, copied("three"))
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "what would be moved", o.Out, fmt.Sprintf("would move %d runs", sum(b.Runs)))
	clitest.WantIn(t, "what would be left out", o.Out, "LEFT OUT shard 2")
	o = clitest.Run(t, "move", "--json", "--without-shard", "2", from, copied("three/data"))
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "the warning", o.Stderr, "NOT COMPLETE: shard 2 left out")
	var m move.Moved
	if err := json.Unmarshal([]byte(o.Out), &m); err != nil || len(m.LeftOut) != 1 || m.LeftOut[0].Shard != 2 || m.FromShards != 4 || sum(m.Runs) != sum(b.Runs) {
		t.Errorf("move: %+v, %v of %s; want all but shard 2", m, err, o.Out)
	}
	late := f.Begin("a")
	clitest.WantCode(t, late.End(), 125)
	clitest.WantIn(t, "the old place", late.Log.String(), "everything here was moved to ")
	f.Text = movable
	there := f.Serve("three")
	testwait.Until(t, "what was moved is there", func() bool {
		return strings.Count(there.RunCommand("runs", "--limit", "100").Out, "succeeded") == sum(b.Runs)
	})
}
