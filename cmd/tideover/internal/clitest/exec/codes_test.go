//go:build unix

package exec_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestExitCode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sh := func(script string) []string { return []string{"--", "sh", "-c", script} }
	for _, tt := range []struct {
		name  string
		flags []string
		args  []string
		want  int
	}{
		{"a success is 0", nil, sh("exit 0"), 0},
		{"a success after failures is 0", nil, sh("test $TIDEOVER_ATTEMPT = 3"), 0},
		{"giving up passes the command's code on", nil, sh("exit 75"), 75},
		{"it is the code of the last attempt", nil, sh("exit 7$TIDEOVER_ATTEMPT"), 73},
		{"an attempt's timeout is 124", []string{"--attempt-timeout", "20ms"}, sh("sleep 60"), 124},
		{"a timeout is 124 even if TERM leads to a clean exit", []string{"--attempt-timeout", "200ms", "-n", "1"}, sh("trap 'exit 0' TERM; sleep 60 & wait"), 124},
		{"a timeout is 124 when it is not retried", []string{"--attempt-timeout", "20ms", "--retry-timeouts=false"}, sh("sleep 60"), 124},
		{"the total timeout during an attempt is 124", []string{"--total-timeout", "50ms"}, sh("sleep 60"), 124},
		{"the total timeout while waiting is 124", []string{"--policy", "fixed(1h) attempts=3", "--total-timeout", "1m"}, sh("exit 3"), 124},
		{"a total timeout too short for any attempt is 124", []string{"--total-timeout", "1ns"}, sh("exit 3"), 124},
		{"an attempt timeout too short for any attempt is 124", []string{"--attempt-timeout", "1ns"}, sh("exit 3"), 124},
		{"a file that is not executable is 126", nil, []string{"--", plain}, 126},
		{"a folder is 126", nil, []string{"--", dir}, 126},
		{"a command that does not exist is 127", nil, []string{"--", filepath.Join(dir, "none")}, 127},
		{"a command that is not in PATH is 127", nil, []string{"--", "no-such-command-anywhere"}, 127},
		{"death by signal n is 128+n", nil, sh("kill -9 $$"), 137},
		{"the give-up code replaces the command's", []string{"--give-up-code", "42"}, sh("exit 75"), 42},
		{"the give-up code replaces 124", []string{"--give-up-code", "42", "--total-timeout", "50ms"}, sh("sleep 60"), 42},
		{"the give-up code may be 0", []string{"--give-up-code", "0"}, sh("exit 75"), 0},
		{"the give-up code is not for permanent failures", []string{"--give-up-code", "42", "--stop-on", "75"}, sh("exit 75"), 75},
		{"the give-up code is not for a missing command", []string{"--give-up-code", "42"}, []string{"--", "no-such-command-anywhere"}, 127},
		{"output that never matched is 1", []string{"--until-output", "^ready$"}, sh("echo steady"), 1},
		{"no -- is needed", nil, []string{"sh", "-c", "exit 9"}, 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := append(append([]string{"exec", "--policy", clitest.Quick, "--grace", "5s"}, tt.flags...), tt.args...)
			clitest.WantCode(t, clitest.Run(t, args...), tt.want)
		})
	}
}

