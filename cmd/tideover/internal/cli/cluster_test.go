//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
)

// leaseTime is long, so that a server does not lose its leases when the machine stalls for
// seconds. The tests still end soon: the other servers take over from a server that has lost
// its connection after a quarter of this time.
const leaseTime = 24 * time.Second

// clusterName returns a name for the cluster of a test.
func clusterName(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("t%d", time.Now().UnixNano())
}

// engineSection returns the section engine of a configuration that joins the cluster with this
// name. more has further keys.
func engineSection(nodes *natstest.Cluster, name string, more ...string) string {
	return fmt.Sprintf("engine: {nats: %q, name: %s, shards: 4, lease-time: %v%s}\n", nodes.URL(), name, leaseTime, strings.Join(append([]string{""}, more...), ", "))
}

// shared is a configuration with workflows whose output names the server that has run them.
const shared = `version: 1
workflows:
  where:
    steps:
      - {id: say, run: [sh, -c, 'echo $PLACE']}
  patient:
    steps:
      - {id: fail, run: [sh, -c, 'test -e $GATE && echo $PLACE || exit 75'], policy: fixed(300ms) attempts=unlimited}
  long:
    steps:
      - id: sleep
        run: [sh, -c, 'echo "begin $PLACE $TIDEOVER_RUN_ID" >> $WITNESS; while ! test -e $GATE; do sleep 0.05; done; echo "end $PLACE $TIDEOVER_RUN_ID" >> $WITNESS; echo $PLACE']
        policy: fixed(100ms) attempts=5
`

// clusterServers starts servers of one cluster.
type clusterServers struct {
	t       *testing.T
	dir     string
	gate    string // path of a file; commands end when it exists
	witness string // path of a file that commands append lines to
	text    string // configuration of servers that are started from now on
}

func newClusterServers(t *testing.T, text string) *clusterServers {
	t.Helper()
	dir := shortDir(t)
	return &clusterServers{t: t, dir: dir, gate: filepath.Join(dir, "gate"), witness: filepath.Join(dir, "witness"), text: text}
}

// serve starts a server with a folder of its own, and waits until it serves.
func (f *clusterServers) serve(place string, env ...string) *serverProcess {
	f.t.Helper()
	s := f.begin(place, env...)
	s.serves()
	return s
}

// begin starts a server with a folder of its own.
func (f *clusterServers) begin(place string, env ...string) *serverProcess {
	f.t.Helper()
	dir := filepath.Join(f.dir, place)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		f.t.Fatal(err)
	}
	return beginServe(f.t, f.text, dir, append([]string{"PLACE=" + place, "GATE=" + f.gate, "WITNESS=" + f.witness, "TIDEOVER_SERVER_ENV_INHERIT=DIR,PLACE,GATE,WITNESS"}, env...)...)
}

func (f *clusterServers) open() { write(f.t, f.gate, "") }

// seen returns the lines that the commands have written to the witness file.
func (f *clusterServers) seen() string {
	text, _ := os.ReadFile(f.witness)
	return string(text)
}

// clusterState returns the cluster as this server sees it.
func (s *serverProcess) clusterState() (c control.Cluster) {
	s.t.Helper()
	o := s.runCommand("cluster", "--json")
	if o.code == 0 {
		if err := json.Unmarshal([]byte(o.out), &c); err != nil {
			s.t.Fatalf("cluster: %v in %q", err, o.out)
		}
	}
	return c
}

// waitForShards waits until all shards have owners and the cluster has this many members.
func (s *serverProcess) waitForShards(members int) {
	s.t.Helper()
	testwait.Until(s.t, fmt.Sprintf("%d members share all shards", members), func() bool {
		c := s.clusterState()
		if len(c.Members) != members || len(c.Silent) > 0 {
			return false
		}
		for i := range c.Members {
			if c.Owned(&c.Members[i]) != len(c.Shards)/members {
				return false
			}
		}
		return true
	})
}

func TestTwoServersShareACluster(t *testing.T) {
	t.Parallel()
	nodes := natstest.Shared(t)
	f := newClusterServers(t, shared+engineSection(nodes, clusterName(t)))
	a, b := f.serve("a"), f.serve("b")
	a.waitForShards(2)

	// A run that one server has started can run on both servers, and both list it.
	places := map[string]bool{}
	for i := 0; len(places) < 2; i++ {
		if i == 100 {
			t.Fatalf("100 runs ran at %v only", places)
		}
		o := a.runCommand("run", "where", "--wait", "--key", strconv.Itoa(i))
		wantCode(t, o, 0)
		for _, place := range []string{"a", "b"} {
			if strings.Contains(o.out, `"`+place+`\n"`) {
				places[place] = true
			}
		}
	}
	waiting := strings.TrimSpace(a.runCommand("run", "patient", "--key", "order 1").out)
	testwait.Until(t, "the other knows it", func() bool { return b.runCommand("show", waiting).code == 0 })
	if o := b.runCommand("run", "patient", "--key", "order 1"); strings.TrimSpace(o.out) != waiting {
		t.Errorf("the key is another run elsewhere: %+v, want %s", o, waiting)
	}
	wantCode(t, b.runCommand("cancel", "order 1"), 0)
	if i := a.show(waiting); i.State != "canceled" {
		t.Errorf("canceled at one, at the other it is %s", i.State)
	}
	late := strings.TrimSpace(b.runCommand("run", "patient").out)
	f.open()
	o := a.runCommand("run", "patient", "--wait")
	wantCode(t, o, 0)
	testwait.Until(t, "what waited is done", func() bool { return a.show(late).State == "succeeded" })
	testwait.Until(t, "both list the same", func() bool {
		return a.runCommand("runs", "--json", "--limit", "1000").out == b.runCommand("runs", "--json", "--limit", "1000").out
	})

	// After an orderly shutdown, the other server takes over at once.
	b.signal(syscall.SIGTERM)
	wantCode(t, b.wait(), 0)
	a.waitForShards(1)
	wantCode(t, a.runCommand("run", "where", "--wait"), 0)
	a.signal(syscall.SIGTERM)
	wantCode(t, a.wait(), 0)
}

// status returns the status of a server.
func (s *serverProcess) status() (st control.Status) {
	s.t.Helper()
	o := s.runCommand("status", "--json")
	if err := json.Unmarshal([]byte(o.out), &st); err != nil {
		s.t.Fatalf("status: %v in %+v", err, o)
	}
	return st
}
