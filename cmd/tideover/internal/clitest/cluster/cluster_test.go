//go:build unix

package cluster_test

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// seen returns the lines that the commands have written to the witness file.
func seen(f *clitest.Cluster) string {
	text, _ := os.ReadFile(f.Witness)
	return string(text)
}

func TestTwoServersShareACluster(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	f := clitest.NewCluster(t, clitest.Shared+clitest.EngineSection(nodes, clitest.ClusterName(t)))
	a, b := f.Serve("a"), f.Serve("b")
	a.WaitForShards(2)

	// A run that one server has started can run on both servers, and both list it.
	places := map[string]bool{}
	for i := 0; len(places) < 2; i++ {
		if i == 100 {
			t.Fatalf("100 runs ran at %v only", places)
		}
		o := a.RunCommand("run", "where", "--wait", "--key", strconv.Itoa(i))
		clitest.WantCode(t, o, 0)
		for _, place := range []string{"a", "b"} {
			if strings.Contains(o.Out, `"`+place+`\n"`) {
				places[place] = true
			}
		}
	}
	waiting := strings.TrimSpace(a.RunCommand("run", "patient", "--key", "order 1").Out)
	testwait.Until(t, "the other knows it", func() bool { return b.RunCommand("show", waiting).Code == 0 })
	if o := b.RunCommand("run", "patient", "--key", "order 1"); strings.TrimSpace(o.Out) != waiting {
		t.Errorf("the key is another run elsewhere: %+v, want %s", o, waiting)
	}
	clitest.WantCode(t, b.RunCommand("cancel", "order 1"), 0)
	if i := a.Show(waiting); i.State != "canceled" {
		t.Errorf("canceled at one, at the other it is %s", i.State)
	}
	late := strings.TrimSpace(b.RunCommand("run", "patient").Out)
	f.Open()
	o := a.RunCommand("run", "patient", "--wait")
	clitest.WantCode(t, o, 0)
	testwait.Until(t, "what waited is done", func() bool { return a.Show(late).State == "succeeded" })
	testwait.Until(t, "both list the same", func() bool {
		return a.RunCommand("runs", "--json", "--limit", "1000").Out == b.RunCommand("runs", "--json", "--limit", "1000").Out
	})

	// After an orderly shutdown, the other server takes over at once.
	b.Signal(syscall.SIGTERM)
	clitest.WantCode(t, b.End(), 0)
	a.WaitForShards(1)
	clitest.WantCode(t, a.RunCommand("run", "where", "--wait"), 0)
	a.Signal(syscall.SIGTERM)
	clitest.WantCode(t, a.End(), 0)
}

// status returns the status of a server.
func status(s *clitest.Server) (st admin.Status) {
	s.T.Helper()
	o := s.RunCommand("status", "--json")
	if err := json.Unmarshal([]byte(o.Out), &st); err != nil {
		s.T.Fatalf("status: %v in %+v", err, o)
	}
	return st
}