func TestOwnErrorIs125BeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		flags []string
		want  string // part of the message
	}{
		{"unknown preset", []string{"--policy", "nope"}, `--policy: policy "nope"`},
		{"unknown family", []string{"--policy", "cubic(1s) attempts=3"}, `"cubic"`},
		{"unknown key", []string{"--policy", "http color=red"}, `"color"`},
		{"policy without attempts", []string{"--policy", "fixed(1s)"}, "add attempts=N or attempts=unlimited"},
		{"policy that hedges", []string{"--policy", "http hedge=1s"}, "hedge: exec can't honour"},
		{"policy that resets", []string{"--policy", "http reset-after=1m"}, "reset-after: exec can't honour"},
		{"no attempts", []string{"--attempts", "0"}, "--attempts: "},
		{"bad attempt timeout", []string{"--attempt-timeout", "soon"}, "--attempt-timeout: "},
		{"bad total timeout", []string{"--total-timeout", "-1s"}, "--total-timeout: "},
		{"bad grace", []string{"--grace", "long"}, "--grace: "},
		{"bad codes", []string{"--retry-on", "5-1"}, "--retry-on: "},
		{"code out of range", []string{"--stop-on", "256"}, "--stop-on: "},
		{"bad pattern", []string{"--retry-stderr", "("}, "--retry-stderr: "},
		{"bad output pattern", []string{"--until-output", "["}, "--until-output: "},
		{"bad size", []string{"--stdin-limit", "many"}, "--stdin-limit: "},
		{"bad give-up code", []string{"--give-up-code", "300"}, "--give-up-code: "},
		{"bad switch", []string{"--retry-timeouts=perhaps"}, `--retry-timeouts`},
		{"events into a missing folder", []string{"--events", "/no/such/folder/events"}, "--events: "},
		{"events into a closed descriptor", []string{"--events", "77"}, "--events: descriptor 77 is not open"},
		{"events into a dash", []string{"--events", "-"}, "--events: - is not supported: use 1 for standard output"},
		{"codes that are none", []string{"--retry-on", "300"}, `--retry-on: "300" is not an exit code from 0 to 255`},
		{"a success to retry", []string{"--retry-on", "0"}, "--retry-on: exit code 0 is success"},
		{"a seed that is no number", []string{"--seed", "x"}, `--seed: "x" is not a whole number of 0 or more`},
		{"a seed out of range", []string{"--seed", "99999999999999999999"}, "--seed: 99999999999999999999 is out of range"},
		{"a flag without its value", []string{"--seed"}, `--seed: "--" is not`},
		{"an empty policy", []string{"--policy", ""}, "--policy: the value is empty"},
		{"empty attempts", []string{"--attempts="}, "--attempts: the value is empty"},
		{"an empty timeout", []string{"--attempt-timeout", ""}, "--attempt-timeout: the value is empty"},
		{"empty events", []string{"--events", ""}, "--events: the value is empty"},
		{"an empty pattern", []string{"--until-output", ""}, "--until-output: the value is empty"},
		{"an empty notifier", []string{"--notify", ""}, "--notify: the value is empty"},
		{"an empty grace", []string{"--grace", ""}, "--grace: the value is empty"},
		{"an unknown flag", []string{"--atempts", "3"}, "unknown flag --atempts; did you mean --attempts?"},
		{"a flag of others", []string{"--timeout", "3s"}, "did you mean --attempt-timeout or --total-timeout?"},
		{"another flag of others", []string{"--retries", "3"}, "did you mean --attempts?"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			touched := filepath.Join(t.TempDir(), "touched")
			got := clitest.Run(t, append(append([]string{"exec"}, tt.flags...), "--", "touch", touched)...)
			clitest.WantCode(t, got, 125)
			clitest.WantIn(t, "stderr", got.Stderr, tt.want)
			if !strings.HasPrefix(got.Stderr, "tideover: ") {
				t.Errorf("stderr = %q, want the prefix", got.Stderr)
			}
			if _, err := os.Stat(touched); err == nil {
				t.Error("the command was started")
			}
		})
	}
	t.Run("no command given", func(t *testing.T) {
		t.Parallel()
		clitest.WantCode(t, clitest.Run(t, "exec"), 125)
	})
}

func TestNotExecutableInPathIs126(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plain-file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, _ := clitest.Command(t, "exec", "--policy", clitest.Quick, "--", "plain-file")
	cmd.Env = append(cmd.Env, "PATH="+dir)
	got := clitest.Finish(t, cmd)
	clitest.WantCode(t, got, 126)
	if got.Stderr != "tideover: start plain-file: not executable\n" {
		t.Errorf("stderr = %q", got.Stderr)
	}
}

