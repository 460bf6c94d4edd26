//go:build linux

package clustertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
)

var takeovers = flag.Int("clocks.takeovers", 0, "number of processes that TestClocksDiffer kills; with 0 it does nothing")

const (
	clockEnv = "TIDEOVER_CLOCK_WORKER"

	// maxLate is how much longer than stated a wait may be.
	maxLate = 10 * time.Second
)

// skews has the skews of the workers' clocks.
var skews = [workers]time.Duration{-90 * time.Second, 90 * time.Second, 0}

// Processes with clocks that differ by up to three minutes take over the shards of processes that
// are killed. No wait is shorter than stated, and none is longer by more than maxLate.
func TestClocksDiffer(t *testing.T) {
	if *takeovers == 0 {
		return // it takes minutes, and TestClocksOfMembersDiffer of package engine shows the same in virtual time
	}
	c := &clockCluster{t: t, dir: t.TempDir(), program: buildSkewed(t), url: natstest.Start(t, 3).URL(), begun: time.Now()}
	for i := range workers {
		c.start(i)
	}
	for n := range *takeovers {
		i := rand.IntN(workers)
		_ = c.workers[i].Process.Kill()
		_ = c.workers[i].Wait()
		t.Logf("%d: worker %d was killed", n, i)
		pause(4*time.Second + rand.N(5*time.Second))
		c.start(i)
		pause(rand.N(4 * time.Second))
	}
	if err := os.WriteFile(filepath.Join(c.dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "all waits are over", func() bool {
		open := 0
		for _, w := range c.waits() {
			if w.started && w.end.IsZero() {
				open++
			}
		}
		return open == 0
	})
	all := c.waits()
	var shortest, longest time.Duration
	for key, w := range all {
		if w.end.IsZero() { // the process was killed before it had started the run
			continue
		}
		// A start or an attempt may be made again: the wait begins with one of them.
		early, late := w.end.Sub(w.first)-w.stated, w.end.Sub(w.last)-w.stated
		shortest, longest = min(shortest, early), max(longest, late)
		if early < 0 || late > maxLate {
			t.Errorf("%s: a wait of %v ended %v too early or %v too late", key, w.stated, -early, late)
		}
	}
	t.Logf("%d waits, %d processes killed; the largest error is %v too early, %v too late", len(all), *takeovers, -shortest, longest)
	if len(all) < *takeovers {
		t.Errorf("there were only %d waits", len(all))
	}
}

// buildSkewed builds this test as a program whose clocks are those of the environment.
func buildSkewed(t *testing.T) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/tideover/tideover/internal/boottime").Output()
	if err != nil {
		t.Fatal(err)
	}
	replacement, err := filepath.Abs(filepath.Join("testdata", "skewed_boottime.txt"))
	if err != nil {
		t.Fatal(err)
	}
	source := strings.TrimSpace(string(dir))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(source, "boottime_linux.go"): "", filepath.Join(source, "boottime.go"): replacement,
	}})
	if err != nil {
		t.Fatal(err)
	}
	list, program := filepath.Join(t.TempDir(), "overlay.json"), filepath.Join(t.TempDir(), "worker")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-overlay", list, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, text)
	}
	return program
}

// clockCluster has processes that start runs with waits, and write when they begin and end.
type clockCluster struct {
	t                 *testing.T
	dir, program, url string
	begun             time.Time
	workers           [workers]*exec.Cmd
}

