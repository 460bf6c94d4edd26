//go:build unix

package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"

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