func TestProgramThatIsBeingWrittenIsRetried(t *testing.T) {
	t.Parallel()
	clitest.OnlyLinux(t)
	dir := t.TempDir()
	program, events := filepath.Join(dir, "program"), filepath.Join(dir, "events")
	copyFile(t, "/bin/true", program)
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(program, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := clitest.Run(t, "exec", "-p", clitest.Quick, "--", program)
	clitest.WantCode(t, got, 126)
	clitest.WantIn(t, "stderr", got.Stderr, "attempt 1/3 start "+program+": text file busy; next in 0s")
	s := start(t, "exec", "-p", "fixed(10ms) attempts=unlimited", "--events", events, "--", program)
	testwait.Until(t, "an attempt failed", func() bool { return clitest.CountLines(events) > 2 })
	f.Close()
	clitest.WantCode(t, s.End(), 0)
}

func TestEventsDescriptorThatCannotBeWrittenIs125(t *testing.T) {
	t.Parallel()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd, _ := clitest.Command(t, "exec", "--events", "3", "--", "true")
	cmd.ExtraFiles = []*os.File{f}
	got := clitest.Finish(t, cmd)
	clitest.WantCode(t, got, 125)
	clitest.WantIn(t, "stderr", got.Stderr, "descriptor 3 is open for reading only")
	for _, number := range []string{"3", "4", "5", "6", "7"} { // the Go runtime uses some of these
		got := clitest.Run(t, "exec", "--events", number, "--", "true")
		clitest.WantCode(t, got, 125)
		clitest.WantIn(t, "stderr", got.Stderr, "descriptor "+number+" is not open")
	}
}

func TestRetryFilter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		flags  []string
		script string
		want   int // number of attempts
	}{
		{"any failure is retried", nil, "exit 4", 3},
		{"a code in --retry-on is retried", []string{"--retry-on", "1,3-5"}, "exit 4", 3},
		{"a code outside of --retry-on is not", []string{"--retry-on", "1,3-5"}, "exit 6", 1},
		{"--retry-on may be given twice", []string{"--retry-on", "1", "--retry-on", "6"}, "exit 6", 3},
		{"a signal counts as 128+n", []string{"--retry-on", "137"}, "kill -9 $$", 3},
		{"a code in --stop-on is not retried", []string{"--stop-on", "4"}, "exit 4", 1},
		{"--stop-on wins over --retry-on", []string{"--retry-on", "1-255", "--stop-on", "4"}, "exit 4", 1},
		{"a line of stderr that matches is retried", []string{"--retry-stderr", "^temp"}, "echo x >&2; echo temporary >&2; exit 1", 3},
		{"no line of stderr that matches is not", []string{"--retry-stderr", "^temp"}, "echo 'not temporary' >&2; exit 1", 1},
		{"stdout is not stderr", []string{"--retry-stderr", "^temp"}, "echo temporary; exit 1", 1},
		{"both filters must agree", []string{"--retry-stderr", "t", "--retry-on", "2"}, "echo t >&2; exit 1", 1},
		{"timeouts are retried despite --retry-on", []string{"--retry-on", "9", "--attempt-timeout", "150ms"}, "sleep 60", 3},
		{"timeouts are retried despite --retry-stderr", []string{"--retry-stderr", "z", "--attempt-timeout", "150ms"}, "sleep 60", 3},
		{"timeouts are retried despite --stop-on", []string{"--stop-on", "143", "--attempt-timeout", "150ms"}, "sleep 60", 3},
		{"--retry-timeouts=false stops there", []string{"--retry-timeouts=false", "--attempt-timeout", "150ms"}, "sleep 60", 1},
		{"output that does not match is retried", []string{"--until-output", "^done"}, "echo waiting", 3},
		{"output that matches ends it", []string{"--until-output", "^done"}, "test $TIDEOVER_ATTEMPT = 2 && printf 'done' || echo not done", 2},
		{"output that matches does not excuse a failure", []string{"--until-output", "^done"}, "echo done; exit 1", 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "log")
			args := append([]string{"exec", "--policy", clitest.Quick}, tt.flags...)
			cmd, mark := clitest.Command(t, append(args, "--", "sh", "-c", `echo "$TIDEOVER_ATTEMPT" >> "$LOG"; `+tt.script)...)
			cmd.Env = append(cmd.Env, "LOG="+log)
			got := clitest.Finish(t, cmd)
			n := clitest.CountLines(log)
			if slices.Contains(tt.flags, "--attempt-timeout") { // an attempt may be ended before it has written its line
				n = strings.Count(got.Stderr, "timed out after 150ms")
			}
			if n != tt.want {
				t.Errorf("attempts = %d, want %d; stderr %q", n, tt.want, got.Stderr)
			}
			clitest.WantNoProcess(t, mark)
		})
	}
}
