//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
)

func TestAWrongSecondPlaceIsRefusedAtItsLine(t *testing.T) {
	t.Parallel()
	file := filepath.Join(shortDir(t), "file")
	write(t, file, "")
	s := beginServe(t, "version: 1\nengine:\n  nats: 127.0.0.1:1\n  second-place: "+file+"\n", "")
	wantCode(t, s.wait(), 125)
	wantIn(t, "the error", s.out.String(), "tideover.yaml:4:17: engine.second-place: "+file+" is not a folder\n>  4 |   second-place: "+file+"\n                       ^")
	if strings.Contains(s.out.String(), "joining") {
		t.Errorf("it has asked NATS: %s", s.out)
	}
}

func TestSettingsThatComeTooLateAreTold(t *testing.T) {
	t.Parallel()
	f := newClusterServers(t, shared+engineSection(natstest.Shared(t), clusterName(t)))
	a := f.serve("a", "TIDEOVER_ENGINE_MEMBER=first")
	a.waitForShards(1)
	wantIn(t, "the log of the first", a.out.String(), `msg="making the streams of the cluster`)
	wantIn(t, "the log of the first", a.out.String(), "member=first id=")
	wantIn(t, "the log of the first", a.out.String(), `level=WARN msg="made a new cluster, with nothing in it"`)
	wantIn(t, "the log of the first", a.out.String(), `msg="created and joined the cluster"`)
	text := f.text
	f.text = strings.Replace(text, "lease-time: "+leaseTime.String(), "lease-time: 25s, replicas: 1, max-bytes: 1GiB", 1)
	b := f.serve("b")
	for _, want := range []string{"key=engine.lease-time wanted=25s actual=24s", "key=engine.replicas wanted=1 actual=3", `key=engine.max-bytes wanted=1073741824 actual="no limit"`, `msg="joined the cluster"`} {
		wantIn(t, "the log of the second", b.out.String(), want)
	}
	if strings.Contains(b.out.String(), "made ") {
		t.Errorf("who joins seems to make something: %s", b.out)
	}
	_, found := examined(t, f.text)
	wantIn(t, "the notes", found["note"], "engine.lease-time is 25s, and cluster")
	f.text = strings.Replace(text, "shards: 4", "shards: 8", 1)
	c := f.begin("c")
	wantCode(t, c.wait(), 125)
	wantIn(t, "the error", c.out.String(), "engine.shards: cluster ")
	wantIn(t, "the error", c.out.String(), "has 4, not 8, and the number can't be changed: write 4 or leave it out")
}

// The NATS servers lose all data. The commands and the log say that the cluster is lost, even when
// a server has created a new one.
func TestALostClusterIsNotTakenForANewOne(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 1)
	f := newClusterServers(t, shared+engineSection(nodes, "shop"))
	a := f.serve("a")
	wantCode(t, a.runCommand("run", "where", "--wait"), 0)
	nodes.Kill(0)
	if err := os.RemoveAll(nodes.Store(0)); err != nil {
		t.Fatal(err)
	}
	nodes.Restart(0)
	testwait.Until(t, "it is said that the stream is gone", func() bool {
		return strings.Contains(a.runCommand("cluster").stderr, "stream KV_shop-cluster was deleted")
	})
	a.signal(syscall.SIGKILL)
	a.wait()
	cmd, _ := command(t, "doctor", "--config", a.file, "--data", a.data)
	o := finish(t, cmd)
	wantCode(t, o, 1)
	wantIn(t, "what the doctor says", o.out, "broken  there is no cluster shop, but there has been: this process was in one")
	again := f.serve("a")
	wantIn(t, "the log", again.out.String(), `level=ERROR msg="made a NEW cluster`)
	wantCode(t, again.runCommand("run", "where", "--wait"), 0)
	again.signal(syscall.SIGTERM)
	wantCode(t, again.wait(), 0)
}

// The NATS servers lose all data, and another server creates the cluster again. A server that still
// runs ends with an error, and can then join the new cluster.
func TestAServerThatOutlivesItsClusterEnds(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 1)
	f := newClusterServers(t, shared+engineSection(nodes, "shop"))
	a := f.serve("a")
	wantCode(t, a.runCommand("run", "where", "--wait"), 0)
	nodes.Kill(0)
	if err := os.RemoveAll(nodes.Store(0)); err != nil {
		t.Fatal(err)
	}
	nodes.Restart(0)
	b := f.serve("b")
	wantIn(t, "the log of who made it anew", b.out.String(), `msg="made a new cluster`)
	wantCode(t, a.wait(), 125)
	wantIn(t, "the error", a.out.String(), "serve: engine: the cluster is not the one that this process has joined: the streams of cluster shop, created at ")
	wantIn(t, "the error", a.out.String(), "Start this process again, and it joins the new one")
	b.waitForShards(1)
	wantCode(t, b.runCommand("run", "where", "--wait"), 0)
	again := f.serve("a")
	wantIn(t, "the log of who is started again", again.out.String(), "this is not the cluster that this process was in before")
	again.waitForShards(2)
}

func TestTheDoctorSaysWhomItWaitsFor(t *testing.T) {
	t.Parallel()
	o, found := examined(t, "version: 1\nengine: {nats: 'nats://me:${env:PW}@127.0.0.1:1'}\n", "PW=PLANTED-pw")
	wantCode(t, o, 1)
	wantIn(t, "what it waits for", o.stderr, "waiting for NATS at nats://me:${env:PW}@127.0.0.1:1")
	wantIn(t, "what is broken", found["broken"], "connect to NATS at 127.0.0.1:1: ")
	wantIn(t, "what is broken", found["broken"], "connection refused")
	if strings.Contains(o.out+o.stderr, "PLANTED") {
		t.Errorf("the password shows: %+v", o)
	}
}

// One NATS server dies, and then another. The doctor reports which servers are missing.
func TestTheDoctorNamesWhoIsMissing(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 3)
	f := newClusterServers(t, shared+engineSection(nodes, "shop", "second-place: "+t.TempDir(), "system-user: system", "system-password: '${env:SYSTEM}'"))
	system := "SYSTEM=" + natstest.SystemPassword
	f.serve("a", system).waitForShards(1)
	dead := func(i int) string { return strings.TrimPrefix(nodes.NodeURL(i), "nats://") + " (connection refused)" }
	for i, want := range []struct{ severity, text string }{
		{"weak", "server n0 is not there; of 3 servers there are only n1, n2; no answer from " + dead(0) + "\n"},
		{"broken", "of 3 servers there are only n2; no answer from " + dead(0) + ", " + dead(1) + "\n"},
	} {
		nodes.Kill(i)
		var all map[string]string
		testwait.Until(t, "the doctor finds it, and nothing else", func() bool {
			_, all = examined(t, f.text, system)
			found := all["broken"] + all["weak"]
			return strings.Count(found, "\n") == 1 && strings.HasSuffix(all[want.severity], want.text)
		})
	}
}
