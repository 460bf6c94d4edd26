//go:build unix

package cluster_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestAWrongSecondPlaceIsRefusedAtItsLine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(clitest.ShortDir(t), "file")
	clitest.WriteFile(t, file, "")
	s := clitest.BeginServe(t, "version: 1\nengine:\n  nats: 127.0.0.1:1\n  second-place: "+file+"\n", "")
	clitest.WantCode(t, s.End(), 125)
	clitest.WantIn(t, "the error", s.Log.String(), "tideover.yaml:4:17: engine.second-place: "+file+" is not a folder\n>  4 |   second-place: "+file+"\n                       ^")
	if strings.Contains(s.Log.String(), "joining") {
		t.Errorf("it has asked NATS: %s", s.Log)
	}
}

func TestSettingsThatComeTooLateAreTold(t *testing.T) {
	t.Parallel()
	f := clitest.NewCluster(t, clitest.Shared+clitest.EngineSection(natstest.SharedNode(t), clitest.ClusterName(t)))
	a := f.Serve("a", "TIDEOVER_ENGINE_MEMBER=first")
	a.WaitForShards(1)
	clitest.WantIn(t, "the log of the first", a.Log.String(), `msg="making the streams of the cluster`)
	clitest.WantIn(t, "the log of the first", a.Log.String(), "member=first id=")
	clitest.WantIn(t, "the log of the first", a.Log.String(), `level=WARN msg="made a new cluster, with nothing in it"`)
	clitest.WantIn(t, "the log of the first", a.Log.String(), `msg="created and joined the cluster"`)
	text := f.Text
	f.Text = strings.Replace(text, "lease-time: "+clitest.LeaseTime.String(), "lease-time: 25s, replicas: 3, max-bytes: 1GiB", 1)
	b := f.Serve("b")
	for _, want := range []string{"key=engine.lease-time wanted=25s actual=24s", "key=engine.replicas wanted=3 actual=1", `key=engine.max-bytes wanted=1073741824 actual="no limit"`, `msg="joined the cluster"`} {
		clitest.WantIn(t, "the log of the second", b.Log.String(), want)
	}
	if strings.Contains(b.Log.String(), "made ") {
		t.Errorf("who joins seems to make something: %s", b.Log)
	}
	_, found := clitest.Examined(t, f.Text)
	clitest.WantIn(t, "the notes", found["note"], "engine.lease-time is 25s, and cluster")
	f.Text = strings.Replace(text, "shards: 4", "shards: 8", 1)
	c := f.Begin("c")
	clitest.WantCode(t, c.End(), 125)
	clitest.WantIn(t, "the error", c.Log.String(), "engine.shards: cluster ")
	clitest.WantIn(t, "the error", c.Log.String(), "has 4, not 8, and the number can't be changed: write 4 or leave it out")
}

// The NATS servers lose all data. The commands and the log say that the cluster is lost, even when
// a server has created a new one.
func TestALostClusterIsNotTakenForANewOne(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 1)
	f := clitest.NewCluster(t, clitest.Shared+clitest.EngineSection(nodes, "shop"))
	a := f.Serve("a")
	clitest.WantCode(t, a.RunCommand("run", "where", "--wait"), 0)
	nodes.Kill(0)
	if err := os.RemoveAll(nodes.Store(0)); err != nil {
		t.Fatal(err)
	}
	nodes.Restart(0)
	testwait.Until(t, "it is said that the stream is gone", func() bool {
		return strings.Contains(a.RunCommand("cluster").Stderr, "stream KV_shop-cluster was deleted")
	})
	a.Signal(syscall.SIGKILL)
	a.End()
	cmd, _ := clitest.Command(t, "doctor", "--config", a.File, "--data", a.Data)
	o := clitest.Finish(t, cmd)
	clitest.WantCode(t, o, 1)
	clitest.WantIn(t, "what the doctor says", o.Out, "broken  there is no cluster shop, but there has been: this process was in one")
	again := f.Serve("a")
	clitest.WantIn(t, "the log", again.Log.String(), `level=ERROR msg="made a NEW cluster`)
	clitest.WantCode(t, again.RunCommand("run", "where", "--wait"), 0)
	again.Signal(syscall.SIGTERM)
	clitest.WantCode(t, again.End(), 0)
}

// The NATS servers lose all data, and another server creates the cluster again. A server that still
// runs ends with an error, and can then join the new cluster.
func TestAServerThatOutlivesItsClusterEnds(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 1)
	f := clitest.NewCluster(t, clitest.Shared+clitest.EngineSection(nodes, "shop"))
	a := f.Serve("a")
	clitest.WantCode(t, a.RunCommand("run", "where", "--wait"), 0)
	nodes.Kill(0)
	if err := os.RemoveAll(nodes.Store(0)); err != nil {
		t.Fatal(err)
	}
	nodes.Restart(0)
	b := f.Serve("b")
	clitest.WantIn(t, "the log of who made it anew", b.Log.String(), `msg="made a new cluster`)
	clitest.WantCode(t, a.End(), 125)
	clitest.WantIn(t, "the error", a.Log.String(), "serve: engine: the cluster is not the one that this process has joined: the streams of cluster shop, created at ")
	clitest.WantIn(t, "the error", a.Log.String(), "Start this process again, and it joins the new one")
	b.WaitForShards(1)
	clitest.WantCode(t, b.RunCommand("run", "where", "--wait"), 0)
	again := f.Serve("a")
	clitest.WantIn(t, "the log of who is started again", again.Log.String(), "this is not the cluster that this process was in before")
	again.WaitForShards(2)
}

func TestTheDoctorSaysWhomItWaitsFor(t *testing.T) {
	t.Parallel()
	o, found := clitest.Examined(t, "version: 1\nengine: {nats: 'nats://me:${env:PW}@127.0.0.1:1'}\n", "PW=PLANTED-pw")
	clitest.WantCode(t, o, 1)
	clitest.WantIn(t, "what it waits for", o.Stderr, "waiting for NATS at nats://me:${env:PW}@127.0.0.1:1")
	clitest.WantIn(t, "what is broken", found["broken"], "connect to NATS at 127.0.0.1:1: ")
	clitest.WantIn(t, "what is broken", found["broken"], "connection refused")
	if strings.Contains(o.Out+o.Stderr, "PLANTED") {
		t.Errorf("the password shows: %+v", o)
	}
}
