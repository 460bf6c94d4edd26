//go:build unix

package cli

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
)

// startRuns starts n runs and returns their ids. The random keys spread the runs over all shards.
func (s *serverProcess) startRuns(workflow string, n int) (ids []string) {
	s.t.Helper()
	for range n {
		o := s.runCommand("run", workflow, "--key", rand.Text())
		if o.code != 0 {
			s.t.Fatalf("run %s: %+v; the server says %s", workflow, o, s.out)
		}
		ids = append(ids, strings.TrimSpace(o.out))
	}
	return ids
}

// waitForSuccess waits until all runs have succeeded.
func (s *serverProcess) waitForSuccess(ids []string) {
	s.t.Helper()
	var last outcome
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the last that was shown is %+v; the server says %s", last, s.out)
		}
	}()
	for _, id := range ids {
		testwait.Until(s.t, id+" succeeds", func() bool {
			var i engine.Info
			o := s.runCommand("show", id, "--json")
			last = o
			if o.code != 0 || json.Unmarshal([]byte(o.out), &i) != nil {
				return false
			}
			if i.Finished() && i.State != engine.StateSucceeded {
				s.t.Fatalf("%s is %s: %s", id, i.State, o.out)
			}
			return i.State == engine.StateSucceeded
		})
	}
}

func TestRunsOfAKilledServerGoOnElsewhere(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	f := newClusterServers(t, shared+engineSection(natstest.Shared(t), clusterName(t)))
	a, b := f.serve("a"), f.serve("b")
	a.waitForShards(2)
	ids := a.startRuns("long", 8)
	for begunAt := func(place string) bool { return strings.Contains(f.seen(), "begin "+place+" ") }; ; ids = append(ids, a.startRuns("long", 1)...) {
		testwait.Until(t, "all have begun", func() bool { return strings.Count(f.seen(), "begin ") == len(ids) })
		if begunAt("a") && begunAt("b") {
			break // until then, all runs may be in the shards of one server: start one more
		}
	}
	before := f.seen()
	b.signal(syscall.SIGKILL)
	b.wait()
	testwait.Until(t, "what ran at the killed one is begun at the other", func() bool {
		for _, id := range ids {
			if !strings.Contains(f.seen(), "begin a "+id) {
				return false
			}
		}
		return true
	})
	f.open()
	a.waitForSuccess(ids)
	for _, id := range ids {
		i := a.show(id)
		attempts := i.Steps[0].Attempts
		lost := strings.Contains(before, "begin b "+id)
		if len(attempts) > 2 || (attempts[0].Outcome == "lost") != lost {
			t.Errorf("%s, begun at the killed one: %v, has %+v", id, lost, attempts)
		}
		if n := strings.Count(f.seen(), "end a "+id); n != 1 || strings.Contains(f.seen(), "end b "+id) {
			t.Errorf("%s has ended %d times", id, n)
		}
	}
	a.waitForShards(1)
}

const (
	firstVersion  = "  deploy: {steps: [{id: wait, run: [sh, -c, 'test -e $GATE || exit 75'], policy: fixed(200ms) attempts=unlimited}, {id: say, run: [echo, one], needs: [wait]}]}\n"
	secondVersion = "  deploy: {steps: [{id: wait, run: [sh, -c, 'test -e $GATE || exit 75'], policy: fixed(200ms) attempts=unlimited}, {id: say, run: [echo, two], needs: [wait]}]}\n"
)

// The servers are replaced one after the other by servers with another configuration. Each run ends
// with the definition that it was started with, on any server.
func TestARollingDeploy(t *testing.T) {
	t.Parallel()
	end := engineSection(natstest.Shared(t), clusterName(t))
	f := newClusterServers(t, shared+firstVersion+end)
	a, b := f.serve("a"), f.serve("b")
	a.waitForShards(2)
	ones := a.startRuns("deploy", 6)
	f.text = shared + secondVersion + end
	b.signal(syscall.SIGTERM)
	wantCode(t, b.wait(), 0)
	c := f.serve("c")
	a.waitForShards(2)
	ones = append(ones, a.startRuns("deploy", 3)...) // both versions run at the same time: each server starts its own
	twos := c.startRuns("deploy", 6)
	a.signal(syscall.SIGTERM)
	wantCode(t, a.wait(), 0)
	d := f.serve("d")
	d.waitForShards(2)
	twos = append(twos, d.startRuns("deploy", 3)...)
	f.open()
	d.waitForSuccess(slices.Concat(ones, twos))
	for _, id := range slices.Concat(ones, twos) {
		want := `{"stdout":"two\n"}`
		if slices.Contains(ones, id) {
			want = `{"stdout":"one\n"}`
		}
		if i := d.show(id); string(i.Output) != want {
			t.Errorf("%s says %s, want %s", id, i.Output, want)
		}
	}
}

