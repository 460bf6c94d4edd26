//go:build linux

package clustertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
)

const (
	deployEnv  = "TIDEOVER_DEPLOY_WORKER"
	deployRuns = 20 // of each version
)

// TestRollingDeploy replaces the workers of a cluster by those of a new version
// of the workflow, one by one. A run ends by the definition with which it
// began, and waits while the owner of its shard does not have the functions for
// it. Before that the workflow is paused, while a worker is restarted.
func TestRollingDeploy(t *testing.T) {
	nodes := natstest.Start(t, 3)
	dir := t.TempDir()
	begin := func(name, version string, starts int) *deployProcess {
		return startDeployed(t, dir, nodes.URL(), name, version, starts)
	}
	a := begin("a", "old", deployRuns)
	b := begin("b", "new", deployRuns)
	bothOwn := func(r *report) bool { return r.Owned["a"] > 0 && r.Owned["b"] > 0 }
	b.until("both have shards", bothOwn)
	b.change("pause")
	b.until("all runs wait", func(r *report) bool { return r.Paused && r.States["queued"] == 2*deployRuns })
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a.stop() // its shards get another owner, and a new one again
	b.until("one has all shards", func(r *report) bool { return r.Paused && r.Owned["b"] == shards })
	a = begin("a", "old", 0)
	paused := a.until("both have shards again", func(r *report) bool { return bothOwn(r) && r.Paused && r.States["queued"] == 2*deployRuns })
	if len(paused.done) > 0 || paused.States["succeeded"] > 0 {
		t.Errorf("in the pause: %+v, done %v", paused, paused.done)
	}
	a.change("resume")
	halfway := b.until("nothing moves", func(r *report) bool {
		return r.States["succeeded"]+r.States["needs-handler"] == 2*deployRuns
	})
	if halfway.Missing["go:deploy/charge"] == 0 || halfway.Missing["go:deploy/invoice"] == 0 || halfway.States["succeeded"] == 0 {
		t.Errorf("halfway through the deploy: %+v; want some of each version done, and some that wait", halfway)
	}

	a.stop()
	a = begin("a", "new", 0)
	late := a.until("the new version's runs have ended", func(r *report) bool {
		// A handler writes its line before its run has succeeded.
		return r.done["invoice"] == deployRuns && r.States["succeeded"] == r.done["invoice"]+r.done["charge"]
	})
	if late.States["needs-handler"] != deployRuns-late.done["charge"] {
		t.Errorf("after the deploy: %+v; want the old version's runs to wait", late)
	}

	c := begin("c", "both", 0)
	a.stop()
	b.stop()
	c.until("all have ended", func(r *report) bool { return r.States["succeeded"] == 2*deployRuns })
	c.stop()
	checkDeploy(t, dir)
}

// checkDeploy checks which process has called which step for which run.
func checkDeploy(t *testing.T, dir string) {
	t.Helper()
	calls := map[string]int{}
	for _, line := range deployLines(t, dir) {
		version, step, key := line[0], line[1], line[2]
		calls[step+" "+key]++
		if knows := map[string][]string{"charge": {"old", "both"}, "invoice": {"new", "both"}}; !slices.Contains(knows[step], version) {
			t.Errorf("the %s version was asked to %s %s", version, step, key)
		}
	}
	for i := range deployRuns {
		for key, step := range map[string]string{fmt.Sprint("old-", i): "charge", fmt.Sprint("new-", i): "invoice"} {
			if n := calls[step+" "+key]; n != 1 {
				t.Errorf("%s of run %s was called %d times", step, key, n)
			}
			delete(calls, step+" "+key)
		}
	}
	if len(calls) > 0 {
		t.Errorf("unexpected calls: %v", calls)
	}
}

// deployLines returns the lines of the handlers: version, step and key.
func deployLines(t *testing.T, dir string) (lines [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "witness"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.Fields(line)[1:]) // without the time
	}
	return lines
}

// deployProcess is a process with a version of the workflow.
type deployProcess struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	in   io.Writer
	out  *bufio.Scanner
	name string
}

// startDeployed starts a process, and waits until it has started its runs.
func startDeployed(t *testing.T, dir, url, name, version string, starts int) *deployProcess {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), deployEnv+"="+dir, "CRASH_NAME="+name, "CRASH_URL="+url, "DEPLOY_VERSION="+version, fmt.Sprint("DEPLOY_STARTS=", starts))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &deployProcess{t, dir, cmd, in, bufio.NewScanner(out), name}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if !d.out.Scan() || d.out.Text() != "ready" {
		t.Fatalf("worker %s: %q, %v", name, d.out.Text(), d.out.Err())
	}
	return d
}

