//go:build unix

package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// nats-server itself checks the configurations in docs/cluster-howto.md.
func TestTheServersOfThePageAreGood(t *testing.T) {
	t.Parallel()
	binary, err := natstest.Build()
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	for _, text := range clitest.Blocks(t, "cluster-howto.md", "conf") {
		file := filepath.Join(dir, "server.conf")
		clitest.WriteFile(t, file, strings.ReplaceAll(text, "/var/lib/nats", dir))
		cmd := exec.CommandContext(t.Context(), binary, "-c", file, "-t")
		cmd.Env = append(os.Environ(), "NATS_PASSWORD=x", "NATS_ADMIN=y")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("the server says of %s: %v: %s", text, err, out)
		}
	}
}

// A cluster is set up as docs/cluster-howto.md says. The doctor reports nothing weak or broken.
func TestWhoFollowsThePageHasNothingWeak(t *testing.T) {
	t.Parallel()
	_, access, _ := strings.Cut(clitest.Blocks(t, "cluster-howto.md", "conf")[0], "\naccounts {")
	secrets := strings.NewReplacer("$NATS_PASSWORD", `"value-of-one"`, "$NATS_ADMIN", `"value-of-two"`)
	nodes := natstest.Start(t, 3, natstest.WithAccess("accounts {"+secrets.Replace(access)))
	place := t.TempDir()
	text := strings.ReplaceAll(clitest.Blocks(t, "cluster-howto.md", "yaml")[0], "/mnt/backup/tideover", place)
	text = regexp.MustCompile(`nats: \[.*\]`).ReplaceAllString(text, fmt.Sprintf("nats: %q", nodes.URL()))
	env := []string{"NATS_PASSWORD=value-of-one", "NATS_ADMIN=value-of-two"}
	f := clitest.NewCluster(t, text)
	a := f.Serve("a", env...)
	a.WaitForShards(1)
	var o clitest.Outcome
	testwait.Until(t, "nothing is weak", func() bool { // copies may be behind for a moment
		cmd, _ := clitest.Command(t, "doctor", "--config", a.File, "--data", a.Data)
		cmd.Env = append(cmd.Env, env...)
		o = clitest.Finish(t, cmd)
		return o.Code == 0
	})
	clitest.WantIn(t, "what the doctor says", o.Out, "no problems found")
	a.Signal(syscall.SIGTERM)
	clitest.WantCode(t, a.End(), 0)
}
