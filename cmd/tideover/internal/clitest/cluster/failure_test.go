//go:build unix

package cluster_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestRunsOfAKilledServerGoOnElsewhere(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	f := clitest.NewCluster(t, clitest.Shared+clitest.EngineSection(natstest.SharedNode(t), clitest.ClusterName(t)))
	a, b := f.Serve("a"), f.Serve("b")
	a.WaitForShards(2)
	ids := a.StartRuns("long", 3)
	for begunAt := func(place string) bool { return strings.Contains(seen(f), "begin "+place+" ") }; ; ids = append(ids, a.StartRuns("long", 1)...) {
		testwait.Until(t, "all have begun", func() bool { return strings.Count(seen(f), "begin ") == len(ids) })
		if begunAt("a") && begunAt("b") {
			break // until then, all runs may be in the shards of one server: start one more
		}
	}
	before := seen(f)
	b.Signal(syscall.SIGKILL)
	b.End()
	testwait.Until(t, "what ran at the killed one is begun at the other", func() bool {
		for _, id := range ids {
			if !strings.Contains(seen(f), "begin a "+id) {
				return false
			}
		}
		return true
	})
	f.Open()
	a.WaitForSuccess(ids)
	for _, id := range ids {
		i := a.Show(id)
		attempts := i.Steps[0].Attempts
		lost := strings.Contains(before, "begin b "+id)
		if len(attempts) > 2 || (attempts[0].Outcome == "lost") != lost {
			t.Errorf("%s, begun at the killed one: %v, has %+v", id, lost, attempts)
		}
		if n := strings.Count(seen(f), "end a "+id); n != 1 || strings.Contains(seen(f), "end b "+id) {
			t.Errorf("%s has ended %d times", id, n)
		}
	}
	a.WaitForShards(1)
}

const (
	firstVersion  = "  deploy: {steps: [{id: wait, run: [sh, -c, 'test -e $GATE || exit 75'], policy: fixed(1s) attempts=unlimited}, {id: say, run: [echo, one], needs: [wait]}]}\n"
	secondVersion = "  deploy: {steps: [{id: wait, run: [sh, -c, 'test -e $GATE || exit 75'], policy: fixed(1s) attempts=unlimited}, {id: say, run: [echo, two], needs: [wait]}]}\n"
)

// The servers are replaced one after the other by servers with another configuration. Each run ends
// with the definition that it was started with, on any server.
func TestARollingDeploy(t *testing.T) {
	t.Parallel()
	end := clitest.EngineSection(natstest.SharedNode(t), clitest.ClusterName(t))
	f := clitest.NewCluster(t, clitest.Shared+firstVersion+end)
	a, b := f.Serve("a"), f.Serve("b")
	a.WaitForShards(2)
	ones := a.StartRuns("deploy", 2)
	f.Text = clitest.Shared + secondVersion + end
	b.Signal(syscall.SIGTERM)
	clitest.WantCode(t, b.End(), 0)
	c := f.Serve("c")
	a.WaitForShards(2)
	ones = append(ones, a.StartRuns("deploy", 1)...) // both versions run at the same time: each server starts its own
	twos := c.StartRuns("deploy", 2)
	a.Signal(syscall.SIGTERM)
	clitest.WantCode(t, a.End(), 0)
	d := f.Serve("d")
	d.WaitForShards(2)
	twos = append(twos, d.StartRuns("deploy", 1)...)
	f.Open()
	d.WaitForSuccess(slices.Concat(ones, twos))
	for _, id := range slices.Concat(ones, twos) {
		want := `{"stdout":"two\n"}`
		if slices.Contains(ones, id) {
			want = `{"stdout":"one\n"}`
		}
		if i := d.Show(id); string(i.Output) != want {
			t.Errorf("%s says %s, want %s", id, i.Output, want)
		}
	}
}

func TestServeWaitsForNATS(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 1)
	nodes.Kill(0)
	f := clitest.NewCluster(t, clitest.Shared+clitest.EngineSection(nodes, clitest.ClusterName(t)))
	a, b := f.Begin("a"), f.Begin("b")
	testwait.Until(t, "it says that it waits", func() bool { return strings.Contains(a.Log.String(), "the cluster can't be joined yet") })
	b.Signal(syscall.SIGTERM) // ends a server that still waits for NATS
	clitest.WantCode(t, b.End(), 0)
	nodes.Restart(0)
	a.AwaitReady()
	clitest.WantCode(t, a.RunCommand("run", "where", "--wait"), 0)
	for _, weak := range []string{"1 of 3 replicas", "sync each message"} {
		testwait.Until(t, "it says what is weak", func() bool {
			return strings.Contains(a.Log.String(), `msg="the cluster is weakened"`) && strings.Contains(a.Log.String(), weak)
		})
	}
}

func TestWrongCredentialsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 1, natstest.WithAccess(clitest.WithPasswords))
	host := strings.TrimPrefix(nodes.URL(), "nats://")
	for _, c := range []struct{ name, engine string }{
		{"no password", fmt.Sprintf("{nats: %q}", host)},
		{"a wrong password", fmt.Sprintf("{nats: %q, user: me, password: '${env:PW}'}", host)},
		{"a wrong password in the address", fmt.Sprintf("{nats: 'nats://me:${env:PW}@%s'}", host)},
		{"a wrong token", fmt.Sprintf("{nats: %q, token: '${env:PW}'}", host)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := clitest.BeginServe(t, "version: 1\nengine: "+c.engine+"\n", "", "PW=wrong-PLANTED-pw")
			clitest.WantCode(t, s.End(), 125)
			clitest.WantIn(t, "the error", s.Log.String(), "check the credentials")
			if strings.Contains(s.Log.String(), "PLANTED") {
				t.Errorf("the password shows: %s", s.Log)
			}
		})
	}
}

// Runs give up in a cluster with two servers. Exactly one message is sent for each run.
func TestOneMessageForEachEvent(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	told := map[string]int{}
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var m struct{ Run, Event string }
		_ = json.NewDecoder(r.Body).Decode(&m)
		mu.Lock()
		defer mu.Unlock()
		told[m.Run+" "+m.Event]++
	}))
	defer hook.Close()
	text := fmt.Sprintf("version: 1\nworkflows: {bad: {steps: [{id: a, run: ['false'], policy: fixed(0s) attempts=1}]}, %s\n",
		"worse: {steps: [{id: a, run: ['false'], policy: fixed(0s) attempts=1}], on-give-up: {notify: [hook]}}}") +
		fmt.Sprintf("notify: {hook: {webhook: %q, on: [gave-up, dead-letter], dedupe: 0}}\n", hook.URL)
	f := clitest.NewCluster(t, text+clitest.EngineSection(natstest.SharedNode(t), clitest.ClusterName(t)))
	a, b := f.Serve("a"), f.Serve("b")
	a.WaitForShards(2)
	ids := append(a.StartRuns("bad", 4), b.StartRuns("worse", 4)...)
	testwait.Until(t, "all messages are sent", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(told) >= len(ids)
	})
	testwait.Until(t, "nothing is left to tell", func() bool {
		for _, w := range status(a).Workflows {
			for state, n := range w.States {
				if n > 0 && state != "dead" {
					return false
				}
			}
		}
		return true
	})
	mu.Lock()
	defer mu.Unlock()
	for what, n := range told {
		if n != 1 {
			t.Errorf("%d messages for %s", n, what)
		}
	}
	if len(told) != len(ids) {
		t.Errorf("%d messages for %d runs: %v", len(told), len(ids), told)
	}
}
