//go:build unix

package cli

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

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/move"
	"github.com/tideover/tideover/internal/testwait"
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
// docs/cluster.md.
func TestAStreamWasDeleted(t *testing.T) {
	t.Parallel()
	nodes, name := natstest.Shared(t), clusterName(t)
	f := newClusterServers(t, movable+engineSection(nodes, name))
	a := f.serve("a")
	a.waitForShards(1)
	a.waitForSuccess(a.startRuns("quick", 30))
	deleteStream(t, nodes, name+"-log-2")

	// A backup of the remaining shards, while they work.
	copied := func(folder string) string { return filepath.Join(f.dir, folder) }
	// On a busy machine a server may lose its leases, and a backup then fails: try again.
	backup := func(code int, want string, args ...string) (o outcome) {
		t.Helper()
		testwait.Until(t, fmt.Sprintf("backup %q ends with %d and says %q", args, code, want), func() bool {
			o = a.runCommand(append([]string{"backup"}, args...)...)
			return o.code == code && strings.Contains(o.out+o.stderr, want)
		})
		return o
	}
	o := backup(125, "stream "+name+"-log-2 was deleted", copied("none"))
	wantIn(t, "the error", o.stderr, "if it can't be restored, leave it out: --without-shard 2")
	for _, c := range []struct{ shard, want string }{
		{"1", "shard 1 of the source can't be left out: it can be read"},
		{"4", "shard 4 can't be left out: the source has the shards 0 to 3"},
	} {
		backup(125, c.want, "--without-shard", c.shard, copied("none"))
	}
	o = backup(0, `{"warning":{"message":"NOT COMPLETE: shard 2 left out`, "--json", "--without-shard", "2", copied("one"))
	var b control.Backup
	if err := json.Unmarshal([]byte(o.out), &b); err != nil || len(b.LeftOut) != 1 || b.LeftOut[0].Shard != 2 || b.Shards != 4 || sum(b.Runs) == 0 || sum(b.Runs) >= 30 {
		t.Fatalf("backup: %+v, %v of %s; want all but shard 2", b, err, o.out)
	}
	o = backup(0, fmt.Sprintf("copied to %s, from 3 of 4 shards: %d runs, ", copied("two"), sum(b.Runs)), "--without-shard", "2", copied("two"))
	wantIn(t, "what was left out", o.out, "LEFT OUT shard 2, with all its runs, keys, schedules and history: ")
	a.signal(syscall.SIGTERM)
	wantCode(t, a.wait(), 0)

	// The remaining shards are moved.
	from := filepath.Join(f.dir, "cluster.yaml")
	write(t, from, f.text)
	o = tideover(t, "move", from, copied("three"))
	wantCode(t, o, 125)
	wantIn(t, "the error", o.stderr, "leave it out with --without-shard 2")
	o = tideover(t, "move", "--without-shard", "2,3", from, copied("three"))
	wantCode(t, o, 125)
	wantIn(t, "the refusal", o.stderr, "shard 3 of the source can't be left out: it can be read")
	o = tideover(t, "move", "--dry-run", "--without-shard", "2", from, copied("three"))
	wantCode(t, o, 0)
	wantIn(t, "what would be moved", o.out, fmt.Sprintf("would move %d runs", sum(b.Runs)))
	wantIn(t, "what would be left out", o.out, "LEFT OUT shard 2")
	o = tideover(t, "move", "--json", "--without-shard", "2", from, copied("three/data"))
	wantCode(t, o, 0)
	wantIn(t, "the warning", o.stderr, "NOT COMPLETE: shard 2 left out")
	var m moved
	if err := json.Unmarshal([]byte(o.out), &m); err != nil || len(m.LeftOut) != 1 || m.LeftOut[0].Shard != 2 || m.FromShards != 4 || sum(m.Runs) != sum(b.Runs) {
		t.Errorf("move: %+v, %v of %s; want all but shard 2", m, err, o.out)
	}
	late := f.begin("a")
	wantCode(t, late.wait(), 125)
	wantIn(t, "the old place", late.out.String(), "everything here was moved to ")
	f.text = movable
	there := f.serve("three")
	testwait.Until(t, "what was moved is there", func() bool {
		return strings.Count(there.runCommand("runs", "--limit", "100").out, "succeeded") == sum(b.Runs)
	})
}

func TestWhatWasLeftOutForPeople(t *testing.T) {
	t.Parallel()
	lost := []move.LeftOut{{Shard: 3, Error: "the stream was \x1bdeleted"}, {Shard: 7, Error: "it is empty"}}
	if got, want := incomplete(lost), "NOT COMPLETE: shards 3, 7 left out"; got != want {
		t.Errorf("incomplete = %q, want %q", got, want)
	}
	s := &screen{}
	b := &control.Backup{Dir: "/copy", Shards: 8, Runs: map[string]int{"dead": 1, "succeeded": 4}, Keys: 1, Schedules: 2, LeftOut: lost}
	want := `copied to /copy, from 6 of 8 shards: 5 runs, 1 key, 2 schedules
LEFT OUT shard 3, with all its runs, keys, schedules and history: the stream was \x1bdeleted
LEFT OUT shard 7, with all its runs, keys, schedules and history: it is empty`
	if got := strings.Join(renderBackup(b, s), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := strings.Join(renderBackup(&control.Backup{Dir: "/copy"}, s), "\n"); got != "copied to /copy" {
		t.Errorf("a copy of all: %s", got)
	}
}