// start starts a worker, and waits until it is a member.
func (c *clockCluster) start(i int) {
	c.t.Helper()
	cmd := exec.Command(c.program)
	booted := c.begun.Add(-time.Duration(i+1) * 10 * time.Hour)
	cmd.Env = append(os.Environ(), clockEnv+"="+c.dir, fmt.Sprint("CRASH_NAME=worker-", i), "CRASH_URL="+c.url,
		fmt.Sprint("CLOCK_SKEW=", skews[i]), fmt.Sprint("CLOCK_BOOT=machine-", i), "CLOCK_BOOTED="+booted.Format(time.RFC3339Nano))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := os.OpenFile(filepath.Join(c.dir, fmt.Sprintf("worker-%d.log", i)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cmd.Process.Kill() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		text, _ := os.ReadFile(stderr.Name())
		c.t.Fatalf("worker %d: %v\n%s", i, err, text)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	c.workers[i] = cmd
}

// statedWait is a wait, as the lines of the workers say it.
type statedWait struct {
	stated           time.Duration
	first, last, end time.Time // end is zero while the wait lasts
	started          bool      // the start of the run was acknowledged
}

// waits returns all waits by their keys.
func (c *clockCluster) waits() map[string]*statedWait {
	text, err := os.ReadFile(filepath.Join(c.dir, "witness"))
	if err != nil {
		c.t.Fatal(err)
	}
	all := map[string]*statedWait{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // time, what, key, and the stated time
		if len(f) != 4 {
			c.t.Fatalf("line %q", line)
		}
		at, err1 := strconv.ParseInt(f[0], 10, 64)
		stated, err2 := time.ParseDuration(f[3])
		if err1 != nil || err2 != nil {
			c.t.Fatalf("line %q", line)
		}
		w := all[f[2]]
		if w == nil {
			w = &statedWait{stated: stated}
			all[f[2]] = w
		}
		switch now := time.Unix(0, at); {
		case f[1] == "started":
			w.started = true
		case f[1] == "end" && w.end.IsZero():
			w.end = now
		case f[1] == "begin" && w.end.IsZero():
			if w.first.IsZero() {
				w.first = now
			}
			w.last = now
		}
	}
	return all
}

// clockWitness is the file to which the workers write when waits begin and end. Its times do not
// depend on the clocks of the engine.
type clockWitness struct{ witness }

func (w *clockWitness) note(what, key, stated string) {
	// real clock: the processes share it, and their engines do not use it
	if _, err := fmt.Fprintf(w.file, "%d %s %s %s\n", time.Now().UnixNano(), what, key, stated); err != nil {
		panic(err)
	}
}

// clockRun is the input of a run.
type clockRun struct {
	Key    string
	Stated string // the length of the wait
}

func (r clockRun) wait() time.Duration {
	d, _ := time.ParseDuration(r.Stated)
	return d
}

// runClocks is the main function of a worker of TestClocksDiffer.
func runClocks(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	file, err := openWitness(dir)
	if err != nil {
		return err
	}
	w := &clockWitness{*file}
	delayed, err1 := engine.NewWorkflow("delayed", engine.Step("do", func(_ context.Context, r clockRun) (string, error) {
		w.note("end", r.Key, r.Stated)
		return "", nil
	}, engine.MaxLost(100)))
	snoozed, err2 := engine.NewWorkflow("snoozed", engine.Step("do", func(ctx context.Context, r clockRun) (string, error) {
		if task, _ := engine.TaskOf(ctx); len(task.Progress) > 0 {
			w.note("end", r.Key, r.Stated)
			return "", nil
		}
		w.note("begin", r.Key, r.Stated)
		return "", engine.Keep(engine.Snooze(r.wait(), "for the test"), true)
	}, engine.MaxLost(100)))
	slept, err3 := engine.NewFlow("slept", func(f *engine.Flow, r clockRun) (string, error) {
		note := func(what string) error {
			_, err := engine.Do(f, what, func(context.Context) (string, error) { w.note(what, r.Key, r.Stated); return "", nil }, engine.MaxLost(100))
			return err
		}
		if err := note("begin"); err != nil {
			return "", err
		}
		if err := engine.Sleep(f, "wait", r.wait()); err != nil {
			return "", err
		}
		return "", note("end")
	}, engine.Function(engine.MaxLost(100)))
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	name := os.Getenv("CRASH_NAME")
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("worker", name)
	log, err := jetstream.Open(ctx, jetstream.Config{
		URL: os.Getenv("CRASH_URL"), Name: "clocks", Shards: shards, MemberName: name, Cache: filepath.Join(dir, name, "cache"), Logger: logger,
	})
	if err != nil {
		return err
	}
	e, err := engine.Open(ctx, engine.Config{
		Log: log, Dir: filepath.Join(dir, name, "views"), Workflows: []*engine.Workflow{delayed, snoozed, slept}, Logger: logger,
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for i := 0; ctx.Err() == nil; i++ {
		pause(time.Second)
		if _, err := os.Stat(filepath.Join(dir, "stop")); err == nil {
			break
		}
		r := clockRun{fmt.Sprintf("%s-%d-%d", name, os.Getpid(), i), (15*time.Second + rand.N(60*time.Second)).String()}
		flow, opts := []*engine.Workflow{delayed, snoozed, slept}[i%3], []engine.StartOption{engine.Key(r.Key)}
		if flow == delayed {
			opts = append(opts, engine.In(r.wait()))
			w.note("begin", r.Key, r.Stated)
		}
		if _, err := e.Start(ctx, flow, r, opts...); err != nil {
			fmt.Fprintln(os.Stderr, "start", r.Key, err)
			continue
		}
		w.note("started", r.Key, r.Stated)
	}
	<-ctx.Done()
	return e.Close(context.Background())
}
