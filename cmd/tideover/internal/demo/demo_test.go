package demo

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/testfile"
)

func TestTheDemosOwnConfigurationLoads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, err := Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Source{Path: path, Environ: []string{"HOME=" + dir}})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Server.Retention > time.Hour || cfg.Server.DeadRetention > time.Hour {
		t.Errorf("runs are kept for %v, dead ones for %v; it must stay small", cfg.Server.Retention, cfg.Server.DeadRetention)
	}
	// The record of the gateway has a quarter of its room for requests that succeed at once.
	if most := callers * int(time.Hour/shortPause); cfg.Gateway.KeepRequests/4 < most {
		t.Errorf("the gateway keeps %d requests, want room for the %d of an hour in a quarter of them", cfg.Gateway.KeepRequests, most)
	}
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("commands need a shell")
	}
	w, s := cfg.Workflows["buoy-check"], cfg.Sessions[assistant]
	if w == nil || w.Schedule == nil || len(w.Notify) == 0 || s == nil || len(s.Notify) == 0 {
		t.Errorf("workflows %v, sessions %v; want one on a schedule, and the assistant, both with a notifier", cfg.WorkflowNames(), cfg.SessionNames())
	}
}

// script runs a script of the demo in dir, and returns its output and its exit code. A fake sleep
// in dir skips its pauses.
func script(t *testing.T, dir string, env []string, args ...string) (out string, code int) {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("needs a shell")
	}
	cmd := exec.CommandContext(t.Context(), sh, args...)
	cmd.Dir, cmd.Env = dir, append(env, "PATH="+dir+":"+os.Getenv("PATH"))
	text, _ := cmd.CombinedOutput() // the exit code is checked instead of the error
	return string(text), cmd.ProcessState.ExitCode()
}

func TestTheAssistantStopsAsAssistantsDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Write(dir); err != nil {
		t.Fatal(err)
	}
	testfile.WriteScript(t, filepath.Join(dir, "sleep"), "#!/bin/sh\n")
	for _, tt := range []struct {
		windows string
		want    detect.Reason
	}{{"0", detect.RateLimit}, {"1", detect.RateLimit}, {"2", detect.Completed}} {
		pack, err := detect.Builtin("claude-code")
		if err != nil {
			t.Fatal(err)
		}
		out, code := script(t, dir, []string{"TIDEOVER_WINDOWS=" + tt.windows}, "assistant.sh", "--resume", "an-id")
		d := detect.New(pack, detect.Options{})
		_, _ = d.Stream().Write([]byte(out)) // never fails
		stop := d.Stop(code)
		if stop.Reason != tt.want || tt.want == detect.RateLimit == stop.Until.IsZero() {
			t.Errorf("after %s windows it stops for %v until %v, want %v; it said\n%s", tt.windows, stop.Reason, stop.Until, tt.want, out)
		}
	}
}

func TestTheBellKeepsTheLastMessages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Write(dir); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "messages.txt")
	if err := os.WriteFile(file, []byte(strings.Repeat("before\n", 60)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := script(t, dir, []string{"TIDEOVER_TIME=now", "TIDEOVER_TITLE=100% of $HOME gave up"}, "bell.sh"); code != 0 {
		t.Fatalf("bell.sh: exit code %d: %s", code, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := lines[len(lines)-1]; len(lines) != 50 || last != "now  100% of $HOME gave up" {
		t.Errorf("%d lines, the last %q", len(lines), last)
	}
}

func TestWritersCollideAndAllGetThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := new(Demo)
		if err := d.createWriter(); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var versions []int
		var all sync.WaitGroup
		lost := 0
		for _, who := range writers {
			all.Go(func() {
				e, err := d.sign(t.Context(), who, func(page) { mu.Lock(); lost++; mu.Unlock() })
				mu.Lock()
				defer mu.Unlock()
				if err != nil || e.Proposals != len(e.LostTo)+1 {
					t.Errorf("%s: %+v, %v", who, e, err)
				}
				versions = append(versions, e.Version)
			})
		}
		all.Wait()
		slices.Sort(versions)
		if !slices.Equal(versions, []int{1, 2, 3, 4, 5}) || lost < len(writers)-1 {
			t.Errorf("versions %v after %d conflicts; want each from 1 to 5, and a conflict for all but the first", versions, lost)
		}
	})
}

func TestAWriterEndsWithItsContext(t *testing.T) {
	t.Parallel()
	d := new(Demo)
	if err := d.createWriter(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e, err := d.sign(ctx, "ann", func(page) {}); err == nil || d.ledger.read().Version != 0 {
		t.Errorf("sign after the end = %+v, %v; the ledger has %v", e, err, d.ledger.read())
	}
}

// fixedSessions has one session with a fixed state.
type fixedSessions struct {
	state   string
	ended   time.Time
	resumed int
}

func (s *fixedSessions) List(context.Context) ([]session.Status, error) {
	return []session.Status{{Name: "of-the-user", State: "completed", Ended: &s.ended}, {Name: assistant, State: s.state, Ended: &s.ended}}, nil
}

func (s *fixedSessions) Resume(_ context.Context, name, _ string) error {
	if name == assistant {
		s.resumed++
	} else {
		s.resumed = -1000
	}
	s.state = "running"
	return nil
}

func TestTheAssistantGetsNewWork(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, state string
		want        int
	}{
		{"when it is done", "completed", 1},
		{"not while it works", "running", 0},
		{"not while it waits", "waiting", 0},
		{"not when a user has stopped it", "stopped", 0},
		{"not when it gave up", "gave-up", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &fixedSessions{state: tt.state, ended: time.Now()}
				ctx, cancel := context.WithTimeout(t.Context(), rest-time.Second)
				defer cancel()
				resumeAssistant(ctx, s)
				if s.resumed != 0 {
					t.Errorf("started again %d times before its rest", s.resumed)
				}
				ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				resumeAssistant(ctx, s)
				if s.resumed != tt.want {
					t.Errorf("begun anew %d times, want %d", s.resumed, tt.want)
				}
			})
		})
	}
}
