//go:build unix

package cluster_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// The commands of "Three nodes on one laptop" in docs/cluster.md work as written, except for the
// ports, and with a NATS server of the test.
func TestThreeNodesOnOneLaptop(t *testing.T) {
	t.Parallel()
	_, text, _ := strings.Cut(clitest.ReadPage(t, "cluster.md"), "\n## Three nodes on one laptop\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var scripts []string
	for _, b := range clitest.FencedIn(text) {
		if b.Language == "sh" {
			scripts = append(scripts, b.Text)
		}
	}
	if len(scripts) != 4 {
		t.Fatalf("the page has %d scripts", len(scripts))
	}
	k := clitest.EmptyRecipe(t)
	k.Env = append(k.Env, "TIDEOVER_SERVER=unix:b/tideover.sock")
	nodes := natstest.SharedNode(t)
	file, starts, found := strings.Cut(scripts[1], "\nEOF\n")
	if !found || !strings.Contains(file, "nats://127.0.0.1:4222") {
		t.Fatalf("the page has no file: %s", scripts[1])
	}
	clitest.WantCode(t, clitest.Finish(t, k.Command("sh", "-ec", strings.Replace(file, "nats://127.0.0.1:4222", nodes.URL(), 1)+"\nEOF\n")), 0)

	var processes []*exec.Cmd
	port := regexp.MustCompile(`127\.0\.0\.1:700[123]`)
	for line := range strings.Lines(starts) {
		command, _, _ := strings.Cut(line, " & ")
		cmd := k.Command("sh", "-c", port.ReplaceAllString("exec env "+command, "127.0.0.1:0"))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		processes = append(processes, cmd)
		t.Cleanup(func() {
			_ = cmd.Cancel()
			_ = cmd.Wait()
		})
	}
	if len(processes) != 3 {
		t.Fatalf("the page starts %d processes", len(processes))
	}
	member := regexp.MustCompile(`(?m)^\w+ +([abc])( \(this server\))? +1[01] `)
	testwait.Until(t, "each of the three members has a third of the shards", func() bool {
		return len(member.FindAllString(clitest.Finish(t, k.Command("sh", "-c", scripts[2])).Out, -1)) == 3
	})

	starting, rest, _ := strings.Cut(scripts[3], "\n")
	if rest != "kill -9 $a\ntideover runs --watch\n" {
		t.Errorf("the page ends with %s", rest)
	}
	clitest.WantCode(t, clitest.Finish(t, k.Command("sh", "-ec", starting)), 0)
	if err := processes[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "all runs succeed", func() bool {
		return strings.Count(clitest.Finish(t, k.Command("tideover", "runs")).Out, "succeeded") == 9
	})
}
