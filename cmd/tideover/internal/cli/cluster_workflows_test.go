//go:build unix

package cli

import (
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
)

// Two of three NATS servers die. The server can still list its workflows, but not the schedules and
// the pauses.
func TestWorkflowsAreKnownWithoutQuorum(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 3)
	f := newClusterServers(t, shared+engineSection(nodes, "shop"))
	a := f.serve("a")
	a.waitForShards(1)
	if o := a.runCommand("workflows"); o.code != 0 || o.stderr != "" {
		t.Errorf("with all servers: %+v", o)
	}
	nodes.Kill(1)
	nodes.Kill(2)
	testwait.Until(t, "the schedules are not known any more", func() bool { return a.runCommand("schedules").code == 125 })
	o := a.runCommand("workflows")
	wantCode(t, o, 0)
	wantIn(t, "the workflows", o.out, "patient\n")
	wantIn(t, "the warning", o.stderr, "schedules and pauses may be missing: ")
	o = a.runCommand("workflows", "--json")
	wantCode(t, o, 0)
	if !strings.HasPrefix(o.out, `{"workflows":[{"name":"long"`) || !strings.Contains(o.out, `"schedules_missing":"`) {
		t.Errorf("workflows --json: %s", o.out)
	}
}
