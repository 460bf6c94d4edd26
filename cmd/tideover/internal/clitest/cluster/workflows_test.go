//go:build unix

package cluster_test

import (
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// Two of three NATS servers die. The server can still list its workflows, but not the schedules and
// the pauses.
func TestWorkflowsAreKnownWithoutQuorum(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 3)
	f := clitest.NewCluster(t, clitest.Shared+clitest.EngineSection(nodes, "shop"))
	a := f.Serve("a")
	a.WaitForShards(1)
	if o := a.RunCommand("workflows"); o.Code != 0 || o.Stderr != "" {
		t.Errorf("with all servers: %+v", o)
	}
	nodes.Kill(1)
	nodes.Kill(2)
	testwait.Until(t, "the schedules are not known any more", func() bool { return a.RunCommand("schedules").Code == 125 })
	o := a.RunCommand("workflows")
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "the workflows", o.Out, "patient\n")
	clitest.WantIn(t, "the warning", o.Stderr, "schedules and pauses may be missing: ")
	o = a.RunCommand("workflows", "--json")
	clitest.WantCode(t, o, 0)
	if !strings.HasPrefix(o.Out, `{"workflows":[{"name":"long"`) || !strings.Contains(o.Out, `"schedules_missing":"`) {
		t.Errorf("workflows --json: %s", o.Out)
	}
}
