//go:build unix

package cluster_test

import (
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// A server is suspended with SIGSTOP. Until its leases expire, no server can answer for its shards,
// and commands warn that the runs of these shards are missing.
func TestWhatAStoppedServerHasIsMissing(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	end := strings.Replace(clitest.EngineSection(natstest.SharedNode(t), clitest.ClusterName(t)), clitest.LeaseTime.String(), "5m", 1)
	f := clitest.NewCluster(t, clitest.Shared+end)
	a, b := f.Serve("a"), f.Serve("b")
	a.WaitForShards(2)
	a.WaitForSuccess(a.StartRuns("where", 4))
	b.Signal(syscall.SIGSTOP)
	testwait.Until(t, "the process has stopped", func() bool { return allStopped(b.Process.Pid) })
	t.Cleanup(func() { _ = b.Process.Signal(syscall.SIGCONT) })
	var all sync.WaitGroup // run the commands at once: each of them waits for the suspended server
	for _, args := range [][]string{{"runs"}, {"dead"}, {"dead", "--groups"}, {"status"}} {
		all.Go(func() {
			o := a.RunCommand(args...)
			clitest.WantCode(t, o, 0)
			clitest.WantIn(t, args[0], o.Stderr, "did not answer; their runs are missing")
		})
		all.Go(func() {
			o := a.RunCommand(slices.Concat(args, []string{"--json"})...)
			clitest.WantIn(t, args[0]+" --json", o.Out, `"silent":[`)
		})
	}
	all.Go(func() {
		o := a.RunCommand("cluster")
		clitest.WantCode(t, o, 0)
		clitest.WantIn(t, "the cluster", o.Out, "no answer")
	})
	all.Wait()
	b.Signal(syscall.SIGCONT)
	testwait.Until(t, "all is there again", func() bool {
		o := a.RunCommand("runs")
		return o.Code == 0 && o.Stderr == "" && strings.Count(o.Out, "succeeded") == 4
	})
}

func TestTheClusterIsWatched(t *testing.T) {
	t.Parallel()
	f := clitest.NewCluster(t, clitest.Shared+clitest.EngineSection(natstest.SharedNode(t), clitest.ClusterName(t)))
	a := f.Serve("a", "TIDEOVER_ENGINE_MEMBER=first")
	a.WaitForShards(1)
	watch := &clitest.Background{T: t, Folder: t.TempDir()}
	watch.Cmd, watch.Mark = clitest.Command(t, "cluster", "--watch")
	watch.Env = append(watch.Env, "TIDEOVER_SERVER=unix:"+a.Data+"/tideover.sock")
	out := new(clitest.SyncBuffer)
	watch.Stdout, watch.Stderr = out, out
	watch.Begin()
	said := func(part string) {
		t.Helper()
		testwait.Until(t, "it says "+part, func() bool { return strings.Contains(out.String(), part) })
	}
	said(`joined name="first"`)
	said("shard 3 owner=first epoch=1")
	b := f.Serve("b", "TIDEOVER_ENGINE_MEMBER=second")
	said(`joined name="second"`)
	said("owner=second epoch=2")
	b.Signal(syscall.SIGTERM)
	clitest.WantCode(t, b.End(), 0)
	said(`left name="second"`)
	a.Signal(syscall.SIGTERM)
	clitest.WantCode(t, a.End(), 0)
	said("no tideover serve at")
	watch.Signal(syscall.SIGINT)
	watch.End()
	if got := clitest.DiedOf(watch.Cmd); got != syscall.SIGINT {
		t.Errorf("it died of %v", got)
	}
}

func TestAReloadInACluster(t *testing.T) {
	t.Parallel()
	end := clitest.EngineSection(natstest.SharedNode(t), clitest.ClusterName(t))
	f := clitest.NewCluster(t, clitest.Shared+end)
	a := f.Serve("a")
	clitest.WriteFile(t, a.File, clitest.Shared+"  more: {schedule: '0 3 1 1 *', steps: [{id: say, run: [echo, more]}]}\n"+strings.Replace(end, "shards: 4", "shards: 8", 1))
	a.Signal(syscall.SIGHUP)
	testwait.Until(t, "the schedule is there", func() bool { return strings.Contains(a.RunCommand("schedules").Out, "0 3 1 1 *") })
	clitest.WantCode(t, a.RunCommand("run", "more", "--wait"), 0)
	clitest.WantIn(t, "the log", a.Log.String(), `msg="this takes effect when the server is started again" key=engine.shards value=8`)

	// A reload can't add sessions to a server of a cluster either.
	clitest.WriteFile(t, a.File, clitest.Shared+"sessions: {s: {start: [x]}}\n")
	a.Signal(syscall.SIGHUP)
	testwait.Until(t, "sessions are refused", func() bool {
		return strings.Contains(a.Log.String(), "sessions: a cluster can't run sessions, and this server is in a cluster until it is restarted")
	})
	clitest.WantCode(t, a.RunCommand("run", "more", "--wait"), 0)
}

func TestTheDemoStaysInItsFolder(t *testing.T) {
	t.Parallel()
	s := &clitest.Server{Background: &clitest.Background{T: t, Folder: t.TempDir()}, Log: new(clitest.SyncBuffer), Data: clitest.ShortDir(t)}
	s.Cmd, s.Mark = clitest.Command(t, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", s.Data)
	s.Env = append(s.Env, "TIDEOVER_ENGINE_NATS=127.0.0.1:1")
	s.Stdout, s.Stderr = s.Log, s.Log
	s.Begin()
	s.AwaitReady()
	s.Signal(syscall.SIGINT)
	clitest.WantCode(t, s.End(), 0)
	o := clitest.Run(t, "serve", "--demo", "--data", s.Data, "--nats", "127.0.0.1:1", "--config", func() string {
		file := t.TempDir() + "/t.yaml"
		clitest.WriteFile(t, file, "version: 1\n")
		return file
	}())
	clitest.WantCode(t, o, 125)
	clitest.WantIn(t, "the error", o.Stderr, "the demo keeps its runs in a folder: leave out --demo, or engine.nats")
}
