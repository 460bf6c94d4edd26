package journaltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

var memberTests = group[clusterTest]{"members", []clusterTest{
	{"all know how many shards there are", 2, func(t *testing.T, c *cluster, members []Process) {
		for _, m := range members {
			if m.Shards() != clusterShards {
				t.Errorf("%s: Shards() = %d; want %d", m.Member(), m.Shards(), clusterShards)
			}
		}
	}},
	{"members share all shards, evenly, and each is assigned once; one alone has all", 0, func(t *testing.T, c *cluster, _ []Process) {
		for _, count := range []int{1, 2, 3, 5} {
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
}}

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

var deathTests = group[clusterTest]{"deaths", []clusterTest{
	{"the shards of a killed member are taken over, and its late append is stale", 3, func(t *testing.T, c *cluster, members []Process) {
		dying, others := members[0], members[1:]
		l := take(t, dying, 0)
		appendN(t, l, 0, 5)
		put(t, l, "left", "behind")
		kept := take(t, others[1], 1)

		c.kill(dying)
		testwait.Receive(t, "Lost() of a killed member", l.Lost())
		wantAgreement(t, others...)
		next := take(t, others[0], 0)
		wantLaterEpoch(t, next, l.Epoch())
		wantStale(t, "by a killed member", l, 5)
		wantEntries(t, next, 1, 5)
		wantBlob(t, next, "left", "behind")
		appendN(t, next, 5, 3)
		wantStale(t, "by a killed member", l, 5)
		wantStale(t, "by a killed member", l, 8)
		wantEntries(t, next, 1, 8)
		appendN(t, kept, last(t, kept), 1)
		for _, m := range others {
			eventuallyStatus(t, m, func(s journal.Status) string {
				if len(s.Members) != 2 || s.Shards[0].Owner != others[0].Member() {
					return "two members are left, and the first has shard 0"
				}
				return ""
			})
		}
	}},
	{"a request to a killed member that was delivered ends with an error", 3, func(t *testing.T, c *cluster, members []Process) {
		dying, caller := members[0], members[1]
		id := dying.Member()
		waiting := newGatherer()
		takeAndServe(t, dying, 0, waiting.answer)
		serve(t, dying, waiting.answer)
		takeAndServe(t, caller, 1, waiting.answer)
		call := toShard(caller, 0).inBackground(testwait.Context(t))
		ask := toMember(caller, id).inBackground(testwait.Context(t))
		own := toShard(dying, 1).inBackground(testwait.Context(t))
		waiting.await(t, 3)
		c.kill(dying)
		wantUnanswered(t, "Call, when the owner is killed", testwait.Receive(t, "Call of a killed owner", call))
		wantUnanswered(t, "Ask, when the member is killed", testwait.Receive(t, "Ask of a killed member", ask))
		wantUnanswered(t, "Call, when the caller is killed", testwait.Receive(t, "Call by a killed member", own))
		takeAndServe(t, members[2], 0, prefixed("next"))
		wantAnswer(t, toShard(caller, 0), "x", "next: x")
	}},
	{"a process that is started again after its death is another member", 2, func(t *testing.T, c *cluster, members []Process) {
		id := members[0].Member()
		leases := takeAll(t, members[0])
		c.kill(members[0])
		again := c.open(t, c.dir, clusterShards)
		t.Cleanup(func() { c.close(t, again) })
		if again.Member() == id {
			t.Errorf("Member() = %q, which is dead", id)
		}
		wantAgreement(t, members[1], again)
		for n, old := range leases {
			wantLaterEpoch(t, take(t, again, n), old.Epoch())
		}
	}},
}}

var statusTests = group[clusterTest]{"status", []clusterTest{
	{"the status names the members", 3, func(t *testing.T, c *cluster, members []Process) {
		want := slices.Sorted(slices.Values(idsOf(members)))
		for _, m := range members {
			eventuallyStatus(t, m, func(s journal.Status) string { return wrongMembers(s.Members, want) })
		}
	}},
	{"the status tells who owns which shard, and what is in it", 2, func(t *testing.T, c *cluster, members []Process) {
		want := make([]journal.Shard, clusterShards)
		for n := range want {
			want[n] = journal.Shard{Number: n, First: 1}
		}
		for n := range 3 {
			l := take(t, members[n%2], n)
			appendN(t, l, 0, 10*n)
			want[n] = journal.Shard{Number: n, Owner: members[n%2].Member(), Epoch: l.Epoch(), First: 1, Last: uint64(10 * n)}
			if n == 2 {
				truncate(t, l, 5)
				want[n].First = 5
			}
		}
		for _, m := range members {
			eventuallyStatus(t, m, func(s journal.Status) string { return wrongShards(s.Shards, want) })
		}
	}},
	{"the status forgets an owner that has released", 2, func(t *testing.T, c *cluster, members []Process) {
		l := take(t, members[0], 0)
		release(t, l)
		for _, m := range members {
			eventuallyStatus(t, m, func(s journal.Status) string {
				if len(s.Shards) != clusterShards || s.Shards[0].Owner != "" || s.Shards[0].Epoch < l.Epoch() {
					return fmt.Sprintf("shard 0 has no owner, and had the epoch %d", l.Epoch())
				}
				return ""
			})
		}
	}},
	{"what is settled is settled for all", 2, func(t *testing.T, c *cluster, members []Process) {
		settle := func(m journal.Cluster, name, value, want string) {
			t.Helper()
			if got, err := m.Settle(testwait.Context(t), name, value); err != nil || got != want {
				t.Fatalf("Settle(%q, %q) = %q, %v; want %q", name, value, got, err, want)
			}
		}
		settle(members[0], "a.b-c_D1", "", "")
		settle(members[0], "a.b-c_D1", "one", "one")
		settle(members[1], "a.b-c_D1", "two", "one")
		settle(members[1], "other", "two", "two")
		settle(members[0], "a.b-c_D1", "three", "one")
		settle(members[0], "other", "", "two")
		c.close(t, members[0])
		c.close(t, members[1])
		settle(c.join(t, 1)[0], "other", "four", "two")
	}},
	{"anybody can read a shard", 2, func(t *testing.T, c *cluster, members []Process) {
		l := take(t, members[0], 3)
		appendN(t, l, 0, 20)
		put(t, l, "state", "of 20")
		truncate(t, l, 5)
		for _, m := range members {
			r, err := m.Peek(testwait.Context(t), 3)
			wantNoError(t, "Peek(3)", err)
			wantLog(t, r, 5, 20)
			wantNames(t, r, "state")
			wantBlob(t, r, "state", "of 20")
			_, err = r.Get(testwait.Context(t), "none")
			wantError(t, "Get of no blob", err, journal.ErrNoBlob)
		}
		appendN(t, l, 20, 1) // it is still the owner's
		if _, err := members[0].Peek(testwait.Context(t), clusterShards); err == nil {
			t.Error("Peek at a shard that is not there succeeds")
		}
	}},
	{"the status ends with its context, and with its member", 1, func(t *testing.T, c *cluster, members []Process) {
		m := members[0]
		_, err := m.Status(canceled(t))
		wantError(t, "Status with a canceled context", err, context.Canceled)
		c.close(t, m)
		if _, err := m.Status(testwait.Context(t)); err == nil {
			t.Error("Status succeeds after Close")
		}
	}},
}}

// eventuallyStatus waits until wrong returns "" for the status.
func eventuallyStatus(t *testing.T, m journal.Cluster, wrong func(journal.Status) string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		s, err := m.Status(ctx)
		if err != nil {
			return fmt.Errorf("Status() = %w", err)
		}
		if text := wrong(s); text != "" {
			return errors.New(text + fmt.Sprintf("; Status() = %+v", s))
		}
		return nil
	})
}

func wrongMembers(members []journal.Member, want []string) string {
	var ids []string
	for _, m := range members {
		ids = append(ids, m.ID)
		if m.Name == "" {
			return m.ID + " has no name"
		}
		// real clock: an hour is longer than the test binary may run
		if age := time.Since(m.Joined); age > time.Hour || age < -time.Hour {
			return fmt.Sprintf("%s joined at %v, not about now", m.ID, m.Joined)
		}
		if m.Silence < 0 || m.Silence > time.Hour {
			return fmt.Sprintf("%s was not heard of for %v", m.ID, m.Silence)
		}
	}
	if !slices.IsSortedFunc(members, func(a, b journal.Member) int { return strings.Compare(a.Name, b.Name) }) {
		return "the members are not in the order of their names"
	}
	slices.Sort(ids)
	if !slices.Equal(ids, want) {
		return fmt.Sprintf("the members are %q; want %q", ids, want)
	}
	return ""
}

// wrongShards returns the difference between the shards and the wanted ones, or "". It
// ignores the bytes, which each backend counts in its own way.
func wrongShards(shards, want []journal.Shard) string {
	if len(shards) != len(want) {
		return fmt.Sprintf("there are %d shards; want %d", len(shards), len(want))
	}
	for n, s := range shards {
		if empty := s.Last < s.First; empty != (s.Bytes == 0) {
			return fmt.Sprintf("shard %d has the entries %d to %d, and %d bytes", n, s.First, s.Last, s.Bytes)
		}
		if s.Bytes = 0; s != want[n] {
			return fmt.Sprintf("shard %d is %+v; want %+v, apart from the bytes", n, s, want[n])
		}
	}
	return ""
}
