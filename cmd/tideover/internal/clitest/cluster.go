//go:build unix

package clitest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
)

// LeaseTime is long, so that a server does not lose its leases when the machine stalls for
// seconds. The tests still end soon: the other servers take over from a server that has lost
// its connection after a quarter of this time.
const LeaseTime = 24 * time.Second

// ClusterName returns a name for the cluster of a test.
func ClusterName(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("t%d", time.Now().UnixNano())
}

// EngineSection returns the section engine of a configuration that joins the cluster with this
// name. more has further keys.
func EngineSection(nodes *natstest.Cluster, name string, more ...string) string {
	return fmt.Sprintf("engine: {nats: %q, name: %s, shards: 4, lease-time: %v%s}\n", nodes.URL(), name, LeaseTime, strings.Join(append([]string{""}, more...), ", "))
}

// Shared is a configuration with workflows whose output names the server that has run them.
const Shared = `version: 1
workflows:
  where:
    steps:
      - {id: say, run: [sh, -c, 'echo $PLACE']}
  patient:
    steps:
      - {id: fail, run: [sh, -c, 'test -e $GATE && echo $PLACE || exit 75'], policy: fixed(1s) attempts=unlimited}
  long:
    steps:
      - id: sleep
        run: [sh, -c, 'echo "begin $PLACE $TIDEOVER_RUN_ID" >> $WITNESS; while ! test -e $GATE; do sleep 0.2; done; echo "end $PLACE $TIDEOVER_RUN_ID" >> $WITNESS; echo $PLACE']
        policy: fixed(100ms) attempts=5
`

// Cluster starts servers of one cluster.
type Cluster struct {
	t       *testing.T
	Dir     string
	gate    string // path of a file; commands end when it exists
	Witness string // path of a file that commands append lines to
	Text    string // configuration of servers that are started from now on
}

// NewCluster returns a cluster without servers. text is their configuration.
func NewCluster(t *testing.T, text string) *Cluster {
	t.Helper()
	dir := ShortDir(t)
	return &Cluster{t: t, Dir: dir, gate: filepath.Join(dir, "gate"), Witness: filepath.Join(dir, "witness"), Text: text}
}

// Serve starts a server with a folder of its own, and waits until it serves.
func (f *Cluster) Serve(place string, env ...string) *Server {
	f.t.Helper()
	s := f.Begin(place, env...)
	s.AwaitReady()
	return s
}

// Begin starts a server with a folder of its own.
func (f *Cluster) Begin(place string, env ...string) *Server {
	f.t.Helper()
	dir := filepath.Join(f.Dir, place)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		f.t.Fatal(err)
	}
	return BeginServe(f.t, f.Text, dir, append([]string{"PLACE=" + place, "GATE=" + f.gate, "WITNESS=" + f.Witness, "TIDEOVER_SERVER_ENV_INHERIT=DIR,PLACE,GATE,WITNESS"}, env...)...)
}

// Open lets commands end that wait for $GATE.
func (f *Cluster) Open() { WriteFile(f.t, f.gate, "") }

// ClusterState returns the cluster as this server sees it.
func (s *Server) ClusterState() (c admin.Cluster) {
	s.T.Helper()
	o := s.RunCommand("cluster", "--json")
	if o.Code == 0 {
		if err := json.Unmarshal([]byte(o.Out), &c); err != nil {
			s.T.Fatalf("cluster: %v in %q", err, o.Out)
		}
	}
	return c
}

// WaitForShards waits until all shards have owners and the cluster has this many members.
func (s *Server) WaitForShards(members int) {
	s.T.Helper()
	testwait.Until(s.T, fmt.Sprintf("%d members share all shards", members), func() bool {
		c := s.ClusterState()
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

// WithPasswords are accounts of NATS servers whose users have passwords.
const WithPasswords = `
accounts {
	TEST { jetstream: enabled, users: [{user: "me", password: "right-PLANTED-pw"}] }
	$SYS { users: [{user: "system", password: "system-PLANTED-pw"}] }
}
`
