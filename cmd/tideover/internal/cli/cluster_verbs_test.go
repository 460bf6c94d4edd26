//go:build unix

package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestAServerWithoutACluster(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	o := s.runCommand("cluster")
	clitest.WantCode(t, o, CodeUnknown)
	clitest.WantIn(t, "the error", o.Stderr, "this server is in no cluster; to make it a member of a cluster, set engine.nats in its configuration")
}

func TestAClusterForPeople(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	c := &admin.Cluster{ClusterInfo: engine.ClusterInfo{
		Self:    "a1",
		Members: []journal.Member{{ID: "a1", Name: "box\x1b-1", Joined: now.Add(-2 * time.Hour), Silence: 400 * time.Millisecond}},
		Shards: []engine.ShardInfo{
			{Shard: journal.Shard{Number: 0, Owner: "a1", Epoch: 3, First: 5, Last: 24, Bytes: 12_345, Lag: 2}, Name: "box\x1b-1", Running: 1, Waiting: 7},
			{Shard: journal.Shard{Number: 1, Epoch: 1, First: 1}},
			{Shard: journal.Shard{Number: 2, Owner: "b2", Error: "no quorum"}},
		},
		Silent: []int{1},
	}, Troubles: []engine.Trouble{{What: "can't work on shard 2", Since: now, Error: "no quorum"}}}
	s := &screen{now: now, zone: time.UTC}
	want := []string{
		`MEMBER  NAME                     SHARDS  JOINED  HEARD`,
		`a1      box\x1b-1 (this server)  1       2h ago  400ms ago`,
		``,
		`SHARD  OWNER      EPOCH  ENTRIES  BYTES    LAG  RUNNING  WAITING`,
		`0      box\x1b-1  3      20       12.3 kB  2    1        7`,
		`1      none       1      0        0 B      0    ?        ?`,
		`2      b2         0      ?        ?        ?    0        0`,
		`shard 1: no answer`,
		`shard 2: no quorum`,
		`can't work on shard 2 since 2026-11-15 12:00:00 +00:00: no quorum`,
	}
	got := renderCluster(c, s)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	c.Members[0].Name, c.Shards[0].Name, c.Members[0].ID = strings.Repeat("x", 80), strings.Repeat("x", 80), c.Self+"23456789"
	c.Self, c.Shards[0].Epoch, c.Shards[0].Last = c.Members[0].ID, 99_999, 9_999_999
	for _, line := range renderCluster(c, s) {
		if len([]rune(line)) > 100 {
			t.Errorf("a line has more than 100 columns: %s", line)
		}
	}
	if text, err := json.Marshal(c); err != nil || !strings.Contains(string(text), `"silence_ns":400000000`) {
		t.Errorf("as JSON: %s, %v", text, err)
	}
}
