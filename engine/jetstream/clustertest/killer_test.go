//go:build linux

package clustertest

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
)

var killers = flag.Int("killers", 1, "number of runs that kill the process that works on them")

const (
	killerEnv = "TIDEOVER_KILLER_WORKER"
	harmless  = 10 // runs besides the killers
)

// Runs kill the processes of a cluster again and again. They end as dead with
// the reason, and the harmless runs besides them succeed.
func TestClusterFindsKillers(t *testing.T) {
	nodes := natstest.Start(t, 3)
	c := &restartedCluster{t: t, dir: t.TempDir(), url: nodes.URL()}
	for i := range workers {
		c.processes = append(c.processes, c.start(fmt.Sprint("worker-", i)))
	}
	var ended []engine.Info
	testwait.Until(t, "all runs have ended", func() bool {
		ended = c.ended()
		return len(ended) == *killers+harmless
	})
	for _, i := range ended {
		name, _, _ := strings.Cut(i.Key, "-")
		switch {
		case name == "harmless" && i.State != engine.StateSucceeded:
			t.Errorf("%s is %s (%s): %s", i.Key, i.State, i.Reason, i.Error)
		case name == "killer" && (i.State != engine.StateDead || i.Reason != "lost" || !strings.HasSuffix(i.Error, "no other attempt ran")):
			t.Errorf("%s is %s (%s): %s", i.Key, i.State, i.Reason, i.Error)
		}
	}
	for _, p := range c.processes {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		for range p.lines {
			continue
		}
	}
	t.Logf("%d killers, %d deaths", *killers, c.deaths)
}

// restartedCluster has processes that are restarted after they were killed.
type restartedCluster struct {
	t         *testing.T
	dir, url  string
	processes []*killerProcess
	deaths    int
}

type killerProcess struct {
	name  string
	cmd   *exec.Cmd
	in    io.Writer
	lines chan string // its output; closed when it has died
}

func (c *restartedCluster) start(name string) *killerProcess {
	c.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killerEnv+"="+c.dir, "CRASH_NAME="+name, "CRASH_URL="+c.url, fmt.Sprint("KILLERS=", *killers))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = c.t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	p := &killerProcess{name, cmd, in, make(chan string)}
	c.t.Cleanup(func() { _ = cmd.Process.Kill() })
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
		_ = cmd.Wait()
	}()
	return p
}

// ended returns the runs that have ended, as reported by a living process. It
// restarts the processes that were killed.
func (c *restartedCluster) ended() (list []engine.Info) {
	for i, p := range c.processes {
		fmt.Fprintln(p.in, "report")
		line, alive := <-p.lines
		if !alive {
			c.deaths++
			c.processes[i] = c.start(p.name)
			continue
		}
		list = nil
		if err := json.Unmarshal([]byte(line), &list); err != nil {
			c.t.Fatalf("%s: %v in %q", p.name, err, line)
		}
	}
	return list
}

// runKillers is the main function of a process that is killed by its runs.
func runKillers(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	killed := filepath.Join(dir, "killed")
	kill, err := engine.NewWorkflow("killer", engine.Step("kill", func(context.Context, string) (string, error) {
		if err := os.WriteFile(killed, nil, 0o600); err != nil {
			return "", err
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}, engine.MaxLost(1)))
	if err != nil {
		return err
	}
	work, err := engine.NewWorkflow("harmless", engine.Step("work", func(ctx context.Context, _ string) (string, error) {
		for ctx.Err() == nil { // until a process was killed, and a little longer
			_, err := os.Stat(killed)
			pause(200 * time.Millisecond)
			if err == nil {
				break
			}
		}
		return "", ctx.Err()
	}, engine.MaxLost(1)))
	if err != nil {
		return err
	}
	name := os.Getenv("CRASH_NAME")
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With("worker", name)
	log, err := jetstream.Open(ctx, jetstream.Config{
		URL: os.Getenv("CRASH_URL"), Name: "killers", Shards: shards, MemberName: name, Cache: filepath.Join(dir, name, "cache"), Logger: logger,
	})
	if err != nil {
		return err
	}
	e, err := engine.Open(ctx, engine.Config{
		Log: log, Dir: filepath.Join(dir, name, "views"), Workflows: []*engine.Workflow{kill, work}, Logger: logger,
	})
	if err != nil {
		return err
	}
	go reportEnded(ctx, e, map[*engine.Workflow]int{work: harmless, kill: number("KILLERS")})
	<-ctx.Done()
	return e.Close(context.Background())
}

// reportEnded starts the runs, and prints those that have ended for each line
// of standard input.
func reportEnded(ctx context.Context, e *engine.Engine, runs map[*engine.Workflow]int) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		list := []engine.Info{}
		for w, n := range runs {
			for i := range n {
				key := fmt.Sprint(w.Name(), "-", i)
				run, err := e.Start(ctx, w, key, engine.Key(key))
				if err != nil {
					fmt.Fprintln(os.Stderr, "start", key, err)
					continue
				}
				if i, err := e.Get(ctx, run.ID); err == nil && i.Finished() {
					list = append(list, *i)
				}
			}
		}
		text, err := json.Marshal(list)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}
}
