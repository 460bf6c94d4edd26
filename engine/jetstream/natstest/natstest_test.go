package natstest_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/tideover/tideover/engine/jetstream/natstest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	natstest.StopShared()
	os.Exit(code)
}

func TestVersionIsThatOfTheModule(t *testing.T) {
	mod, err := os.ReadFile("server/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(mod, []byte("github.com/nats-io/nats-server/v2 "+natstest.Version+" ")) {
		t.Errorf("server/go.mod does not require the server in version %s", natstest.Version)
	}
}

func TestOneNode(t *testing.T) {
	c := natstest.Start(t, 1)
	c.Kill(0)
	c.Restart(0)
	c.WaitReady()
}

func TestThreeNodesAreCutOffAndKilledAndComeBack(t *testing.T) {
	c := natstest.Start(t, 3, natstest.WithProxies())
	first := c.MetaLeader()
	c.Cut(first)
	if nc, err := nats.Connect(c.NodeURL(first)); err == nil {
		nc.Close()
		t.Error("a node that is cut off can be reached")
	}
	c.Heal(first)
	c.WaitReady()
	nc, err := nats.Connect(c.NodeURL(first), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	c.Kill(c.MetaLeader())
	c.WaitReady()
	for i := range c.Nodes() {
		c.Kill(i)
		c.Restart(i)
	}
	c.WaitReady()
}
