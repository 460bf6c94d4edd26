//go:build linux

package clustertest

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
)

var (
	crashRuns   = flag.Int("crash.runs", 40, "runs that are started")
	crashHarms  = flag.Int("crash.harms", 2, "number of faults to inject")
	crashSeed   = flag.Uint64("crash.seed", 0, "seed of the random numbers; 0 means a random one")
	crashOnly   = flag.String("crash.only", "", "inject only the fault of this name")
	crashKeep   = flag.String("crash.keep", "", "folder in which all files are kept")
	benchShards = flag.Int("bench.shards", 32, "shards of the clusters that are measured")
)

const (
	childEnv = "TIDEOVER_CRASH_WORKER"
	workers  = 3
	noQuorum = "no quorum"
)

func TestMain(m *testing.M) {
	for env, act := range map[string]func(dir string) error{childEnv: work, deployEnv: deploy, killerEnv: runKillers, clockEnv: runClocks} {
		dir := os.Getenv(env)
		if dir == "" {
			continue
		}
		if err := act(dir); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestClusterKilledAgainAndAgain injects faults into workers and servers while
// runs are started and worked on, and then compares the engine's history with
// the witness file.
func TestClusterKilledAgainAndAgain(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-crash.seed=%d -crash.runs=%d -crash.harms=%d", seed, *crashRuns, *crashHarms)
	f := &crashTest{
		t: t, dir: *crashKeep, random: rand.New(rand.NewPCG(seed, 0)),
		nodes: natstest.Start(t, 3, natstest.WithProxies()), acked: map[int]string{},
	}
	if f.dir == "" {
		f.dir = t.TempDir()
	}
	if err := os.MkdirAll(filepath.Join(f.dir, "second"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range workers {
		f.workers = append(f.workers, &worker{crashTest: f, number: i})
	}
	f.run()
}

// crashTest is the state of the test.
type crashTest struct {
	t       *testing.T
	dir     string
	random  *rand.Rand
	nodes   *natstest.Cluster
	workers []*worker
	probe   *probe

	mu    sync.Mutex
	acked map[int]string
}

func (f *crashTest) run() {
	for _, w := range f.workers {
		w.start()
	}
	f.probe = newProbe(f.t, f.nodes.URL())
	f.probe.waitForAll()
	testwait.Until(f.t, "all workers have started runs", func() bool { return f.count() >= 2*workers })
	chosen := slices.DeleteFunc(slices.Clone(faults), func(h fault) bool { return *crashOnly != "" && h.name != *crashOnly })
	f.random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	for i := range *crashHarms {
		h := chosen[f.random.IntN(len(chosen))]
		if i < len(chosen) { // each of them at least once, if there are enough
			h = chosen[i]
		}
		long := h.least + time.Duration(f.random.Int64N(int64(h.most-h.least)+1))
		f.t.Logf("%6.1fs %s for %v", f.probe.since(), h.name, long.Round(100*time.Millisecond))
		f.probe.during(h.name)
		h.do(f, f.random.IntN(3), long)
		f.probe.waitForAll()
		pause(time.Duration(f.random.IntN(3000)) * time.Millisecond)
	}
	f.probe.stop()
	f.drain()
}

// fault is a fault that lasts for a while.
type fault struct {
	name        string
	least, most time.Duration
	do          func(f *crashTest, i int, long time.Duration)
}

var faults = []fault{
	{"worker killed", 0, 3 * time.Second, func(f *crashTest, i int, long time.Duration) {
		f.workers[i].kill()
		pause(long)
		f.workers[i].start()
	}},
	{"node killed", 0, 5 * time.Second, func(f *crashTest, i int, long time.Duration) {
		f.nodes.Kill(i)
		pause(long)
		f.nodes.Restart(i)
	}},
	{"worker stopped", 500 * time.Millisecond, 20 * time.Second, func(f *crashTest, i int, long time.Duration) {
		f.workers[i].signal(syscall.SIGSTOP)
		pause(long)
		f.workers[i].signal(syscall.SIGCONT)
	}},
	{"node cut off", 2 * time.Second, 12 * time.Second, func(f *crashTest, i int, long time.Duration) {
		f.nodes.Cut(i)
		pause(long)
		f.nodes.Heal(i)
	}},
	{"worker restarted", 0, time.Second, func(f *crashTest, i int, long time.Duration) {
		f.workers[i].stop()
		pause(long)
		f.workers[i].start()
	}},
	{noQuorum, 2 * time.Second, 10 * time.Second, func(f *crashTest, i int, long time.Duration) {
		f.nodes.Kill(i)
		f.nodes.Kill((i + 1) % 3)
		pause(long)
		f.nodes.Restart(i)
		f.nodes.Restart((i + 1) % 3)
	}},
	{"node stopped", time.Second, 8 * time.Second, func(f *crashTest, i int, long time.Duration) {
		f.nodes.Stop(i)
		pause(long)
		f.nodes.Continue(i)
	}},
	{"rolling restart", 0, 2 * time.Second, func(f *crashTest, i int, long time.Duration) {
		for n := range 3 {
			f.nodes.Kill((i + n) % 3)
			pause(long)
			f.nodes.Restart((i + n) % 3)
			f.nodes.WaitReady()
		}
	}},
	{"worker and node killed", 0, 3 * time.Second, func(f *crashTest, i int, long time.Duration) {
		f.nodes.Kill(i)
		f.workers[i].kill()
		pause(long)
		f.nodes.Restart(i)
		f.workers[i].start()
	}},
}

// pause waits.
//
// real clock: every duration must work.
func pause(d time.Duration) { time.Sleep(d) }

// drain waits until all runs have ended, and checks them.
func (f *crashTest) drain() {
	t := f.t
	testwait.Until(t, "all runs are acknowledged", func() bool { return f.count() == *crashRuns })
	ctx := testwait.Context(t)
	e, _, err := open(ctx, f.dir, "judge", f.nodes.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(context.Background())
	chains := make([][]*engine.Info, *crashRuns) // of a flow there may be several runs
	members := map[string][]*engine.Info{}       // children by parent
	runs, children := 0, 0
	for i := range chains {
		for id := f.acked[i]; id != ""; runs++ {
			_, err := e.Wait(ctx, id)
			if err != nil {
				t.Fatalf("key-%d: %v", i, err)
			}
			info, err := e.Get(ctx, id)
			if err != nil {
				t.Fatalf("key-%d: %v", i, err)
			}
			chains[i] = append(chains[i], info)
			if members[id], err = membersOf(ctx, e, info); err != nil {
				t.Fatal(err)
			}
			children += len(members[id])
			id = info.ContinuedBy
		}
	}
	for _, w := range f.workers {
		w.stop()
	}
	seen := readWitness(t, f.dir)
	lost := 0
	for i, chain := range chains {
		want := fmt.Sprintf("key-%d", i)
		for _, info := range chain {
			if info.Key != want {
				t.Errorf("run %s has the key %q, want %q", info.ID, info.Key, want)
			}
		}
		switch chain[0].Workflow {
		case flowName:
			lost += checkChain(t, want, chain, seen[want])
		case familyName:
			lost += checkFamily(t, chain[0], members[chain[0].ID], seen[want])
		default:
			lost += checkRun(t, chain[0], seen[want])
		}
	}
	if n := len(seen); n > *crashRuns {
		t.Errorf("%d runs were worked on, %d were started", n, *crashRuns)
	}
	natstest.Wait(t, func(ctx context.Context) error { // until one engine has all shards
		stats, err := e.Stats(ctx)
		count := 0
		for _, w := range stats.Workflows {
			count += int(w.Totals.Started)
		}
		if err != nil || count != runs+children { // a child that was started twice would be one more
			return fmt.Errorf("the engine counts %+v, %w; want %d started", stats, err, runs+children)
		}
		return nil
	})
	t.Logf("%d runs, %d attempts lost; %d children", runs, lost, children)
	f.probe.report()
}

func (f *crashTest) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.acked)
}

func (f *crashTest) ack(i int, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.acked[i]; old != "" && old != id {
		f.t.Errorf("key-%d was acknowledged as %s, then as %s", i, old, id)
	}
	f.acked[i] = id
}

// worker is a process that is restarted after it was killed.
type worker struct {
	crashTest *crashTest
	number    int
	cmd       *exec.Cmd
	done      chan struct{}
}

// start starts the process, which continues with the first run that is not
// acknowledged.
func (w *worker) start() {
	f := w.crashTest
	first := w.number
	f.mu.Lock()
	for f.acked[first] != "" {
		first += workers
	}
	f.mu.Unlock()
	if w.cmd != nil && w.alive() {
		return
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+f.dir, fmt.Sprint("CRASH_NAME=worker-", w.number), "CRASH_URL="+f.nodes.URL(),
		fmt.Sprint("CRASH_FIRST=", first), fmt.Sprint("CRASH_EVERY=", workers), fmt.Sprint("CRASH_LAST=", *crashRuns),
		fmt.Sprint("CRASH_PAUSE=", max(1, 4000**crashHarms*workers / *crashRuns)))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := os.OpenFile(filepath.Join(f.dir, fmt.Sprintf("worker-%d.log", w.number)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	w.cmd, w.done = cmd, make(chan struct{})
	go w.listen(cmd, out, w.done)
}

// listen records the runs that the process acknowledges.
func (w *worker) listen(cmd *exec.Cmd, out io.Reader, done chan struct{}) {
	defer close(done)
	for in := bufio.NewScanner(out); in.Scan(); {
		var i int
		var id string
		if n, _ := fmt.Sscanf(in.Text(), "ack %d %s", &i, &id); n == 2 {
			w.crashTest.ack(i, id)
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); errors.As(err, &exit) && exit.ExitCode() > 0 {
		log, _ := os.ReadFile(filepath.Join(w.crashTest.dir, fmt.Sprintf("worker-%d.log", w.number)))
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		w.crashTest.t.Errorf("worker %d: %v\n%s", w.number, err, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
}

func (w *worker) alive() bool {
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

func (w *worker) signal(s syscall.Signal) { _ = w.cmd.Process.Signal(s) }

// kill kills the process.
func (w *worker) kill() {
	w.signal(syscall.SIGKILL)
	<-w.done
}

// stop stops the process with SIGTERM.
func (w *worker) stop() {
	w.signal(syscall.SIGTERM)
	testwait.Receive(w.crashTest.t, fmt.Sprintf("worker %d ends", w.number), w.done)
}
