package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/bench/gateway"
	"github.com/tideover/tideover/internal/benchreport"
)

const childEnv = "GATEWAY_TEST_CHILD"

// The test is its own child process.
func TestMain(m *testing.M) {
	part := os.Getenv(childEnv)
	if part == "" {
		os.Exit(m.Run())
	}
	if err := os.WriteFile(part+".pid", []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := gateway.Child(context.Background(), part, os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func own(t *testing.T) func(part, upstream string) gateway.Command {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return func(part, upstream string) gateway.Command {
		return gateway.Command{Args: []string{path, upstream}, Env: []string{childEnv + "=" + part}}
	}
}

// Caddy and tideover are programs that run.sh builds; everything else is here.
func TestRound(t *testing.T) {
	t.Parallel()
	b := gateway.Bench{Dir: t.TempDir(), Length: 200 * time.Millisecond, Connections: 8, Rate: 200, Own: own(t)}
	got := map[string]benchreport.Result{}
	systems := []string{gateway.Direct, gateway.Bare, gateway.Tuned}
	err := b.Round(t.Context(), 2, systems, func(r benchreport.Result) error {
		got[r.Scenario+" "+r.System] = r
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantEnded(t, b.Dir, "upstream", gateway.Bare, gateway.Tuned)
	for scenario, names := range map[string][]string{
		"get":    {"get/s"},
		"post":   {"post/s"},
		"steady": {"steady/s", "steady p50", "steady p99", "steady max"},
		"stream": {"stream/s", "first p50", "first p99", "later p50", "later p99"},
	} {
		for _, s := range systems {
			r := got[scenario+" "+s]
			wantPositive(t, r, names...)
			// The standard library's proxy cuts an answer that begins before it has
			// seen the end of the request (golang/go#40747).
			known := scenario == "stream" && s != gateway.Direct && r.Failure == "unexpected EOF"
			if n, ok := r.Values["failed"]; !ok || n != 0 && !known {
				t.Errorf("%s of %s: failed = %v, %v; want 0: %s", scenario, s, n, ok, r.Failure)
			}
		}
	}
	for _, s := range systems[1:] {
		wantPositive(t, got["memory "+s], "VmRSS started", "VmRSS loaded", "VmHWM loaded")
		// The kernel counts in steps of 10 ms, of which a busy machine may give us none.
		for _, name := range []string{"get µs", "get busy", "post µs", "steady µs", "stream µs"} {
			scenario, _, _ := strings.Cut(name, " ")
			if _, ok := got[scenario+" "+s].Values[name]; !ok {
				t.Errorf("%s of %s has no %s", scenario, s, name)
			}
		}
	}
}

// wantEnded checks that the processes with a file in the folder are no more.
func wantEnded(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name+".pid"))
		if err != nil {
			t.Error(err)
			continue
		}
		pid, err := strconv.Atoi(string(text))
		if err != nil {
			t.Error(err)
			continue
		}
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s, process %d, is still there: %v", name, pid, err)
		}
	}
}

func TestRoundSaysWhatWentWrong(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		system  string
		program string
		want    string
	}{
		"an unknown system":               {"nginx", "", "start of nginx: there is no such system"},
		"a program that is not there":     {gateway.Caddy, "./missing", "start of caddy: fork/exec ./missing: no such file or directory"},
		"a program that ends":             {gateway.Tideover, "false", "start of tideover: the process has ended"},
		"a program that says why it ends": {gateway.Tideover, "ls", "its log:\nls: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gateway.Bench{Dir: t.TempDir(), Own: own(t), Caddy: test.program, Tideover: test.program}
			err := b.Round(t.Context(), 1, []string{test.system}, func(benchreport.Result) error { return nil })
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Round: %v; want %q in it", err, test.want)
			}
		})
	}
}

func TestScriptIsBash(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "bash", "-n", "run.sh").CombinedOutput(); err != nil {
		t.Errorf("run.sh: %v\n%s", err, out)
	}
}

func wantPositive(t *testing.T, r benchreport.Result, names ...string) {
	t.Helper()
	for _, name := range names {
		if v, ok := r.Values[name]; !ok || v <= 0 {
			t.Errorf("%s of %s: %s = %v, %v; want it positive. All: %v", r.Scenario, r.System, name, v, ok, r.Values)
		}
	}
}
