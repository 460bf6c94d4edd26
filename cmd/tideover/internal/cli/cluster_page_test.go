//go:build unix

package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/engine/jetstream/natstest"
)

// TestThePageOfTheClusterHasEveryKey compares it with the schema.
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
	_, table, _ := strings.Cut(page(t, "cluster.md"), "\n| key | what it is | unless said |\n")
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

// TestTheServersOfThePageAreGood asks the server itself about the configuration
// that the page gives it.
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

// TestVerbsOfThePageAreThere asks for the help of each.
func TestVerbsOfThePageAreThere(t *testing.T) {
	t.Parallel()
	for _, line := range prompted(t, "cluster.md") {
		args := strings.Fields(line)
		if args[0] != "tideover" {
			t.Errorf("the page has %q", line)
			continue
		}
		wantCode(t, tideover(t, args[1], "--help"), 0)
	}
}
