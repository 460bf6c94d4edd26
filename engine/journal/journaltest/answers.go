package journaltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/testwait"
)

var answerTests = []clusterTest{
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
				wantAnswer(t, m, 0, fmt.Sprint(size), want)
				wantMemberAnswer(t, m, members[0].Member(), fmt.Sprint(size), want)
			}
		}
	}},
	{"many large answers at once are not mixed", 2, func(t *testing.T, c *cluster, members []Process) {
		takeAndServe(t, members[0], 0, func(request []byte, reply func([]byte)) {
			reply(bytes.Repeat(request, 2_000_000/len(request)))
		})
		atOnce(t, 4, func(ctx context.Context, i int) error {
			request := fmt.Sprintf("request %d;", i)
			return checkAnswer(ctx, members[1], 0, request, strings.Repeat(request, 2_000_000/len(request)))
		})
	}},
	{"hundreds of calls at once all get their own answers", 3, func(t *testing.T, c *cluster, members []Process) {
		for n := range clusterShards {
			takeAndServe(t, members[n%3], n, prefixed(fmt.Sprint(n)))
		}
		atOnce(t, 300, func(ctx context.Context, i int) error {
			n := i % clusterShards
			request := fmt.Sprintf("request %d", i)
			return checkAnswer(ctx, members[i/7%3], n, request, fmt.Sprintf("%d: %s", n, request))
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
			return checkAnswer(ctx, members[i%2], 0, request, request)
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
					answer, err := reach(ctx, m, n+1, request)
					if err != nil {
						answer = []byte(err.Error())
					}
					reply(answer)
				})
			})
		}
		takeAndServe(t, members[0], clusterShards-1, prefixed("end"))
		wantAnswer(t, members[1], 0, "path", "end: path 0 1 2")
	}},
	{"a call ends with its context, and its late answer does no harm", 2, func(t *testing.T, c *cluster, members []Process) {
		waiting := newGatherer()
		takeAndServe(t, members[0], 0, waiting.answer)
		serve(t, members[0], waiting.answer)
		ctx, cancel := context.WithCancel(testwait.Context(t))
		defer cancel()
		calls := []func() ([]byte, error){
			func() ([]byte, error) { return reach(ctx, members[1], 0, []byte("canceled")) },
			func() ([]byte, error) { return reachMember(ctx, members[1], members[0].Member(), []byte("canceled")) },
		}
		var ended []<-chan error
		for _, call := range calls {
			ended = append(ended, inBackground(call))
		}
		waiting.await(t, len(calls))
		cancel()
		for _, end := range ended {
			wantError(t, "a call whose context ends", testwait.Receive(t, "a canceled call", end), context.Canceled)
		}
		for _, call := range calls {
			_, err := call()
			wantError(t, "a call whose context has ended", err, context.Canceled)
		}
		go func() {
			if waiting.wait(t, len(calls)+1) {
				waiting.replyBackwards()
			}
		}()
		wantAnswer(t, members[1], 0, "next", "next")
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
			got, err := reach(testwait.Context(t), m, 0, request)
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
		wantAnswer(t, m, 0, "", "answer")
	}},
	{"a call fails when the owner lets go of the shard without an answer", 2, func(t *testing.T, c *cluster, members []Process) {
		waiting := newGatherer()
		l := takeAndServe(t, members[0], 0, waiting.answer)
		takeAndServe(t, members[0], 1, waiting.answer)
		serve(t, members[0], waiting.answer)
		asked := members[0].Member()
		call := inBackground(func() ([]byte, error) { return reach(testwait.Context(t), members[1], 0, nil) })
		other := inBackground(func() ([]byte, error) { return reach(testwait.Context(t), members[1], 1, nil) })
		ask := inBackground(func() ([]byte, error) { return reachMember(testwait.Context(t), members[1], asked, nil) })
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
		call := inBackground(func() ([]byte, error) { return reach(testwait.Context(t), members[1], 0, nil) })
		waiting.await(t, 1)
		c.close(t, members[1])
		wantUnanswered(t, "Call, when the caller closes", testwait.Receive(t, "Call by a closed member", call))
	}},
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

// inBackground sends a request in a goroutine. The channel gets its error.
func inBackground(ask func() ([]byte, error)) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := ask()
		done <- err
	}()
	return done
}
