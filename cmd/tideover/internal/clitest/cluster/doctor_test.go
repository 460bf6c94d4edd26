//go:build unix

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

func TestTheDoctorLooksAtACluster(t *testing.T) {
	t.Parallel()
	nodes := natstest.Shared(t)
	name := clitest.ClusterName(t)
	second := t.TempDir()
	good := clitest.EngineSection(nodes, name, "second-place: "+second, "system-user: system", "system-password: '${env:SYSTEM}'")
	f := clitest.NewCluster(t, clitest.Shared+good)
	system := "SYSTEM=" + natstest.SystemPassword
	if o, found := clitest.Examined(t, f.Text, system); found["broken"]+found["weak"] != "" || found["note"] == "" {
		t.Errorf("one that does not exist yet has %v; %+v", found, o)
	}
	a := f.Serve("a", system)
	a.WaitForShards(1)
	var o clitest.Outcome
	var found map[string]string
	defer func() {
		if t.Failed() {
			t.Logf("the last examination found %v; %+v", found, o)
		}
	}()
	testwait.Until(t, "nothing weakens a good cluster", func() bool { // a server may be behind for a moment
		o, found = clitest.Examined(t, f.Text, system)
		return found["broken"]+found["weak"] == ""
	})
	clitest.WantCode(t, o, 0)
	if c := a.ClusterState(); len(c.Members) != 1 || c.Shards[0].Epoch != 1 {
		t.Errorf("the doctor has changed something: %+v", c)
	}
	o, found = clitest.Examined(t, "version: 1\n"+clitest.EngineSection(nodes, name))
	clitest.WantCode(t, o, 1)
	clitest.WantIn(t, "what is weak", found["weak"], "second place")
	clitest.WantIn(t, "what is weak", found["weak"], "can't be shown that the servers sync")

	// A server reports what it has found itself.
	f.Text = clitest.Shared + clitest.EngineSection(nodes, name)
	b := f.Serve("b")
	testwait.Until(t, "the server reports that the cluster is weak", func() bool {
		o = b.RunCommand("doctor")
		return o.Code == 1 && strings.Contains(o.Out, "second place") && strings.Contains(o.Out, "can't be shown that the servers sync")
	})
}
