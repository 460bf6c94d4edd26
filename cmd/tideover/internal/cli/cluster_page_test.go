//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
)

// docs/cluster.md lists the same keys as the schema of the configuration.
func TestThePageOfTheClusterHasEveryKey(t *testing.T) {
	t.Parallel()
	var schema struct {
		Properties struct {
			Engine struct {
				Properties map[string]any `json:"properties"`
			} `json:"engine"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(config.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(page(t, "cluster.md"), "\n| key | meaning | default |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var told []string
	for row := range strings.Lines(table) {
		first, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		for _, m := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(first, -1) {
			told = append(told, m[1])
		}
	}
	var keys []string
	for key := range schema.Properties.Engine.Properties {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	slices.Sort(told)
	if len(keys) == 0 || !slices.Equal(keys, told) {
		t.Errorf("docs/cluster.md has the keys %v, the schema %v", told, keys)
	}
}

// nats-server itself checks the configurations in docs/cluster.md.
func TestTheServersOfThePageAreGood(t *testing.T) {
	t.Parallel()
	binary, err := natstest.Build()
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	for _, text := range blocks(t, "cluster.md", "conf") {
		file := filepath.Join(dir, "server.conf")
		write(t, file, strings.ReplaceAll(text, "/var/lib/nats", dir))
		cmd := exec.CommandContext(t.Context(), binary, "-c", file, "-t")
		cmd.Env = append(os.Environ(), "NATS_PASSWORD=x", "NATS_ADMIN=y")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("the server says of %s: %v: %s", text, err, out)
		}
	}
}

// A cluster is set up as docs/cluster.md says. The doctor reports nothing weak or broken.
func TestWhoFollowsThePageHasNothingWeak(t *testing.T) {
	t.Parallel()
	_, access, _ := strings.Cut(blocks(t, "cluster.md", "conf")[0], "\naccounts {")
	secrets := strings.NewReplacer("$NATS_PASSWORD", `"value-of-one"`, "$NATS_ADMIN", `"value-of-two"`)
	nodes := natstest.Start(t, 3, natstest.WithAccess("accounts {"+secrets.Replace(access)))
	place := t.TempDir()
	text := strings.ReplaceAll(blocks(t, "cluster.md", "yaml")[0], "/mnt/backup/tideover", place)
	text = regexp.MustCompile(`nats: \[.*\]`).ReplaceAllString(text, fmt.Sprintf("nats: %q", nodes.URL()))
	env := []string{"NATS_PASSWORD=value-of-one", "NATS_ADMIN=value-of-two"}
	f := newClusterServers(t, text)
	a := f.serve("a", env...)
	a.waitForShards(1)
	var o outcome
	testwait.Until(t, "nothing is weak", func() bool { // copies may be behind for a moment
		cmd, _ := command(t, "doctor", "--config", a.file, "--data", a.data)
		cmd.Env = append(cmd.Env, env...)
		o = finish(t, cmd)
		return o.code == 0
	})
	wantIn(t, "what the doctor says", o.out, "no problems found")
	a.signal(syscall.SIGTERM)
	wantCode(t, a.wait(), 0)
}
