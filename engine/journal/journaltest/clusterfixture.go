package journaltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

const clusterShards = 4

// cluster is the cluster of one test.
type cluster struct {
	dir    string
	open   ClusterOpener
	killed map[Process]bool
	closed map[Process]bool
}

// join adds members that stay until the end of the test, and waits until all of them
// know each other.
func (c *cluster) join(t *testing.T, count int) (members []Process) {
	t.Helper()
	for range count {
		m := c.open(t, c.dir, clusterShards)
		t.Cleanup(func() { c.close(t, m) })
		members = append(members, m)
	}
	if count > 0 {
		wantAgreement(t, members...)
	}
	return members
}

// close closes a member, unless it is closed already. The error of a killed member does
// not count.
func (c *cluster) close(t *testing.T, m Process) {
	t.Helper()
	if c.closed[m] {
		return
	}
	if err := m.Close(); err != nil && !c.killed[m] && !timedOut(err) {
		t.Errorf("Close() = %v", err)
	}
	c.closed[m] = true
}

func (c *cluster) kill(m Process) {
	c.killed[m] = true
	m.Kill()
}

// eventually waits until the check returns no error.
func eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	ctx := testwait.Context(t)
	var err error
	defer func() {
		if err != nil {
			t.Logf("the last check: %v", err)
		}
	}()
	testwait.Until(t, "the check returns no error", func() bool {
		err = check(ctx)
		return err == nil
	})
}

// pollInterval is the pause between two polls, where there is no event to wait for.
const pollInterval = 5 * time.Millisecond

// wantAgreement waits until each member is assigned the shards that [journal.Assign]
// gives it: so they share all shards evenly.
func wantAgreement(t *testing.T, members ...Process) {
	t.Helper()
	eventually(t, func(context.Context) error {
		owners := journal.Assign(idsOf(members), clusterShards)
		for _, m := range members {
			var want []int
			for n, owner := range owners {
				if owner == m.Member() {
					want = append(want, n)
				}
			}
			if shards, _ := m.Assigned(); !slices.Equal(shards, want) {
				return fmt.Errorf("%s: Assigned() = %d; want %d", m.Member(), shards, want)
			}
		}
		return nil
	})
}

func idsOf(members []Process) (ids []string) {
	for _, m := range members {
		ids = append(ids, m.Member())
	}
	return ids
}

// takeAll leases all shards.
func takeAll(t *testing.T, m journal.Cluster) (leases []journal.Shared) {
	t.Helper()
	for n := range clusterShards {
		leases = append(leases, take(t, m, n))
	}
	return leases
}

// take leases a shard as soon as it is free.
func take(t *testing.T, m journal.Cluster, shard int) journal.Shared {
	t.Helper()
	held := leaseShard(t, m, shard)
	shared, ok := held.(journal.Shared)
	if !ok {
		t.Fatalf("Lease(%d) is a %T, which is not a journal.Shared", shard, held)
	}
	return shared
}

// takeAndServe leases a shard and serves its requests with answer.
func takeAndServe(t *testing.T, m journal.Cluster, shard int, answer journal.Answer) journal.Shared {
	t.Helper()
	l := take(t, m, shard)
	serve(t, l, answer)
	return l
}

func serve(t *testing.T, s interface{ Serve(journal.Answer) error }, answer journal.Answer) {
	t.Helper()
	wantNoError(t, "Serve()", s.Serve(answer))
}

// last returns the last sequence of the shard. A test can't assume one, because earlier
// tests may have appended to the shard.
func last(t *testing.T, l journal.Lease) uint64 {
	t.Helper()
	_, last, err := l.Bounds(testwait.Context(t))
	wantNoError(t, "Bounds()", err)
	return last
}

// prefixed returns a function that answers with the name and the request.
func prefixed(name string) journal.Answer {
	return func(request []byte, reply func([]byte)) { reply(fmt.Appendf(nil, "%s: %s", name, request)) }
}

// call sends a request to a shard or to a member.
type call func(ctx context.Context, request []byte) ([]byte, error)

func toShard(m journal.Cluster, shard int) call {
	return func(ctx context.Context, request []byte) ([]byte, error) { return m.Call(ctx, shard, request) }
}

func toMember(m journal.Cluster, member string) call {
	return func(ctx context.Context, request []byte) ([]byte, error) { return m.Ask(ctx, member, request) }
}

// reach calls until the call is delivered: the other members do not know a new owner at
// once.
func (c call) reach(ctx context.Context, request []byte) ([]byte, error) {
	for {
		answer, err := c(ctx, request)
		if !errors.Is(err, journal.ErrNobody) {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pollInterval): // real clock: a pause between two polls
		}
	}
}

// inBackground calls in a goroutine. The channel gets the error.
func (c call) inBackground(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := c.reach(ctx, []byte("in the background"))
		done <- err
	}()
	return done
}

func wantAnswer(t *testing.T, c call, request, want string) {
	t.Helper()
	if err := checkAnswer(testwait.Context(t), c, request, want); err != nil {
		t.Fatal(err)
	}
}

// checkAnswer is wantAnswer for goroutines, which must not end the test: it returns an
// error.
func checkAnswer(ctx context.Context, c call, request, want string) error {
	got, err := c.reach(ctx, []byte(request))
	if err != nil || string(got) != want {
		return fmt.Errorf("the answer to %.30q is %.30q of %d bytes, %w; want %.30q of %d", request, got, len(got), err, want, len(want))
	}
	return nil
}

// wantNobody waits until a call fails with ErrNobody: the other members do not know at
// once that an owner serves no more requests.
func wantNobody(t *testing.T, what string, c call) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		answer, err := c(ctx, []byte("is anybody there"))
		if !errors.Is(err, journal.ErrNobody) {
			return fmt.Errorf("%s = %q, %w; want %w", what, answer, err, journal.ErrNobody)
		}
		return nil
	})
}

// wantUnanswered checks the error of a request that was delivered.
func wantUnanswered(t *testing.T, call string, err error) {
	t.Helper()
	if err == nil || errors.Is(err, journal.ErrNobody) {
		t.Errorf("%s = %v; want an error that is not %v", call, err, journal.ErrNobody)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s = %v; want an error that does not wait for the context", call, err)
	}
}
