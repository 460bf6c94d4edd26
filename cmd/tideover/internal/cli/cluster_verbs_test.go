//go:build unix

package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

// A server is suspended with SIGSTOP. Until its leases expire, no server can answer for its shards,
// and commands warn that the runs of these shards are missing.
func TestWhatAStoppedServerHasIsMissing(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	end := strings.Replace(engineSection(natstest.Shared(t), clusterName(t)), leaseTime.String(), "5m", 1)
	f := newClusterServers(t, shared+end)
	a, b := f.serve("a"), f.serve("b")
	a.waitForShards(2)
	a.waitForSuccess(a.startRuns("where", 8))
	b.signal(syscall.SIGSTOP)
	testwait.Until(t, "the process has stopped", func() bool { return allStopped(b.Process.Pid) })
	t.Cleanup(func() { _ = b.Process.Signal(syscall.SIGCONT) })
	var all sync.WaitGroup // run the commands at once: each of them waits for the suspended server
	for _, args := range [][]string{{"runs"}, {"dead"}, {"dead", "--groups"}, {"status"}} {
		all.Go(func() {
			o := a.runCommand(args...)
			wantCode(t, o, 0)
			wantIn(t, args[0], o.stderr, "did not answer; their runs are missing")
			o = a.runCommand(append(args, "--json")...)
			wantIn(t, args[0]+" --json", o.out, `"silent":[`)
		})
	}
	all.Wait()
	o := a.runCommand("cluster")
	wantCode(t, o, 0)
	wantIn(t, "the cluster", o.out, "no answer")
	b.signal(syscall.SIGCONT)
	testwait.Until(t, "all is there again", func() bool {
		o := a.runCommand("runs")
		return o.code == 0 && o.stderr == "" && strings.Count(o.out, "succeeded") == 8
	})
}

func TestTheClusterIsWatched(t *testing.T) {
	t.Parallel()
	f := newClusterServers(t, shared+engineSection(natstest.Shared(t), clusterName(t)))
	a := f.serve("a", "TIDEOVER_ENGINE_MEMBER=first")
	a.waitForShards(1)
	watch := &backgroundProcess{t: t, dir: t.TempDir()}
	watch.Cmd, watch.mark = command(t, "cluster", "--watch")
	watch.Env = append(watch.Env, "TIDEOVER_SERVER=unix:"+a.data+"/tideover.sock")
	out := new(syncBuffer)
	watch.Stdout, watch.Stderr = out, out
	watch.begin()
	said := func(part string) {
		t.Helper()
		testwait.Until(t, "it says "+part, func() bool { return strings.Contains(out.String(), part) })
	}
	said(`joined name="first"`)
	said("shard 3 owner=first epoch=1")
	b := f.serve("b", "TIDEOVER_ENGINE_MEMBER=second")
	said(`joined name="second"`)
	said("owner=second epoch=2")
	b.signal(syscall.SIGTERM)
	wantCode(t, b.wait(), 0)
	said(`left name="second"`)
	a.signal(syscall.SIGTERM)
	wantCode(t, a.wait(), 0)
	said("no tideover serve at")
	watch.signal(syscall.SIGINT)
	watch.wait()
	if got := diedOf(watch.Cmd); got != syscall.SIGINT {
		t.Errorf("it died of %v", got)
	}
}

func TestAServerWithoutACluster(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	o := s.runCommand("cluster")
	wantCode(t, o, codeNoRun)
	wantIn(t, "the error", o.stderr, "this server is in no cluster; to make it a member of a cluster, set engine.nats in its configuration")
}

