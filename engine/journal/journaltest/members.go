package journaltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

var memberTests = []clusterTest{
	{"all know how many shards there are", 2, func(t *testing.T, c *cluster, members []Process) {
		for _, m := range members {
			if m.Shards() != clusterShards {
				t.Errorf("%s: Shards() = %d; want %d", m.Member(), m.Shards(), clusterShards)
			}
		}
	}},
	{"a member alone should own everything", 1, func(t *testing.T, c *cluster, members []Process) {
		m := members[0]
		if shards, _ := m.Assigned(); !slices.Equal(shards, []int{0, 1, 2, 3}) {
			t.Errorf("Assigned() = %d; want all %d", shards, clusterShards)
		}
	}},
	{"members share all shards, evenly, and each is assigned once", 0, func(t *testing.T, c *cluster, _ []Process) {
		for _, count := range []int{2, 3, 5} {
			members := c.join(t, count) // which waits for that
			for _, m := range members {
				c.close(t, m)
			}
		}
	}},
	{"members have ids of their own, and keep them", 2, func(t *testing.T, c *cluster, members []Process) {
		members = append(members, c.open(t, c.dir, clusterShards))
		t.Cleanup(func() { c.close(t, members[2]) })
		before := idsOf(members)
		wantAgreement(t, members...)
		after := idsOf(members)
		if !slices.Equal(before, after) {
			t.Errorf("the members are %q, before %q", after, before)
		}
		slices.Sort(after)
		if after[0] == "" || len(slices.Compact(after)) != 3 {
			t.Errorf("the members are %q; want three ids", after)
		}
	}},
	{"members publish the format that they can read", 2, func(t *testing.T, c *cluster, members []Process) {
		want := slices.Sorted(slices.Values(idsOf(members)))
		for _, m := range members {
			eventually(t, func(context.Context) error {
				if behind := m.Behind(journal.Format); len(behind) != 0 {
					return fmt.Errorf("Behind(%d) = %+v; want none", journal.Format, behind)
				}
				behind := m.Behind(journal.Format + 1)
				if text := wrongMembers(behind, want); text != "" {
					return errors.New(text)
				}
				for _, one := range behind {
					if one.Format != journal.Format {
						return fmt.Errorf("Behind(%d) = %+v; want all with format %d", journal.Format+1, behind, journal.Format)
					}
				}
				return nil
			})
		}
	}},
	{"a member that comes or goes is announced", 1, func(t *testing.T, c *cluster, members []Process) {
		first := members[0]
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
	{"what is assigned belongs to the caller", 1, func(t *testing.T, c *cluster, members []Process) {
		m := members[0]
		shards, _ := m.Assigned()
		clear(shards)
		if again, _ := m.Assigned(); !slices.Equal(again, []int{0, 1, 2, 3}) {
			t.Errorf("Assigned() = %d after the caller has changed the last one", again)
		}
	}},
	{"a closed member is none any more", 3, func(t *testing.T, c *cluster, members []Process) {
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

// awaitAssigned waits until a member is assigned want shards. It does not poll: it waits
// for the channel of Assigned.
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