// report is what a process reports about the cluster.
type report struct {
	States  map[string]int
	Missing map[string]int
	Owned   map[string]int
	Paused  bool           // the workflow is paused in all shards
	done    map[string]int // calls in the witness file, by step
}

// until requests reports from the process until one is enough.
func (d *deployProcess) until(what string, enough func(*report) bool) *report {
	d.t.Helper()
	r := new(report)
	testwait.Until(d.t, what, func() bool {
		pause(50 * time.Millisecond) // a report costs all members work
		fmt.Fprintln(d.in, "report")
		if !d.out.Scan() {
			d.t.Fatalf("worker %s has ended: %v", d.name, d.out.Err())
		}
		*r = report{done: map[string]int{}}
		if err := json.Unmarshal(d.out.Bytes(), r); err != nil {
			d.t.Fatalf("worker %s: %v in %q", d.name, err, d.out.Text())
		}
		for _, line := range deployLines(d.t, d.dir) {
			r.done[line[1]]++
		}
		return enough(r)
	})
	return r
}

// change has the process pause or resume the workflow, until that succeeds.
func (d *deployProcess) change(command string) {
	d.t.Helper()
	testwait.Until(d.t, command, func() bool {
		fmt.Fprintln(d.in, command)
		if !d.out.Scan() {
			d.t.Fatalf("worker %s has ended: %v", d.name, d.out.Err())
		}
		return d.out.Text() == "done"
	})
}

// stop stops the process with SIGTERM.
func (d *deployProcess) stop() {
	d.t.Helper()
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	for d.out.Scan() {
		continue
	}
	if err := d.cmd.Wait(); err != nil {
		d.t.Errorf("worker %s: %v", d.name, err)
	}
}

// deploy is the main function of the process.
func deploy(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	name, version := os.Getenv("CRASH_NAME"), os.Getenv("DEPLOY_VERSION")
	w, err := openWitness(dir)
	if err != nil {
		return err
	}
	flows, err := deployWorkflows(dir, version, w)
	if err != nil {
		return err
	}
	log, err := jetstream.Open(ctx, jetstream.Config{URL: os.Getenv("CRASH_URL"), Name: "deploy", Shards: shards, MemberName: name, LeaseTime: time.Minute})
	if err != nil {
		return err
	}
	e, err := engine.Open(ctx, engine.Config{
		Log: log, Dir: filepath.Join(dir, name), Workflows: flows, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	for i := range number("DEPLOY_STARTS") {
		key := fmt.Sprint(version, "-", i)
		if _, err := e.Start(ctx, flows[0], key, engine.Key(key)); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	go answer(ctx, e)
	<-ctx.Done()
	return e.Close(context.Background())
}

// deployWorkflows returns the versions of the workflow that a process has; new
// runs use the first.
func deployWorkflows(dir, version string, w *witness) (flows []*engine.Workflow, err error) {
	hold := engine.Step("hold", func(context.Context, string) (string, error) {
		_, err := os.Stat(filepath.Join(dir, "go"))
		return "", err
	}, engine.Policy("fixed(100ms) attempts=unlimited"))
	for _, v := range []struct{ version, step string }{{"new", "invoice"}, {"old", "charge"}} {
		if version != v.version && version != "both" {
			continue
		}
		flow, err := engine.NewWorkflow("deploy", hold, engine.Step(v.step, func(_ context.Context, key string) (string, error) {
			w.log("%s %s %s", version, v.step, key)
			return "", nil
		}, engine.After("hold")))
		if err != nil {
			return nil, err
		}
		flows = append(flows, flow)
	}
	return flows, nil
}

// answer carries out the commands of standard input: report, pause and resume.
func answer(ctx context.Context, e *engine.Engine) {
	change := map[string]func(context.Context, string, string) error{"pause": e.PauseWorkflow, "resume": e.ResumeWorkflow}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if do := change[in.Text()]; do != nil {
			if err := do(ctx, "deploy", "tester"); err != nil {
				fmt.Println("error:", err)
			} else {
				fmt.Println("done")
			}
			continue
		}
		stats, err := e.Stats(ctx)
		info, _, infoErr := e.Cluster(ctx)
		if err = errors.Join(err, infoErr); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "report:", err)
		}
		r := report{States: map[string]int{}, Missing: stats.Missing, Owned: map[string]int{}}
		for _, w := range stats.Workflows {
			r.States = w.States
			r.States["succeeded"] = int(w.Totals.Succeeded)
			r.Paused = w.Paused != nil && !w.Paused.Partly && len(stats.Silent) == 0
		}
		for _, s := range info.Shards {
			r.Owned[s.Name]++
		}
		text, _ := json.Marshal(r) // of maps
		fmt.Println(string(text))
	}
}
