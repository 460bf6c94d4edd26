//go:build unix

package exec_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestEnvironmentOfTheCommand(t *testing.T) {
	t.Parallel()
	const script = `echo "$TIDEOVER_ATTEMPT/$TIDEOVER_ATTEMPTS last=$TIDEOVER_LAST_EXIT"; test $TIDEOVER_ATTEMPT = 3 || exit 7$TIDEOVER_ATTEMPT`
	for attempts, want := range map[string]string{
		"5":         "1/5 last=\n2/5 last=71\n3/5 last=72\n",
		"unlimited": "1/unlimited last=\n2/unlimited last=71\n3/unlimited last=72\n",
	} {
		cmd, _ := clitest.Command(t, "exec", "--policy", clitest.Quick, "--attempts", attempts, "--", "sh", "-c", script)
		cmd.Env = append(cmd.Env, "TIDEOVER_ATTEMPT=99", "TIDEOVER_LAST_EXIT=99") // as set by an outer tideover exec
		if got := clitest.Finish(t, cmd); got.Out != want {
			t.Errorf("--attempts %s: %q, want %q", attempts, got.Out, want)
		}
	}
	// On a slow machine, later attempts may time out, too.
	got := clitest.Run(t, "exec", "-q", "--policy", "fixed(0s) attempts=unlimited", "--attempt-timeout", "100ms", "--", "sh", "-c", `test $TIDEOVER_ATTEMPT = 1 && sleep 60; echo $TIDEOVER_LAST_EXIT`)
	if out, found := strings.CutPrefix(got.Out, "124\n"); !found || strings.ReplaceAll(out, "124\n", "") != "" {
		t.Errorf("after a timeout: %+v", got)
	}
}

func TestFlagsOverrideThePolicy(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, "exec", "--policy", "http", "--attempts", "2", "--attempt-timeout", "1d", "--total-timeout", "2d", "--dry-run")
	clitest.WantIn(t, "stdout", got.Out, "exponential(1s..32s) jitter=20% attempts=2 attempt-timeout=1d total-timeout=2d\n")
}

// kinds reads events and returns their kinds.
func kinds(t *testing.T, data []byte) string {
	t.Helper()
	var names []string
	for line := range strings.Lines(string(data)) {
		var e retry.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("event %q: %v", line, err)
		}
		names = append(names, e.Kind.String())
	}
	return strings.Join(names, " ")
}

const wantKinds = "attempt-started attempt-failed waiting attempt-started succeeded"

func TestEventsGoToAFile(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "events")
	for range 2 { // the second command appends to the file
		clitest.WantCode(t, clitest.Run(t, "exec", "--policy", clitest.Quick, "--events", name, "--", "sh", "-c", "test $TIDEOVER_ATTEMPT = 2"), 0)
	}
	data, _ := os.ReadFile(name)
	if got := kinds(t, data); got != wantKinds+" "+wantKinds {
		t.Errorf("events = %q", got)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v; want 0600", info.Mode(), err)
	}
}

func TestEventsGoToADescriptorThatTheCommandDoesNotGet(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "events"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd, _ := clitest.Command(t, "exec", "--policy", clitest.Quick, "--events", "3", "--", "sh", "-c", "test $TIDEOVER_ATTEMPT = 2 && ! (echo x >&3) 2>/dev/null")
	cmd.ExtraFiles = []*os.File{f}
	clitest.WantCode(t, clitest.Finish(t, cmd), 0)
	data, _ := os.ReadFile(f.Name())
	if got := kinds(t, data); got != wantKinds {
		t.Errorf("events = %q, want %q", got, wantKinds)
	}
}

func TestOtherDescriptorsReachTheCommand(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd, _ := clitest.Command(t, "exec", "--", "sh", "-c", "echo through >&3")
	cmd.ExtraFiles = []*os.File{f}
	clitest.WantCode(t, clitest.Finish(t, cmd), 0)
	if data, _ := os.ReadFile(f.Name()); string(data) != "through\n" {
		t.Errorf("descriptor 3 got %q", data)
	}
}

