package journaltest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

var memberTests = []clusterTest{
	{"all know how many shards there are", func(t *testing.T, c *cluster) {
		for _, m := range c.join(t, 2) {
			if m.Shards() != clusterShards {
				t.Errorf("%s: Shards() = %d; want %d", m.Member(), m.Shards(), clusterShards)
			}
		}
	}},
	{"a member alone should own everything", func(t *testing.T, c *cluster) {
		m := c.join(t, 1)[0]
		if shards, _ := m.Assigned(); !slices.Equal(shards, []int{0, 1, 2, 3}) {
			t.Errorf("Assigned() = %d; want all %d", shards, clusterShards)
		}
	}},
	{"members share all shards, evenly, and each is assigned once", func(t *testing.T, c *cluster) {
		for _, count := range []int{2, 3, 5} {
			members := c.join(t, count) // which waits for that
			for _, m := range members {
				c.close(t, m)
			}
		}
	}},
	{"members have ids of their own, and keep them", func(t *testing.T, c *cluster) {
		members := c.join(t, 2)
		members = append(members, c.open(t, c.dir, clusterShards))
		t.Cleanup(func() { c.close(t, members[2]) })
		var before, after []string
		for _, m := range members {
			before = append(before, m.Member())
		}
		wantAgreement(t, members...)
		for _, m := range members {
			after = append(after, m.Member())
		}
		if !slices.Equal(before, after) {
			t.Errorf("the members are %q, before %q", after, before)
		}
		slices.Sort(after)
		if after[0] == "" || len(slices.Compact(after)) != 3 {
			t.Errorf("the members are %q; want three ids", after)
		}
	}},
	{"a member that comes or goes is announced", func(t *testing.T, c *cluster) {
		first := c.join(t, 1)[0]
		for range 2 {
			_, came := first.Assigned()
			second := c.open(t, c.dir, clusterShards)
			t.Cleanup(func() { c.close(t, second) })
			testwait.Receive(t, "a member comes", came)
			awaitAssigned(t, first, clusterShards/2)
			awaitAssigned(t, second, clusterShards/2)
			_, went := first.Assigned()
			c.close(t, second)
			testwait.Receive(t, "a member goes", went)
			awaitAssigned(t, first, clusterShards)
		}
	}},
	{"what is assigned belongs to the caller", func(t *testing.T, c *cluster) {
		m := c.join(t, 1)[0]
		shards, _ := m.Assigned()
		clear(shards)
		if again, _ := m.Assigned(); !slices.Equal(again, []int{0, 1, 2, 3}) {
			t.Errorf("Assigned() = %d after the caller has changed the last one", again)
		}
	}},
	{"a closed member is none any more", func(t *testing.T, c *cluster) {
		members := c.join(t, 3)
		gone := members[0].Member()
		c.close(t, members[0])
		wantAgreement(t, members[1:]...)
		eventuallyStatus(t, members[1], func(s journal.Status) string {
			if slices.ContainsFunc(s.Members, func(m journal.Member) bool { return m.ID == gone }) {
				return "the closed member is listed"
			}
			return ""
		})
	}},
}

// awaitAssigned waits until a member is assigned so many shards, and for nothing
// but what it announces.
func awaitAssigned(t *testing.T, m journal.Cluster, want int) {
	t.Helper()
	for {
		shards, changed := m.Assigned()
		if len(shards) == want {
			return
		}
		what := fmt.Sprintf("%s announces a change of Assigned(), which is %d; want %d shards", m.Member(), shards, want)
		testwait.Receive(t, what, changed)
	}
}
