package journaltest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

var callTests = slices.Concat(deliveryTests, answerTests)

var deliveryTests = []clusterTest{
	{"a call reaches the owner of the shard, wherever it is", 3, func(t *testing.T, c *cluster, members []Process) {
		for n := range clusterShards {
			takeAndServe(t, members[n%3], n, prefixed(fmt.Sprintf("shard %d", n)))
		}
		for _, m := range members {
			for n := range clusterShards {
				wantAnswer(t, m, n, "hello", fmt.Sprintf("shard %d: hello", n))
			}
		}
	}},
	{"a call of a shard that is free, or not served, is not delivered", 2, func(t *testing.T, c *cluster, members []Process) {
		take(t, members[0], 1)
		for _, m := range members {
			wantNobody(t, "Call of a free shard", callOf(m, 0))
			wantNobody(t, "Call of a shard that is not served", callOf(m, 1))
		}
	}},
	{"calls go to the next owner when the shard has changed hands", 3, func(t *testing.T, c *cluster, members []Process) {
		for i := range 2 {
			name := fmt.Sprintf("owner %d", i)
			l := takeAndServe(t, members[i%2], 0, prefixed(name))
			for _, m := range members {
				wantAnswer(t, m, 0, "x", name+": x")
			}
			release(t, l)
			for _, m := range members {
				wantNobody(t, "Call after the release", callOf(m, 0))
			}
		}
	}},
	{"a lease that is over serves nothing", 1, func(t *testing.T, c *cluster, members []Process) {
		l := take(t, members[0], 0)
		release(t, l)
		wantError(t, "Serve after the release", l.Serve(prefixed("old")), journal.ErrStale)
	}},
	{"a request to a member reaches it, wherever it is", 3, func(t *testing.T, c *cluster, members []Process) {
		for _, m := range members {
			serve(t, m, prefixed(m.Member()))
		}
		for _, m := range members {
			for _, other := range members {
				wantMemberAnswer(t, m, other.Member(), "hello", other.Member()+": hello")
			}
		}
	}},
	{"a request to a member that is unknown, silent or closed is not delivered", 3, func(t *testing.T, c *cluster, members []Process) {
		silent, closed := members[1].Member(), members[2].Member()
		serve(t, members[2], prefixed("closed"))
		wantMemberAnswer(t, members[0], closed, "x", "closed: x")
		c.close(t, members[2])
		for _, id := range []string{"unknown", silent, closed} {
			wantNobody(t, "Ask of "+id, func(ctx context.Context) ([]byte, error) { return members[0].Ask(ctx, id, nil) })
		}
	}},
	{"requests to shards and to members do not mix", 1, func(t *testing.T, c *cluster, members []Process) {
		m := members[0]
		serve(t, m, prefixed("member"))
		wantNobody(t, "Call of a shard that is not served", callOf(m, 2))
		takeAndServe(t, m, 2, prefixed("shard"))
		wantAnswer(t, m, 2, "x", "shard: x")
		wantMemberAnswer(t, m, m.Member(), "x", "member: x")
	}},
	{"a request may be empty, and as large as an entry", 2, func(t *testing.T, c *cluster, members []Process) {
		serve(t, members[0], measure)
		takeAndServe(t, members[0], 0, measure)
		for _, size := range []int{0, 1, journal.MaxEntry} {
			request, want := string(pattern(size)), fmt.Sprintf("%d as sent", size)
			wantAnswer(t, members[1], 0, request, want)
			wantMemberAnswer(t, members[1], members[0].Member(), request, want)
		}
	}},
	{"a call of a closed member is an error", 2, func(t *testing.T, c *cluster, members []Process) {
		takeAndServe(t, members[0], 0, prefixed("x"))
		c.close(t, members[1])
		if _, err := members[1].Call(testwait.Context(t), 0, nil); err == nil {
			t.Error("Call succeeds after Close")
		}
		if _, err := members[1].Ask(testwait.Context(t), members[0].Member(), nil); err == nil {
			t.Error("Ask succeeds after Close")
		}
	}},
}

func callOf(m journal.Cluster, shard int) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) { return m.Call(ctx, shard, []byte("is anybody there")) }
}

// pattern returns pseudo-random bytes, always the same, so that parts in the wrong order
// are detected.
func pattern(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // it never fails
	return b
}

// measure is a [journal.Answer] that answers with the size of a request, and whether its
// bytes are those of pattern.
func measure(request []byte, reply func([]byte)) {
	state := "as sent"
	if !bytes.Equal(request, pattern(len(request))) {
		state = "changed"
	}
	reply(fmt.Appendf(nil, "%d %s", len(request), state))
}