func TestThrottledExitCodesWaitFromTheirOwnBase(t *testing.T) {
	t.Parallel()
	const policy = "fixed(1ms) attempts=2 throttle-base=20ms"
	for _, tt := range []struct {
		flags []string
		code  int
		want  time.Duration
	}{
		{nil, 75, 20 * time.Millisecond},
		{nil, 1, time.Millisecond},
		{[]string{"--throttle-on", "9"}, 75, time.Millisecond},
		{[]string{"--throttle-on", "9"}, 9, 20 * time.Millisecond},
	} {
		name := filepath.Join(t.TempDir(), "events")
		args := append([]string{"exec", "--policy", policy, "--events", name}, tt.flags...)
		_ = clitest.Run(t, append(args, "--", "sh", "-c", fmt.Sprintf("exit %d", tt.code))...)
		data, _ := os.ReadFile(name)
		clitest.WantIn(t, fmt.Sprintf("events of exit %d with %v", tt.code, tt.flags), string(data), fmt.Sprintf(`"delay_ns":%d,`, tt.want))
	}
}

func TestDryRunPrintsTheScheduleAndStartsNothing(t *testing.T) {
	t.Parallel()
	touched := filepath.Join(t.TempDir(), "touched")
	got := clitest.Run(t, "exec", "--policy", "task", "--dry-run", "--", "touch", touched)
	if want := clitest.Run(t, "plan", "task"); got != want || got.Code != 0 {
		t.Errorf("got %+v, want what plan prints: %+v", got, want)
	}
	if _, err := os.Stat(touched); err == nil {
		t.Error("the command was started")
	}
}

func TestSeedMakesDryRunAndRunAgree(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "events")
	const policy = "exponential(10ms..80ms) jitter=full attempts=5"
	dry := clitest.Run(t, "exec", "--policy", policy, "--seed", "7", "--dry-run")
	if plan := clitest.Run(t, "plan", policy, "--seed", "7"); dry != plan {
		t.Errorf("a dry run prints %q, want what plan prints: %q", dry.Out, plan.Out)
	}
	plan := clitest.Run(t, "plan", policy, "--seed", "7", "--json")
	_ = clitest.Run(t, "exec", "--policy", policy, "--seed", "7", "--events", name, "--", "false")
	data, _ := os.ReadFile(name)
	for line := range strings.Lines(string(data)) {
		var e retry.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Kind == retry.Waiting {
			clitest.WantIn(t, "plan", plan.Out, fmt.Sprintf(`"sample_ns": %d`, e.Delay))
		}
	}
}

func TestHelpIsForStrangers(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, "exec", "--help")
	clitest.WantCode(t, got, 0)
	for _, part := range []string{
		"Exit codes:", "124 ", "125 ", "126 ", "127 ", "128+n", "Examples:", "Policy:", "What to retry:", "Execution:", "Reporting:",
		"TIDEOVER_ATTEMPT ", "http-interactive", "--grace duration", `(default "exponential(1s..30s) jitter=50% attempts=5")`,
	} {
		clitest.WantIn(t, "help", got.Out, part)
	}
	if strings.Contains(got.Out, "%!") || strings.Contains(got.Out, "PRESETS") {
		t.Errorf("help = %q", got.Out)
	}
}

func TestCompletionKnowsThePresets(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, "__complete", "exec", "--policy", "http")
	for name, use := range retry.Presets {
		if strings.HasPrefix(name, "http") {
			clitest.WantIn(t, "completion", got.Out, name+"\t"+use)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		clitest.WantCode(t, clitest.Run(t, "completion", shell), 0)
	}
}

func TestUnknownVerbIsRefused(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, "exce", "--", "true")
	clitest.WantCode(t, got, 125)
	clitest.WantIn(t, "stderr", got.Stderr, `unknown command "tideover exce"; did you mean "tideover exec"?`)
}
