package journaltest

import (
	"testing"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

var deathTests = []clusterTest{
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
		call := inBackground(func() ([]byte, error) { return reach(testwait.Context(t), caller, 0, nil) })
		ask := inBackground(func() ([]byte, error) { return reachMember(testwait.Context(t), caller, id, nil) })
		own := inBackground(func() ([]byte, error) { return reach(testwait.Context(t), dying, 1, nil) })
		waiting.await(t, 3)
		c.kill(dying)
		wantUnanswered(t, "Call, when the owner is killed", testwait.Receive(t, "Call of a killed owner", call))
		wantUnanswered(t, "Ask, when the member is killed", testwait.Receive(t, "Ask of a killed member", ask))
		wantUnanswered(t, "Call, when the caller is killed", testwait.Receive(t, "Call by a killed member", own))
		takeAndServe(t, members[2], 0, prefixed("next"))
		wantAnswer(t, caller, 0, "x", "next: x")
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
}
