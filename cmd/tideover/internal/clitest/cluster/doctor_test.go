//go:build unix

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
)

func TestTheDoctorLooksAtAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() // there may be further findings about its file system
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	o, found := clitest.Examined(t, fmt.Sprintf("version: 1\nserver: {data: %s, durability: os}\n", dir))
	clitest.WantCode(t, o, 1)
	clitest.WantIn(t, "what is weak", found["weak"], "server.durability is os")
	clitest.WantIn(t, "what is weak", found["weak"], "is accessible to other users")
	if left, _ := filepath.Glob(filepath.Join(dir, ".doctor*")); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	o = clitest.Run(t, "doctor", "--config", filepath.Join(dir, "none.yaml"))
	clitest.WantCode(t, o, 125)
}

// If $TIDEOVER_SERVER names a server, that server runs the checks, because checks of this machine
// would not apply to it.
func TestTheDoctorAsksTheServer(t *testing.T) {
	t.Parallel()
	s := clitest.Serve(t, "version: 1\nserver: {durability: os}\n", "")
	o := s.RunCommand("doctor")
	clitest.WantCode(t, o, 1)
	clitest.WantIn(t, "doctor", o.Out, "runs are stored in the folder "+s.Data+" (checked by the server at ")
	clitest.WantIn(t, "doctor", o.Out, "weak    server.durability is os")
	other := filepath.Join(t.TempDir(), "other.yaml")
	clitest.WriteFile(t, other, "version: 1\nserver: {data: "+t.TempDir()+"}\n")
	if o := s.RunCommand("doctor", "--config", other); strings.Contains(o.Out, "server.durability") {
		t.Errorf("a file that is named is not what was looked at: %s", o.Out)
	}
	clitest.WantIn(t, "doctor --server --json", clitest.Run(t, "doctor", "--server", "unix:"+filepath.Join(s.Data, "tideover.sock"), "--json").Out, `"server.durability is os"`)
	clitest.WantCode(t, clitest.Run(t, "doctor", "--server", "unix:"+s.Data+"/none.sock"), cli.CodeOwn)
	both := clitest.Run(t, "doctor", "--server", "unix:"+filepath.Join(s.Data, "tideover.sock"), "--data", t.TempDir())
	clitest.WantCode(t, both, cli.CodeOwn)
	clitest.WantIn(t, "doctor --server --data", both.Stderr, "leave out one of them")
}

func TestTheDoctorSaysThatThereIsNothingToLookAt(t *testing.T) {
	t.Parallel()
	cmd, _ := clitest.Command(t, "doctor")
	cmd.Dir = clitest.ShortDir(t)
	cmd.Env = append(cmd.Env, "HOME="+cmd.Dir, "XDG_STATE_HOME=", "XDG_CONFIG_HOME=", "TIDEOVER_SERVER=", "TIDEOVER_CONFIG=")
	o := clitest.Finish(t, cmd)
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "doctor", o.Out, "no configuration file was found: the defaults were checked")
	clitest.WantIn(t, "doctor", o.Out, "does not exist yet")
}

// A server reports what it has found itself.
func TestTheDoctorOfAServerLooksAtItsCluster(t *testing.T) {
	t.Parallel()
	f := clitest.NewCluster(t, clitest.Shared+clitest.EngineSection(natstest.SharedNode(t), clitest.ClusterName(t)))
	a := f.Serve("a")
	testwait.Until(t, "the server reports that the cluster is weak", func() bool {
		o := a.RunCommand("doctor")
		return o.Code == 1 && strings.Contains(o.Out, "second place") && strings.Contains(o.Out, "can't be shown that the servers sync")
	})
}