func TestServeWaitsForNATS(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 1)
	nodes.Kill(0)
	f := newClusterServers(t, shared+engineSection(nodes, clusterName(t)))
	a, b := f.begin("a"), f.begin("b")
	testwait.Until(t, "it says that it waits", func() bool { return strings.Contains(a.out.String(), "the cluster can't be joined yet") })
	b.signal(syscall.SIGTERM) // ends a server that still waits for NATS
	wantCode(t, b.wait(), 0)
	nodes.Restart(0)
	a.serves()
	wantCode(t, a.runCommand("run", "where", "--wait"), 0)
	for _, weak := range []string{"1 of 3 replicas", "sync each message"} {
		testwait.Until(t, "it says what is weak", func() bool {
			return strings.Contains(a.out.String(), `msg="the cluster is weakened"`) && strings.Contains(a.out.String(), weak)
		})
	}
}

const withPasswords = `
accounts {
	TEST { jetstream: enabled, users: [{user: "me", password: "right-PLANTED-pw"}] }
	$SYS { users: [{user: "system", password: "system-PLANTED-pw"}] }
}
`

func TestWrongCredentialsAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 1, natstest.WithAccess(withPasswords))
	host := strings.TrimPrefix(nodes.URL(), "nats://")
	for _, c := range []struct{ name, engine string }{
		{"no password", fmt.Sprintf("{nats: %q}", host)},
		{"a wrong password", fmt.Sprintf("{nats: %q, user: me, password: '${env:PW}'}", host)},
		{"a wrong password in the address", fmt.Sprintf("{nats: 'nats://me:${env:PW}@%s'}", host)},
		{"a wrong token", fmt.Sprintf("{nats: %q, token: '${env:PW}'}", host)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := beginServe(t, "version: 1\nengine: "+c.engine+"\n", "", "PW=wrong-PLANTED-pw")
			wantCode(t, s.wait(), 125)
			wantIn(t, "the error", s.out.String(), "check the credentials")
			if strings.Contains(s.out.String(), "PLANTED") {
				t.Errorf("the password shows: %s", s.out)
			}
		})
	}
}

func TestNATSIsAwayUnderLoad(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 3)
	f := newClusterServers(t, shared+engineSection(nodes, clusterName(t)))
	a, b := f.serve("a"), f.serve("b")
	a.waitForShards(2)
	var load sync.WaitGroup
	var mu sync.Mutex
	var ids []string
	refused := 0
	stop := make(chan struct{})
	for _, s := range []*serverProcess{a, b} {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				cmd, _ := command(t, "run", "where")
				cmd.Env = append(cmd.Env, "TIDEOVER_SERVER=unix:"+filepath.Join(s.data, "tideover.sock"))
				o := finish(t, cmd)
				mu.Lock()
				if o.code == 0 {
					ids = append(ids, strings.TrimSpace(o.out))
				} else {
					refused++
				}
				mu.Unlock()
			}
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(ids)
	}
	testwait.Until(t, "there is load", func() bool { return count() >= 10 })
	nodes.Kill(0)
	nodes.Kill(1)
	// The leases expire, and no server can answer. The output says so instead of printing an empty list.
	testwait.Until(t, "it is said", func() bool {
		o := a.runCommand("runs")
		return o.code == 125 && strings.Contains(o.stderr, "no process has the shard")
	})
	nodes.Restart(0)
	nodes.Restart(1)
	nodes.WaitReady()
	was := count()
	testwait.Until(t, "it goes on", func() bool { return count() >= was+10 })
	close(stop)
	load.Wait()
	a.waitForShards(2)
	a.waitForSuccess(ids)
	t.Logf("%d runs were accepted, %d were not", len(ids), refused)
	for _, s := range []*serverProcess{a, b} {
		s.signal(syscall.SIGTERM)
		wantCode(t, s.wait(), 0)
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
	f := newClusterServers(t, text+engineSection(natstest.Shared(t), clusterName(t)))
	a, b := f.serve("a"), f.serve("b")
	a.waitForShards(2)
	ids := append(a.startRuns("bad", 10), b.startRuns("worse", 10)...)
	testwait.Until(t, "all messages are sent", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(told) >= len(ids)
	})
	testwait.Until(t, "nothing is left to tell", func() bool {
		for _, w := range a.status().Workflows {
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