func TestAReloadInACluster(t *testing.T) {
	t.Parallel()
	end := engineSection(natstest.Shared(t), clusterName(t))
	f := newClusterServers(t, shared+end)
	a := f.serve("a")
	write(t, a.file, shared+"  more: {schedule: '0 3 1 1 *', steps: [{id: say, run: [echo, more]}]}\n"+strings.Replace(end, "shards: 4", "shards: 8", 1))
	a.signal(syscall.SIGHUP)
	testwait.Until(t, "the schedule is there", func() bool { return strings.Contains(a.runCommand("schedules").out, "0 3 1 1 *") })
	wantCode(t, a.runCommand("run", "more", "--wait"), 0)
	wantIn(t, "the log", a.out.String(), `msg="this takes effect when the server is started again" key=engine.shards value=8`)

	// A reload can't add sessions to a server of a cluster either.
	write(t, a.file, shared+"sessions: {s: {start: [x]}}\n")
	a.signal(syscall.SIGHUP)
	testwait.Until(t, "sessions are refused", func() bool {
		return strings.Contains(a.out.String(), "sessions: a cluster can't run sessions, and this server is in a cluster until it is restarted")
	})
	wantCode(t, a.runCommand("run", "more", "--wait"), 0)
}

func TestTheDemoStaysInItsFolder(t *testing.T) {
	t.Parallel()
	s := &serverProcess{backgroundProcess: &backgroundProcess{t: t, dir: t.TempDir()}, out: new(syncBuffer), data: shortDir(t)}
	s.Cmd, s.mark = command(t, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", s.data)
	s.Env = append(s.Env, "TIDEOVER_ENGINE_NATS=127.0.0.1:1")
	s.Stdout, s.Stderr = s.out, s.out
	s.begin()
	s.serves()
	s.signal(syscall.SIGINT)
	wantCode(t, s.wait(), 0)
	o := tideover(t, "serve", "--demo", "--data", s.data, "--nats", "127.0.0.1:1", "--config", func() string {
		file := t.TempDir() + "/t.yaml"
		write(t, file, "version: 1\n")
		return file
	}())
	wantCode(t, o, 125)
	wantIn(t, "the error", o.stderr, "the demo keeps its runs in a folder: leave out --demo, or engine.nats")
}

func TestAClusterForPeople(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	c := &control.Cluster{ClusterInfo: engine.ClusterInfo{
		Self:    "a1",
		Members: []journal.Member{{ID: "a1", Name: "box\x1b-1", Joined: now.Add(-2 * time.Hour), Silence: 400 * time.Millisecond}},
		Shards: []engine.ShardInfo{
			{Shard: journal.Shard{Number: 0, Owner: "a1", Epoch: 3, First: 5, Last: 24, Bytes: 12_345, Lag: 2}, Name: "box\x1b-1", Running: 1, Waiting: 7},
			{Shard: journal.Shard{Number: 1, Epoch: 1, First: 1}},
			{Shard: journal.Shard{Number: 2, Owner: "b2", Error: "no quorum"}},
		},
		Silent: []int{1},
	}, Troubles: []engine.Trouble{{What: "can't work on shard 2", Since: now, Error: "no quorum"}}}
	s := &screen{now: now, zone: time.UTC}
	want := []string{
		`MEMBER  NAME                     SHARDS  JOINED  HEARD`,
		`a1      box\x1b-1 (this server)  1       2h ago  400ms ago`,
		``,
		`SHARD  OWNER      EPOCH  ENTRIES  BYTES    LAG  RUNNING  WAITING`,
		`0      box\x1b-1  3      20       12.3 kB  2    1        7`,
		`1      none       1      0        0 B      0    ?        ?`,
		`2      b2         0      ?        ?        ?    0        0`,
		`shard 1: no answer`,
		`shard 2: no quorum`,
		`can't work on shard 2 since 2026-11-15 12:00:00 +00:00: no quorum`,
	}
	got := renderCluster(c, s)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	c.Members[0].Name, c.Shards[0].Name, c.Members[0].ID = strings.Repeat("x", 80), strings.Repeat("x", 80), c.Self+"23456789"
	c.Self, c.Shards[0].Epoch, c.Shards[0].Last = c.Members[0].ID, 99_999, 9_999_999
	for _, line := range renderCluster(c, s) {
		if len([]rune(line)) > 100 {
			t.Errorf("a line has more than 100 columns: %s", line)
		}
	}
	if text, err := json.Marshal(c); err != nil || !strings.Contains(string(text), `"silence_ns":400000000`) {
		t.Errorf("as JSON: %s, %v", text, err)
	}
}
