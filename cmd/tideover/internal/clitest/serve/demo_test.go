//go:build unix

package serve_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
)

// demoLook reads the state of the demo once, and adds the states and parts that it finds to seen.
func demoLook(ctx context.Context, c *client.Client, folder string, seen map[string]bool) {
	runs, _ := c.List(ctx, control.Filter{Limit: 100})
	for i := range runs.Runs {
		r := &runs.Runs[i]
		seen[r.State], seen[r.Workflow] = true, true
		if r.Workflow == "contention" && r.State == "succeeded" && !seen["commits"] {
			seen["commits"] = demoCommits(ctx, c, r.ID)
		}
	}
	if model, err := c.Provider(ctx, "model"); err == nil && model.Totals.Failovers > 0 && model.Totals.Succeeded > 0 {
		seen["failover"] = true
	}
	if s, err := c.Session(ctx, "demo-assistant"); err == nil {
		seen["session waits"] = seen["session waits"] || s.State == "waiting" && s.WaitBy == "server"
		seen["session resumes"] = seen["session resumes"] || s.Resumes > 0 && s.Windows > 0
	}
	dead, _ := c.Dead(ctx, 10, false)
	seen["dead letters of two kinds"] = len(dead.Groups) > 1
	text, _ := os.ReadFile(filepath.Join(folder, "messages.txt"))
	seen["messages"] = len(text) > 0
}

// demoCommits reports whether all writers of a run of the workflow contention have succeeded.
func demoCommits(ctx context.Context, c *client.Client, id string) bool {
	info, err := c.Get(ctx, id)
	var round struct{ Committed, Proposals, Conflicts int }
	return err == nil && json.Unmarshal(info.Output, &round) == nil &&
		round.Committed == 5 && round.Proposals == round.Committed+round.Conflicts
}

var demoShows = []string{
	"waiting", "succeeded", "dead", "order", "slow-report", "refund", "import", "contention", "buoy-check",
	"commits", "failover", "session waits", "session resumes", "dead letters of two kinds", "messages",
}

func TestTheDemoShowsEverythingAndLeavesNothing(t *testing.T) {
	t.Parallel()
	temp := clitest.ShortDir(t)
	s := &clitest.Server{Background: &clitest.Background{T: t, Folder: t.TempDir()}, Log: new(clitest.SyncBuffer)}
	s.Cmd, s.Mark = clitest.Command(t, "serve", "--demo", "--listen", "127.0.0.1:0")
	s.Env = append(s.Env, "TMPDIR="+temp)
	s.Stdout, s.Stderr = s.Log, s.Log
	s.Begin()
	s.AwaitReady()
	folders, err := filepath.Glob(filepath.Join(temp, "tideover-demo-*"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("the folder of the demo: %v, %v", folders, err)
	}
	s.Data = filepath.Join(folders[0], "data")
	c, err := client.Dial(client.Target{Server: "unix:" + filepath.Join(s.Data, "tideover.sock")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	seen := map[string]bool{}
	missing := func() []string {
		return slices.DeleteFunc(slices.Clone(demoShows), func(what string) bool { return seen[what] })
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the demo does not show %q; it says %s", missing(), s.Log)
		}
	})
	testwait.Until(t, "the demo shows everything", func() bool {
		demoLook(t.Context(), c, folders[0], seen)
		return len(missing()) == 0
	})
	demoSchedule(t, c)
	resp, err := http.Get(s.PageURL())
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	clitest.WantNoProcess(t, s.Mark)
}

// demoSchedule checks that the schedule exists and is due soon.
func demoSchedule(t *testing.T, c *client.Client) {
	t.Helper()
	list, err := c.Schedules(t.Context())
	if err != nil || !slices.ContainsFunc(list, func(s engine.Schedule) bool { return strings.Contains(s.Cron, "@every 5s") }) {
		t.Errorf("schedules: %+v, %v", list, err)
	}
}

func TestTheDemoIsNotForACluster(t *testing.T) {
	t.Parallel()
	o := clitest.Run(t, "serve", "--demo", "--nats", "127.0.0.1:1")
	clitest.WantCode(t, o, cli.CodeOwn)
	clitest.WantIn(t, "the error", o.Stderr, "--demo and --nats can't be used together")
}
