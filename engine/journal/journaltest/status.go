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

var statusTests = []clusterTest{
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
}

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
