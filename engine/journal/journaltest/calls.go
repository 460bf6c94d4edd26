package journaltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

var callTests = group[clusterTest]{"calls", []clusterTest{
	{"a call reaches the owner of the shard, wherever it is", 3, func(t *testing.T, c *cluster, members []Process) {
		for n := range clusterShards {
			takeAndServe(t, members[n%3], n, prefixed(fmt.Sprintf("shard %d", n)))
		}
		for _, m := range members {
			for n := range clusterShards {
				wantAnswer(t, toShard(m, n), "hello", fmt.Sprintf("shard %d: hello", n))
			}
		}
	}},
	{"a call of a shard that is free, or not served, is not delivered", 2, func(t *testing.T, c *cluster, members []Process) {
		take(t, members[0], 1)
		for _, m := range members {
			wantNobody(t, "Call of a free shard", toShard(m, 0))
			wantNobody(t, "Call of a shard that is not served", toShard(m, 1))
		}
	}},
	{"calls go to the next owner when the shard has changed hands", 3, func(t *testing.T, c *cluster, members []Process) {
		for i := range 2 {
			name := fmt.Sprintf("owner %d", i)
			l := takeAndServe(t, members[i%2], 0, prefixed(name))
			for _, m := range members {
				wantAnswer(t, toShard(m, 0), "x", name+": x")
			}
			release(t, l)
			for _, m := range members {
				wantNobody(t, "Call after the release", toShard(m, 0))
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
				wantAnswer(t, toMember(m, other.Member()), "hello", other.Member()+": hello")
			}
		}
	}},
	{"a request to a member that is unknown, silent or closed is not delivered", 3, func(t *testing.T, c *cluster, members []Process) {
		silent, closed := members[1].Member(), members[2].Member()
		serve(t, members[2], prefixed("closed"))
		wantAnswer(t, toMember(members[0], closed), "x", "closed: x")
		c.close(t, members[2])
		for _, id := range []string{"unknown", silent, closed} {
			wantNobody(t, "Ask of "+id, toMember(members[0], id))
		}
	}},
	{"requests to shards and to members do not mix", 1, func(t *testing.T, c *cluster, members []Process) {
		m := members[0]
		serve(t, m, prefixed("member"))
		wantNobody(t, "Call of a shard that is not served", toShard(m, 2))
		takeAndServe(t, m, 2, prefixed("shard"))
		wantAnswer(t, toShard(m, 2), "x", "shard: x")
		wantAnswer(t, toMember(m, m.Member()), "x", "member: x")
	}},
	{"a request may be empty, and as large as an entry", 2, func(t *testing.T, c *cluster, members []Process) {
		serve(t, members[0], measure)
		takeAndServe(t, members[0], 0, measure)
		for _, size := range []int{0, 1, journal.MaxEntry} {
			request, want := string(pattern(size)), fmt.Sprintf("%d as sent", size)
			wantAnswer(t, toShard(members[1], 0), request, want)
			wantAnswer(t, toMember(members[1], members[0].Member()), request, want)
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
	{"an answer may be empty, and much larger than an entry", 2, func(t *testing.T, c *cluster, members []Process) {
		answer := func(request []byte, reply func([]byte)) {
			var size int
			if _, err := fmt.Sscan(string(request), &size); err != nil {
				t.Error(err)
			}
			reply(pattern(size))
		}
		serve(t, members[0], answer)
		takeAndServe(t, members[0], 0, answer)
		for _, size := range []int{0, 1, journal.MaxEntry, journal.MaxEntry + 1, 2*journal.MaxEntry + 1} {
			want := string(pattern(size))
			for _, m := range members {
				wantAnswer(t, toShard(m, 0), fmt.Sprint(size), want)
				wantAnswer(t, toMember(m, members[0].Member()), fmt.Sprint(size), want)
			}
		}
	}},
	{"many large answers at once are not mixed", 2, func(t *testing.T, c *cluster, members []Process) {
		takeAndServe(t, members[0], 0, func(request []byte, reply func([]byte)) {
			reply(bytes.Repeat(request, 2_000_000/len(request)))
		})
		atOnce(t, 4, func(ctx context.Context, i int) error {
			request := fmt.Sprintf("request %d;", i)
			return checkAnswer(ctx, toShard(members[1], 0), request, strings.Repeat(request, 2_000_000/len(request)))
		})
	}},
	{"hundreds of calls at once all get their own answers", 3, func(t *testing.T, c *cluster, members []Process) {
		for n := range clusterShards {
			takeAndServe(t, members[n%3], n, prefixed(fmt.Sprint(n)))
		}
		atOnce(t, 300, func(ctx context.Context, i int) error {
			n := i % clusterShards
			request := fmt.Sprintf("request %d", i)
			return checkAnswer(ctx, toShard(members[i/7%3], n), request, fmt.Sprintf("%d: %s", n, request))
		})
	}},
	{"answers may come late, and in another order", 2, func(t *testing.T, c *cluster, members []Process) {
		const count = 50
		waiting := newGatherer()
		takeAndServe(t, members[0], 0, waiting.answer)
		var replies sync.WaitGroup
		replies.Go(func() {
			if waiting.wait(t, count) {
				waiting.replyBackwards()
			}
		})
		atOnce(t, count, func(ctx context.Context, i int) error {
			request := fmt.Sprintf("request %d", i)
			return checkAnswer(ctx, toShard(members[i%2], 0), request, request)
		})
		replies.Wait()
	}},
	{"who answers may call others first", 2, func(t *testing.T, c *cluster, members []Process) {
		ctx := testwait.Context(t)
		var calls sync.WaitGroup
		t.Cleanup(calls.Wait)
		for n := range clusterShards - 1 {
			m := members[n%2]
			takeAndServe(t, m, n, func(request []byte, reply func([]byte)) {
				request = fmt.Appendf(nil, "%s %d", request, n)
				calls.Go(func() {
					answer, err := toShard(m, n+1).reach(ctx, request)
					if err != nil {
						answer = []byte(err.Error())
					}
					reply(answer)
				})
			})
		}
		takeAndServe(t, members[0], clusterShards-1, prefixed("end"))
		wantAnswer(t, toShard(members[1], 0), "path", "end: path 0 1 2")
	}},
	{"a call ends with its context, and its late answer does no harm", 2, func(t *testing.T, c *cluster, members []Process) {
		waiting := newGatherer()
		takeAndServe(t, members[0], 0, waiting.answer)
		serve(t, members[0], waiting.answer)
		ctx, cancel := context.WithCancel(testwait.Context(t))
		defer cancel()
		calls := []call{toShard(members[1], 0), toMember(members[1], members[0].Member())}
		var ended []<-chan error
		for _, c := range calls {
			ended = append(ended, c.inBackground(ctx))
		}
		waiting.await(t, len(calls))
		cancel()
		for _, end := range ended {
			wantError(t, "a call whose context ends", testwait.Receive(t, "a canceled call", end), context.Canceled)
		}
		for _, c := range calls {
			_, err := c.reach(ctx, nil)
			wantError(t, "a call whose context has ended", err, context.Canceled)
		}
		go func() {
			if waiting.wait(t, len(calls)+1) {
				waiting.replyBackwards()
			}
		}()
		wantAnswer(t, toShard(members[1], 0), "next", "next")
	}},
	{"callee and caller may change the bytes that they get", 1, func(t *testing.T, c *cluster, members []Process) {
		m := members[0]
		answer := []byte("answer")
		takeAndServe(t, m, 0, func(request []byte, reply func([]byte)) {
			clear(request)
			reply(answer)
		})
		for range 2 {
			request := []byte("request")
			got, err := toShard(m, 0).reach(testwait.Context(t), request)
			if err != nil || string(got) != "answer" {
				t.Fatalf("Call(0) = %q, %v; want %q", got, err, "answer")
			}
			if string(request) != "request" {
				t.Errorf("the caller's request has become %q", request)
			}
			clear(got)
		}
		if string(answer) != "answer" {
			t.Errorf("the answer of the owner has become %q", answer)
		}
	}},
	{"an answer is what it was when it was given", 1, func(t *testing.T, c *cluster, members []Process) {
		m := members[0]
		takeAndServe(t, m, 0, func(_ []byte, reply func([]byte)) {
			answer := []byte("answer")
			reply(answer)
			clear(answer)
		})
		wantAnswer(t, toShard(m, 0), "", "answer")
	}},
	{"a call fails when the owner lets go of the shard without an answer", 2, func(t *testing.T, c *cluster, members []Process) {
		waiting := newGatherer()
		l := takeAndServe(t, members[0], 0, waiting.answer)
		takeAndServe(t, members[0], 1, waiting.answer)
		serve(t, members[0], waiting.answer)
		asked := members[0].Member()
		call := toShard(members[1], 0).inBackground(testwait.Context(t))
		other := toShard(members[1], 1).inBackground(testwait.Context(t))
		ask := toMember(members[1], asked).inBackground(testwait.Context(t))
		waiting.await(t, 3)
		release(t, l)
		wantUnanswered(t, "Call, when the shard is released", testwait.Receive(t, "Call after Release", call))
		c.close(t, members[0])
		wantUnanswered(t, "Call, when the owner closes", testwait.Receive(t, "Call after Close", other))
		wantUnanswered(t, "Ask, when the member closes", testwait.Receive(t, "Ask after Close", ask))
	}},
	{"a call of a member that closes meanwhile ends", 2, func(t *testing.T, c *cluster, members []Process) {
		waiting := newGatherer()
		takeAndServe(t, members[0], 0, waiting.answer)
		call := toShard(members[1], 0).inBackground(testwait.Context(t))
		waiting.await(t, 1)
		c.close(t, members[1])
		wantUnanswered(t, "Call, when the caller closes", testwait.Receive(t, "Call by a closed member", call))
	}},
}}

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

// atOnce calls do count times in parallel, with the number of the call, and fails the
// test if a call fails.
func atOnce(t *testing.T, count int, do func(ctx context.Context, i int) error) {
	t.Helper()
	ctx := testwait.Context(t)
	errs := make([]error, count)
	var group sync.WaitGroup
	for i := range count {
		group.Go(func() { errs[i] = do(ctx, i) })
	}
	group.Wait()
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(failed) > 0 {
		t.Fatalf("%d of %d went wrong, such as: %v", len(failed), count, errors.Join(failed[:min(len(failed), 3)]...))
	}
}

// gatherer collects requests and answers them later.
type gatherer struct {
	arrived chan func() // the replies to requests that wait has not counted yet
	replies []func()
}

func newGatherer() *gatherer { return &gatherer{arrived: make(chan func(), 1000)} }

// answer is a [journal.Answer] that keeps the request. replyBackwards answers it with the
// request itself.
func (g *gatherer) answer(request []byte, reply func([]byte)) {
	request = bytes.Clone(request)
	g.arrived <- func() { reply(request) }
}

// wait waits until count requests have come. It returns false if they do not come before
// the end of the test.
func (g *gatherer) wait(t *testing.T, count int) bool {
	t.Helper()
	for ctx := testwait.Context(t); len(g.replies) < count; {
		select {
		case reply := <-g.arrived:
			g.replies = append(g.replies, reply)
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// await waits until count requests have come, and fails the test if they do not come.
func (g *gatherer) await(t *testing.T, count int) {
	t.Helper()
	if !g.wait(t, count) {
		t.Fatal("the requests were not delivered")
	}
}

// replyBackwards answers the requests that wait has counted, the last one first.
func (g *gatherer) replyBackwards() {
	for _, reply := range slices.Backward(g.replies) {
		reply()
	}
}