// A cluster is set up as docs/cluster-howto.md says. The doctor reports nothing weak or broken, until one
// NATS server dies, and then another: it names the servers that are missing. Without a quorum a
// server still lists its workflows, and the answers that need the quorum say so instead of being
// empty. All runs continue once the quorum is back.
func TestNATSServersDie(t *testing.T) {
	t.Parallel()
	_, access, _ := strings.Cut(clitest.Blocks(t, "cluster-howto.md", "conf")[0], "\naccounts {")
	secrets := strings.NewReplacer("$NATS_PASSWORD", `"value-of-one"`, "$NATS_ADMIN", `"value-of-two"`)
	nodes := natstest.Start(t, 3, natstest.WithAccess("accounts {"+secrets.Replace(access)))
	text := strings.ReplaceAll(clitest.Blocks(t, "cluster-howto.md", "yaml")[0], "/mnt/backup/tideover", t.TempDir())
	text = regexp.MustCompile(`nats: \[.*\]`).ReplaceAllString(text, fmt.Sprintf("shards: 4\n  nats: %q", nodes.URL()))
	_, text, _ = strings.Cut(text, "\nworkflows:\n")
	f := clitest.NewCluster(t, clitest.Shared+text)
	env := []string{"NATS_PASSWORD=value-of-one", "NATS_ADMIN=value-of-two"}
	var o clitest.Outcome
	var found map[string]string
	defer func() {
		if t.Failed() {
			t.Logf("the last examination found %v; %+v", found, o)
		}
	}()
	if o, found = clitest.Examined(t, f.Text, env...); found["broken"]+found["weak"] != "" || found["note"] == "" {
		t.Errorf("a cluster that does not exist yet has %v; %+v", found, o)
	}
	a := f.Serve("a", env...)
	a.WaitForShards(1)
	testwait.Until(t, "nothing weakens a good cluster", func() bool { // copies may be behind for a moment
		cmd, _ := clitest.Command(t, "doctor", "--config", a.File, "--data", a.Data)
		cmd.Env = append(cmd.Env, env...)
		o = clitest.Finish(t, cmd)
		return o.Code == 0
	})
	clitest.WantIn(t, "what the doctor says", o.Out, "no problems found")
	if c := a.ClusterState(); len(c.Members) != 1 || c.Shards[0].Epoch != 1 {
		t.Errorf("the doctor has changed something: %+v", c)
	}
	if o := a.RunCommand("workflows"); o.Code != 0 || o.Stderr != "" {
		t.Errorf("with all servers: %+v", o)
	}
	waiting := a.StartRuns("patient", 1)

	dead := func(i int) string { return strings.TrimPrefix(nodes.NodeURL(i), "nats://") + " (connection refused)" }
	for i, want := range []struct{ severity, text string }{
		{"weak", "server n0 is not there; of 3 servers there are only n1, n2; no answer from " + dead(0) + "\n"},
		{"broken", "of 3 servers there are only n2; no answer from " + dead(0) + ", " + dead(1) + "\n"},
	} {
		nodes.Kill(i)
		testwait.Until(t, "the doctor finds it, and nothing else", func() bool {
			o, found = clitest.Examined(t, f.Text, env...)
			all := found["broken"] + found["weak"]
			return strings.Count(all, "\n") == 1 && strings.HasSuffix(found[want.severity], want.text)
		})
	}
	testwait.Until(t, "the leases have expired", func() bool {
		o := a.RunCommand("runs")
		return o.Code == 125 && strings.Contains(o.Stderr, "no process has the shard")
	})
	var all sync.WaitGroup // run the commands at once: each of them waits for NATS
	all.Go(func() { clitest.WantCode(t, a.RunCommand("schedules"), 125) })
	all.Go(func() {
		o := a.RunCommand("workflows")
		clitest.WantCode(t, o, 0)
		clitest.WantIn(t, "the workflows", o.Out, "patient\n")
		clitest.WantIn(t, "the warning", o.Stderr, "schedules and pauses may be missing: ")
	})
	all.Go(func() {
		o := a.RunCommand("workflows", "--json")
		clitest.WantCode(t, o, 0)
		if !strings.HasPrefix(o.Out, `{"workflows":[{"name":"long"`) || !strings.Contains(o.Out, `"schedules_missing":"`) {
			t.Errorf("workflows --json: %s", o.Out)
		}
	})
	all.Wait()

	nodes.Restart(0)
	nodes.Restart(1)
	f.Open()
	a.WaitForSuccess(waiting)
	clitest.WantCode(t, a.RunCommand("run", "where", "--wait"), 0)
	a.Signal(syscall.SIGTERM)
	clitest.WantCode(t, a.End(), 0)
}
